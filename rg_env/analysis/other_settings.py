r"""What recorded responses would be paid under other settings, or if their answer were read where the model writes it.

Invariant: a response is read by the parser, and scored by the scorer, that training would use with the setting. Nothing
but the setting changes: a model that is asked in another way answers differently, which only asking shows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from rg_env.choices import ResponseFormat
from rg_env.config import RGDumpConfig
from rg_env.dump.schema import GroupRecord, RolloutRecord, answered
from rg_env.scoring import Scorer, shared_scorer
from rg_env.scoring.formatting import last_boxed, short_answer, unwrapped, without_separators
from rg_env.scoring.parse import parse_response
from rg_env.scoring.scorer import reference_answer
from rg_env.tasks.entry_json import decode_entry

_NUMBER = re.compile(r"-?\d[\d,]{0,40}(?:\.\d{1,40})?")
_BOLD = re.compile(r"\*\*([^*\n]{1,200})\*\*")
_AFTER_HASHES = re.compile(r"####[ \t]*([^\n#]{1,200})")
_IN_OTHER_TAG = re.compile(r"<(?!think>|answer>)([^<>/\s]{1,40})>([^<>]{1,400})</\1>")


class Reading(StrEnum):
    """Another way to find the answer of a response; those above LAST_NUMBER are tried first."""

    NORMALIZE = "scorer.normalize"
    PREFILLED = "prefilled_think"
    LENIENT = "format=lenient"
    LENIENT_NORMALIZE = "both lenient and normalize"
    OTHER_TAG = "another tag"
    BOXED = r"\boxed{}"
    HASHES = "####"
    BOLD = "bold"
    LAST_NUMBER = "last number"


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.findall(text)
    if not found:
        return None
    return found[-1] if isinstance(found[-1], str) else found[-1][-1]


_PLACES: Mapping[Reading, Callable[[str], str | None]] = {
    Reading.OTHER_TAG: lambda text: _last(_IN_OTHER_TAG, text),
    Reading.BOXED: last_boxed,
    Reading.HASHES: lambda text: _last(_AFTER_HASHES, text),
    Reading.BOLD: lambda text: _last(_BOLD, text),
    Reading.LAST_NUMBER: lambda text: (_last(_NUMBER, text) or "").replace(",", "").rstrip(".") or None,
}
"""Places of answers that no setting reads: the prompt must ask for the tags."""
PLACES = frozenset(_PLACES)


@dataclass
class Payments:
    """What the responses of a task are paid.

    Attributes:
        responses, solved, well_formed: numbers; `solved` with the settings of the run.
        readings: responses that are solved with another reading, those included that are solved already.
        right_unpaid: well-formed responses whose answer is right to the letter and that are not solved.
        example: the item of one of them, and its answer.
    """

    responses: int = 0
    solved: int = 0
    well_formed: int = 0
    readings: Counter[Reading] = field(default_factory=Counter)
    right_unpaid: int = 0
    example: tuple[str, str] = ("", "")

    def best(self) -> tuple[Reading, int] | None:
        """Return the reading that pays most responses, the first of equals, and how many; None if none pays more."""
        best: tuple[Reading, int] | None = None
        for reading in Reading:
            number = self.readings[reading]
            if number > (best[1] if best else self.solved):
                best = reading, number
        return best


def count_payments(groups: Iterable[GroupRecord], config: RGDumpConfig) -> dict[str, Payments]:
    """Return what the responses of recorded groups are paid, and would be paid, by task.

    Raises:
        ScorerPoolError: the scorer's processes cannot be started.
    """
    by_task: dict[str, Payments] = {}
    scorers = {False: shared_scorer(config.scorer), True: shared_scorer(replace(config.scorer, normalize=True))}
    for group in groups:
        payments = by_task.setdefault(group.task, Payments())
        question = _Question(decode_entry(group.entry), decode_entry(group.task_config) or {}, config, scorers)
        for rollout in answered(group.rollouts):
            _count(payments, rollout, question, group.item)
    return by_task


def _count(payments: Payments, rollout: RolloutRecord, question: _Question, item: str) -> None:
    solved = rollout.base_score >= question.config.solved_at
    payments.responses += 1
    payments.solved += solved
    payments.well_formed += not rollout.violation
    if solved:
        payments.readings.update(Reading)
        return
    for reading in question.readings_that_pay(rollout):
        payments.readings[reading] += 1
    if not rollout.violation and is_right_to_the_letter(rollout.answer, question.right):
        payments.right_unpaid += 1
        payments.example = payments.example if payments.example[0] else (item, rollout.answer)


@dataclass
class _Question:
    """Scores answers to one question, each text once."""

    entry: Mapping[str, Any]
    options: Mapping[str, Any]
    config: RGDumpConfig
    scorers: Mapping[bool, Scorer]

    def __post_init__(self) -> None:
        self.right = reference_answer(self.entry)
        self._known: dict[tuple[str, bool], bool] = {}

    def readings_that_pay(self, rollout: RolloutRecord) -> list[Reading]:
        """Return the readings with which an unsolved response is solved."""
        config, text = self.config, rollout.response
        if not rollout.violation:
            # It has its answer: only what is written around that may be in the way.
            is_plain = without_separators(unwrapped(rollout.answer)) == rollout.answer
            return [] if is_plain or not self._is_solved(rollout.answer, True) else [Reading.NORMALIZE]
        prefilled, lenient = config.prefilled_think, config.format == ResponseFormat.LENIENT
        paid = []
        for reading, answer, normalize in (
            (Reading.PREFILLED, None if lenient else self._parsed(text, True, ResponseFormat.STRICT), False),
            (Reading.LENIENT, self._parsed(text, prefilled, ResponseFormat.LENIENT), False),
            (Reading.LENIENT_NORMALIZE, self._parsed(text, prefilled, ResponseFormat.LENIENT), True),
        ):
            if answer is not None and self._is_solved(answer, normalize):
                paid.append(reading)
        # A response that was cut off has no last place.
        if not rollout.truncated:
            for reading, read in _PLACES.items():
                answer = read(text)
                if answer is not None and self._is_solved(answer.strip(), True):
                    paid.append(reading)
        return paid

    def _parsed(self, text: str, prefilled: bool, format: ResponseFormat) -> str | None:
        longest = max(self.config.scorer.max_answer_chars, 2 * len(self.right))
        return parse_response(text, prefilled, longest, format).answer

    def _is_solved(self, answer: str, normalize: bool) -> bool:
        key = answer, normalize
        if key not in self._known:
            scored = self.scorers[normalize].score_answer(self.entry, answer, self.options)
            self._known[key] = scored.score >= self.config.solved_at
        return self._known[key]


def is_right_to_the_letter(answer: str, right: str) -> bool:
    """Return whether an answer is the stored one but for formatting, a lead-in and thousands separators.

    >>> is_right_to_the_letter("**1,658**", "1658"), is_right_to_the_letter("1658 cm", "1658")
    (True, False)
    """
    plain = short_answer(answer)
    return bool(right) and right in (answer, plain, without_separators(plain))
