"""Every rule of the guard takes time linear in the answer, whatever the answer consists of."""

from __future__ import annotations

import string
from time import process_time
from typing import Any

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
SHORT, LONG = 8_000, 32_000


def seconds(entry: dict[str, Any], answer: str, times: int = 1) -> float:
    """The shortest of some measurements, in CPU time of this process."""
    measured = []
    for _ in range(times):
        start = process_time()
        refusal_of(entry, answer)
        measured.append(process_time() - start)
    return min(measured)


@pytest.mark.parametrize("task", sorted(guard.GUARDED_TASKS))
def test_four_times_the_answer_takes_about_four_times_as_long(task: str) -> None:
    """Quadratic time would be 16 times as long; rules that take under 2 ms for 32 kB are not timed again."""
    entry = reasoning_gym.create_dataset(task, seed=3, size=5)[0]
    for unit in UNITS:
        for end in ("", "x"):
            long, short = (unit * (size // len(unit)) + end for size in (LONG, SHORT))
            once = seconds(entry, long)
            if once > 0.002 and once / seconds(entry, short) > 6:
                assert seconds(entry, long, 3) / seconds(entry, short, 3) < 9, unit
