"""Items of reasoning-gym 0.1.25 whose stored answer is wrong: the answer that is right (`corrected`).

Invariant: an answer depends on the question and on metadata that upstream computes correctly, never on the stored
answer, so that correcting an entry twice changes nothing. Not covered: questions without a clear answer, which
`clarity` refuses when an item is made.

Each function says in one line what is wrong upstream. evidence/upstream-findings.md has examples, frequencies, and
the tasks that were checked against independent solvers.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from rg_env.tasks.upstream import solvers

Entry = Mapping[str, Any]


def corrected(entry: Entry) -> Entry:
    """Return the entry with the answer that is most likely meant; the entry itself if its question cannot be read.

    Raises:
        KeyError: the entry names no task.
    """
    correction = CORRECTIONS.get(entry["metadata"]["source_dataset"])
    if correction is None:
        return entry
    try:
        if len(entry["question"]) > _LONGEST_QUESTION:
            return entry
        return replace_fields(entry, correction(entry))
    # An entry may come from anywhere, with any text or type in any place.
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return entry


def replace_fields(entry: Entry, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an entry with another answer, if `fields` has one, and other values in its metadata."""
    metadata = {key: value for key, value in fields.items() if key != "answer"}
    return {**entry, "answer": fields.get("answer", entry["answer"]), "metadata": {**entry["metadata"], **metadata}}


def _angle(entry: Entry) -> dict[str, Any]:
    """It stores two decimals where the question asks for three, and compares after rounding either to two."""
    if entry["metadata"]["task_type"] != "angle_measure":
        return {}
    a, b, c = (complex(float(x), float(y)) for x, y in _POINT.findall(entry["question"]))
    # As complex numbers: the argument of this product is the angle from BA to BC.
    turn = (a - b).conjugate() * (c - b)
    return {"answer": f"{math.degrees(abs(math.atan2(turn.imag, turn.real))):.3f}°"}


def _last_round(entry: Entry) -> dict[str, Any]:
    """It misses a sequence among repeated cards, and calls a random card `Pass` whatever it forms."""
    cards = Counter(_INITIAL_CARDS.findall(entry["question"])[0])
    result = ""
    for new, old in _ROUND.findall(entry["question"]):
        if cards[new] >= 2:
            result = "Peng"
        elif _completes_sequence(cards, ord(new)):
            result = "Chi"
        else:
            result = "Pass"
        # Only now: a card does not form a triple or a sequence with itself.
        cards[new] += 1
        if not cards[old]:
            raise ValueError("it removes a card that is not there")
        cards[old] -= 1
    return {"answer": result}


def _completes_sequence(cards: Counter[str], new: int) -> bool:
    """Return whether two of the cards and a new one, by its code, are three letters in a row."""
    neighbors = ((-2, -1), (-1, 1), (1, 2))
    return any(cards[chr(new + first)] and cards[chr(new + second)] for first, second in neighbors)


def with_men(entry: Entry, options: Mapping[str, Any]) -> Entry:
    """Return an entry with the names of the men in its metadata, if the options of its task have names of their own."""
    has_own = "male_names" in options or "female_names" in options
    if entry["metadata"]["source_dataset"] != "family_relationships" or not has_own:
        return entry
    return replace_fields(entry, {"male_names": list(options.get("male_names", solvers.MEN))})


def _relation(entry: Entry) -> dict[str, Any]:
    """It takes the other person's gender for niece and nephew, and says mother-in-law for daughter-in-law."""
    metadata = entry["metadata"]
    who, to = metadata["person1"], metadata["person2"]
    relation = solvers.relation_in(entry["question"], who, to, metadata.get("male_names"))
    return {"answer": relation, "relationship": relation} if relation else {}


def _syllogism(entry: Entry) -> dict[str, Any]:
    """It does not check that the middle term is distributed."""
    valid, _ = validity_of(entry["question"])
    return {"answer": "Yes" if valid else "No", "is_valid": valid}


