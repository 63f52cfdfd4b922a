"""No answer with a small mistake counts as solved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rg_env.config import RGDumpConfig
from rg_env.scoring import Scorer
from rg_env.tasks.soundness import AUDITED_TASKS, in_default_mix

Items = Callable[[str, int], list[dict[str, Any]]]
TASKS = sorted(task for task in AUDITED_TASKS if in_default_mix(task) and task != "polynomial_equations")
"""Without the task whose question lets the last decimal be rounded down."""
ITEMS = 5
RIGHT = 1 - 1e-9


def nearly_right(answer: str) -> Iterator[str]:
    """The answer with one small mistake: a sign or word appended, removed, changed or exchanged with its neighbor."""
    yield answer + "0"
    yield answer[:-1]
    for place in (0, len(answer) // 2, len(answer) - 1):
        for sign in "01ae":
            yield answer[:place] + sign + answer[place + 1 :]
        yield answer[:place] + answer[place + 1 : place + 2] + answer[place : place + 1] + answer[place + 2 :]
    digits = [match.start() for match in re.finditer(r"\d", answer)]
    for place in dict.fromkeys([*digits[:1], *digits[len(digits) // 2 :][:1], *digits[-1:]]):
        yield answer[:place] + ("0" if answer[place] == "1" else "1") + answer[place + 1 :]
    parts = re.split(r"(\s+)", answer)
    if len(parts) > 2:
        yield "".join(parts[:-2])
        yield "".join([*parts[:-3], parts[-1], parts[-2], parts[-3]])


@pytest.mark.parametrize("task", TASKS)
def test_a_small_mistake_is_not_solved(scorer: Scorer, cured_items: Items, task: str) -> None:
    for entry in cured_items(task, ITEMS):
        for answer in dict.fromkeys(nearly_right(str(entry["answer"] or ""))):
            score = scorer.score_answer(entry, answer).score
            assert score >= RIGHT or score < RGDumpConfig.solved_at, answer
