"""Tasks whose upstream scorer reads one answer out of a text and ignores the rest: several answers in one are wrong.

Invariant: a text with one answer passes, whatever is written around it. Linear in the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rg_env.scoring.guard.eval_tasks import Rule

_NUMBER = re.compile(r"\b-?\d+(?:\.\d+)?\b")


def _gsm_symbolic(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream takes the first number; a number that is written again is not another one."""
    numbers = {float(number) for number in _NUMBER.findall(answer)}
    return f"the answer has {len(numbers)} different numbers; one is asked for" if len(numbers) > 1 else None


def _letter_jumble(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream compares the first words and pays in full, whatever follows."""
    expected, given = len(entry["answer"].split()), len(answer.split())
    return f"the answer has {given} words, more than the {expected} of the question" if given > expected else None


def _word_sorting(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream compares the first words of the list and pays for each, whatever follows."""
    expected, given = len(entry["metadata"]["sorted_words"]), answer.rstrip(", \t\r\n").count(",") + 1
    return f"the answer has {given} words, more than the {expected} of the question" if given > expected else None


RULES: dict[str, Rule] = {
    "gsm_symbolic": _gsm_symbolic,
    "letter_jumble": _letter_jumble,
    "word_sorting": _word_sorting,
}
