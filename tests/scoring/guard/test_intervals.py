"""Right and wrong intervals; upstream would give any of them 0.8."""

from __future__ import annotations

import pytest

from rg_env.scoring.expressions import Refusal
from rg_env.scoring.guard import admit


def is_right(own: str, answer: str) -> bool:
    entry = {"question": "", "answer": own, "metadata": {"source_dataset": "time_intervals"}}
    try:
        admit(entry, answer)
    except Refusal:
        return False
    return True


@pytest.mark.parametrize(
    ("own", "right", "wrong"),
    [
        ("04:48:17.045", ["04:48:17.045", "4:48:17.045", "04:48:17.0450"], ["04:48:17.45", "04:48:17.0", "04:48:17"]),
        ("00:00:54.030", ["00:00:54.03", "0:0:54.030"], ["00:00:54.3", "00:00:54.003", "00:54.030"]),
        ("01:30", ["1:30", "01:30:00", "01:30:00.000"], ["01:03", "1.30", "-1:30", "30"]),
        ("12 days, 03:04", ["12 days, 03:04", "12 days 3:04"], ["12 days, 03:40", "-12 days, 03:04"]),
        ("5 days", ["5 days", "5", "5 days."], ["6 days", "-5 days", "0.5"]),
    ],
)
def test_only_the_right_interval_passes(own: str, right: list[str], wrong: list[str]) -> None:
    assert [answer for answer in right if not is_right(own, answer)] == []
    assert [answer for answer in wrong if is_right(own, answer)] == []