def read_interval(entry: Entry) -> tuple[dict[str, Any], str]:
    """time_intervals: upstream truncates milliseconds, and drops the time of day after a weekday in parentheses.

    Returns:
        The fields to replace, and why the question has no clear answer (empty if it has one): the end is before the
        start; day and month can be swapped (03/04/2024); or truncating and rounding to whole minutes differ.
    """
    # Start and end are read from the question: the metadata have them after upstream's mistakes.
    pattern = entry["metadata"]["format"]
    span = _SPAN.search(entry["question"])
    unit_match = _UNIT.search(entry["question"], span.end()) if span else None
    if span is None or unit_match is None or len(pattern) > _LONGEST_FORMAT:
        raise ValueError("the question has no start, end and format")
    texts, unit = span.groups(), unit_match[1]
    start, end = (datetime.strptime(text, pattern) for text in texts)
    # Why the question has no clear answer; of several reasons the last one is given.
    unclear = ""
    difference = end - start
    if "%d" not in pattern:
        difference %= _DAY  # until midnight
    if difference < timedelta(0):
        unclear = "it ends before it starts"
    # Clear only if the other reading is not a date, or gives the same interval.
    if "%m/%d" in pattern and _swap_day_and_month(texts, pattern) not in (None, difference):
        unclear = "day and month can be swapped"
    leftover = difference % timedelta(minutes=1)
    if unit.endswith("HH:MM") and leftover >= timedelta(seconds=30):
        unclear = "it is half a minute or more longer than the format can express"
    if "%d" in pattern:
        start_time, end_time = str(start), str(end)
    else:
        start_time, end_time = str(start.time()), str(end.time())
    answer = _interval_text(difference, unit)
    return {"answer": answer, "start_time": start_time, "end_time": end_time}, unclear


def _interval_fields(entry: Entry) -> dict[str, Any]:
    fields, _ = read_interval(entry)
    return fields


def _swap_day_and_month(texts: tuple[str | Any, ...], pattern: str) -> timedelta | None:
    """Return the interval with day and month swapped; None if that gives no date, or an end before the start."""
    try:
        start, end = (datetime.strptime(text, pattern.replace("%m/%d", "%d/%m")) for text in texts)
    except ValueError:  # there is no 13th month
        return None
    return end - start if end >= start else None


def _interval_text(difference: timedelta, unit: str) -> str:
    """Write an interval as the question asks for it, such as `HH:MM:SS`; what has no place there is cut off."""
    minutes, below = divmod(difference // timedelta(milliseconds=1), 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds, milliseconds = divmod(below, 1000)
    # Without a place for days, the hours go on after 23.
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


# Linear in the question: a date has at most 60 characters, and nothing else may match in two ways.
_SPAN = re.compile(
    r"(?:between|from|started at|departed at|began at) (.{1,60}?) "
    r"(?:and(?: ended at| completed at| arrived at)?|to) (.{1,60}?)[.?] ",
    re.DOTALL,
)
_UNIT = re.compile(r" in ([DHMS][a-zA-Z:, ]{1,20}+(?:\.mmm)?)\.$")
_LONGEST_FORMAT = 40
_DAY = timedelta(days=1)


@lru_cache(4096)
def validity_of(question: str) -> tuple[bool, str]:
    """As `solvers.validity`, once for each question."""
    if len(question) > _LONGEST_SYLLOGISM:  # the cache must not keep large texts
        raise ValueError("the question is too long")
    return solvers.validity(question)


_LONGEST_SYLLOGISM = 2000
_POINT = re.compile(r"[ABC]=\((-?[\d.]+), (-?[\d.]+)\)")
_INITIAL_CARDS = re.compile(r"initial cards ([A-Z]+)")
_ROUND = re.compile(r"Add an? ([A-Z]) card and remove an? ([A-Z]) card")

_LONGEST_QUESTION = 100_000
"""Characters of a question that is read. The longest that reasoning-gym makes has 24,000 (mahjong_puzzle)."""

CORRECTIONS: dict[str, Callable[[Entry], dict[str, Any]]] = {
    "advanced_geometry": _angle,
    "family_relationships": _relation,
    "mahjong_puzzle": _last_round,
    "syllogism": _syllogism,
    "time_intervals": _interval_fields,
}
"""Task → the fields of an entry that are corrected, in time linear in its question."""
