"""Scores of `countdown` and `puzzle24` answers, computed exactly instead of by the upstream scorer.

Invariant: what `score` returns is what the upstream scorer returns for an answer that the guard let pass. It returns
None wherever that is not proved; then a worker scores the answer.

The proof, for an answer of whole numbers, brackets and + - * / that uses exactly the given numbers, and whose value has
at most 15 digits above and below the fraction bar:

- sympy computes such an expression exactly, in the same order of operations (`expressions`), so both values are equal.
- countdown: upstream rounds the value to a float (relative error below 1e-15) and pays if it is within 1e-6 + 1e-5 ×
  target of the target. Values equal to the target are; values farther away than ten times that are not.
- puzzle24: upstream cuts off the fraction and pays if 24 is left, which the guard rejects unless the value is 24.
- `<answer>` starts with an operator, so in tags the answer is a syntax error, which earns `_ELSE`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from rg_env.scoring.guard.eval_tasks import grammar_of
from rg_env.scoring.guard.expressions import Refusal, read

COMPUTED_TASKS = frozenset({"countdown", "puzzle24"})

_PLAIN = re.compile(r"[0-9+*/() -]+", re.ASCII)
_ELSE, _RIGHT_NUMBERS = 0.01, 0.05
_PUZZLE24_RANGE = {"min_value": 1, "max_value": 10}
"""The options of puzzle24 that its scorer reads, and their defaults."""
_LARGEST = 10**15


def score(entry: Mapping[str, Any], answer: str, options: Mapping[str, Any]) -> tuple[float, float] | None:
    """The scores of the bare and of the tagged answer, or None if a worker has to score it.

    Args:
        entry: an item of one of `COMPUTED_TASKS`.
        answer: `rg_env.scoring.guard.check` let it pass.
        options: of the task's dataset; a worker has accepted them.
    """
    metadata = entry["metadata"]
    numbers = metadata["numbers"]
    if "**" in answer or not _PLAIN.fullmatch(answer.strip()) or any(type(number) is not int for number in numbers):
        return None
    try:
        expression = read(answer, grammar_of(entry))
    except Refusal:
        return None
    value = expression.value
    if value is None or max(abs(value.numerator), value.denominator) > _LARGEST:
        return None
    if sorted(expression.integers) != sorted(numbers):
        return None
    if metadata["source_dataset"] == "countdown":
        raw = _countdown(value, metadata["target"])
    else:
        lowest, highest = (options.get(name, default) for name, default in _PUZZLE24_RANGE.items())
        allowed = len(numbers) == 4 and all(lowest <= number <= highest for number in numbers)
        raw = 1.0 if value == 24 and allowed else _ELSE
    return None if raw is None else (raw, _ELSE)


def _countdown(value: Fraction, target: object) -> float | None:
    if type(target) is not int or abs(target) > _LARGEST:
        return None
    if value == target:
        return 1.0
    return _RIGHT_NUMBERS if abs(value - target) > 1 + abs(target) / 10_000 else None
