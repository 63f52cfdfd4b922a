"""time_intervals: the answer, computed from the question."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

_INTERVAL = re.compile(
    r"(?:between|from|started at|departed at|began at) (.+?) "
    r"(?:and(?: ended at| completed at| arrived at)?|to) (.+?)[.?] .* in ([^.]+(?:\.mmm)?)\.",
    re.DOTALL,
)
_DAY = timedelta(days=1)


def read_interval(entry: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """time_intervals: upstream truncates milliseconds, and drops the time of day after a weekday in parentheses.

    Returns:
        The fields to replace, and why the question has no clear answer (empty if it has one): the end is before the
        start; day and month can be swapped (03/04/2024); or truncating and rounding to whole minutes differ.
    """
    found = _INTERVAL.search(entry["question"])
    if found is None:
        raise ValueError("the question has no start, end and format")
    written, unit, form = found.group(1, 2), found[3], entry["metadata"]["format"]
    start, end = (datetime.strptime(text, form) for text in written)
    unclear = ""
    difference = end - start
    if "%d" not in form:
        difference %= _DAY  # until midnight
    if difference < timedelta(0):
        unclear = "it ends before it starts"
    if "%m/%d" in form and _swapped(written, form) not in (None, difference):
        unclear = "day and month can be swapped"
    leftover = difference % timedelta(minutes=1)
    if unit.endswith("HH:MM") and leftover >= timedelta(seconds=30):
        unclear = "it is half a minute or more longer than the format can express"
    shown = (str(start), str(end)) if "%d" in form else (str(start.time()), str(end.time()))
    return {"answer": _interval_text(difference, unit), "start_time": shown[0], "end_time": shown[1]}, unclear


def _swapped(written: tuple[str | Any, ...], form: str) -> timedelta | None:
    """The interval with day and month swapped; None if that gives no date, or an end before the start."""
    try:
        start, end = (datetime.strptime(text, form.replace("%m/%d", "%d/%m")) for text in written)
    except ValueError:
        return None
    return end - start if end >= start else None


def _interval_text(difference: timedelta, unit: str) -> str:
    minutes, below = divmod(difference // timedelta(milliseconds=1), 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds, milliseconds = divmod(below, 1000)
    days = ""
    if unit.startswith("D days"):
        days, hours = f"{hours // 24} days", hours % 24
    values = {
        "D days": days,
        "HH": f"{hours:02d}",
        "MM": f"{minutes:02d}",
        "SS": f"{seconds:02d}",
        "mmm": f"{milliseconds:03d}",
    }
    return re.sub("|".join(values), lambda part: values[part[0]], unit)
