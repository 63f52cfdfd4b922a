"""Every rule of the guard takes time linear in the answer, whatever the answer consists of."""

from __future__ import annotations

import string
from time import process_time
from typing import Any

import pytest
import reasoning_gym

from rg_env.scoring import guard
from tests.scoring.guard.refusal import refusal_of

UNITS = [
    *string.printable,
    *(
        "×",
        "∧",
        "٣",
        "\u00a0",
        ", ",
        "1 ",
        "1,",
        "1+",
        "x*",
        "2**",
        "-1",
        "()",
        "[]",
        "[(",
        "'',",
        "1.",
        "0.",
        "e9",
        "1e",
    ),
    *(
        "sin(",
        "x/",
        " + ",
        "A+1 ",
        "A+",
        "F2 ",
        "R' ",
        "Zoe is a knight, ",
        "and ",
        '{"a":',
        "<answer>",
        "a b",
        "True ",
    ),
    *("boxed{", "1/", "1:", "0,", "[0,", "[[0", "1 \n", "\n\n", "--", "- ", "'a", "\\", "** ", "(1", "1)", "n a n "),
]
SHORT, LONG = 8_000, 32_000


def seconds(entry: dict[str, Any], answer: str) -> float:
    """The shortest of three measurements, in CPU time of this process."""
    times = []
    for _ in range(3):
        start = process_time()
        refusal_of(entry, answer)
        times.append(process_time() - start)
    return min(times)


@pytest.mark.parametrize("task", sorted(guard.GUARDED_TASKS))
def test_four_times_the_answer_takes_about_four_times_as_long(task: str) -> None:
    """Quadratic time would be 16 times as long; rules that take under 2 ms for 32 kB are not timed."""
    entry = reasoning_gym.create_dataset(task, seed=3, size=5)[0]
    for unit in UNITS:
        for end in ("", "x"):
            long = seconds(entry, unit * (LONG // len(unit)) + end)
            if long > 0.002:
                assert long / seconds(entry, unit * (SHORT // len(unit)) + end) < 9, unit
