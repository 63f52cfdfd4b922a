"""What a scorer may see. Runs in the trainer's process; answers are never evaluated.

Invariant: `admit` returns or raises `Refusal` for every text, in linear time. For the tasks in `EVALUATING_TASKS` no
character of the answer is in what it returns. NUL characters and lone surrogates are refused for every task, because
they break files and pipes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rg_env.scoring.guard import evaluated, loopholes
from rg_env.scoring.guard.expressions import Refusal

EVALUATING_TASKS = frozenset(evaluated.REWRITES)
"""Tasks whose scorer in reasoning-gym 0.1.25 runs a text as code."""

GUARDED_TASKS = EVALUATING_TASKS | frozenset(loopholes.RULES)
"""Tasks with a specific check."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class Admitted(NamedTuple):
    """The texts that the scorer gets: one for the bare answer, one for `<answer>…</answer>`."""

    raw: str
    tagged: str


def admit(entry: Mapping[str, Any], answer: str) -> Admitted:
    """What the scorer gets for an answer.

    Args:
        entry: the item as made by reasoning-gym; `metadata.source_dataset` names the task. If an entry of a guarded
            task lacks a field that the check reads, all answers to it are refused.

    Raises:
        Refusal: the answer is rejected; the message is a sentence to display.
    """
    if "\0" in answer:
        raise Refusal("the answer contains a NUL character")
    if not answer.isascii() and _SURROGATE.search(answer):
        raise Refusal("the answer contains a lone surrogate, which is not a character")
    task = entry["metadata"]["source_dataset"]
    try:
        if rewrite := evaluated.REWRITES.get(task):
            return Admitted(rewrite(entry, answer), evaluated.UNREADABLE)
        if (rule := loopholes.RULES.get(task)) and (reason := rule(entry, answer)):
            raise Refusal(reason)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Refusal(f"the entry is not a valid {task} item: {type(error).__name__}: {error}") from None
    return Admitted(answer, f"<answer>{answer}</answer>")


def longest(entry: Mapping[str, Any], limit: int) -> int:
    """Maximum answer length in characters: `limit`, or twice the length of the stored answer if that is more."""
    return max(limit, 2 * len(str(entry.get("answer") or "")))
