"""Every rule of the guard takes time linear in the answer, whatever the answer consists of."""

from __future__ import annotations

import string

import pytest
import reasoning_gym

from rg_env.scoring import guard
from tests.scoring.guard.refusal import refusal_of

# fmt: off
UNITS = [
    *string.printable,
    "×", "∧", "٣", "\u00a0", ", ", "1 ", "1,", "1+", "x*", "2**", "-1", "()", "[]", "[(", "'',", "1.", "0.", "e9", "1e",
    "sin(", "x/", " + ", "A+1 ", "A+", "F2 ", "R' ", "Zoe is a knight, ", "and ", '{"a":', "<answer>", "a b", "True ",
    "boxed{", "1/", "1:", "0,", "[0,", "[[0", "1 \n", "\n\n", "--", "- ", "'a", "\\", "** ", "(1", "1)", "n a n ",
]
# fmt: on


@pytest.mark.parametrize("task", sorted(guard.GUARDED_TASKS))
@pytest.mark.timeout(60)  # quadratic time would take longer
def test_long_answers_take_linear_time(task: str) -> None:
    entry = reasoning_gym.create_dataset(task, seed=3, size=5)[0]
    for unit in UNITS:
        for end in ("", "x"):
            refusal_of(entry, unit * (64_000 // len(unit)) + end)
