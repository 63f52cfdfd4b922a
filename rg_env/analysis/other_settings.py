r"""What recorded responses would be paid under other settings, or if their answer were read where the model writes it.

Invariant: a response is read by the parser, and scored by the scorer, that training would use with the setting. Nothing
but the setting changes: a model that is asked in another way answers differently, which only asking shows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rg_env.base.choices import ResponseFormat
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump.schema import GroupRecord, RolloutRecord, answered
from rg_env.scoring import shared_scorer
from rg_env.scoring.formatting import last_boxed, short_answer, unwrapped, without_separators
from rg_env.scoring.parse import parse_response
from rg_env.scoring.scorer import reference_answer
from rg_env.tasks.entry_json import decode_entry

NORMALIZE = "scorer.normalize=true"
PREFILLED, LENIENT = "prefilled_think=true", "format=lenient"
LENIENT_NORMALIZE = f"{LENIENT} {NORMALIZE}"


def _last(pattern: str) -> Callable[[str], str | None]:
    """Return what finds the last match of a pattern, or of its group `answer`."""
    compiled = re.compile(pattern)

    def find(text: str) -> str | None:
        last = None
        for match in compiled.finditer(text):
            last = match["answer"].strip()
        return last

    return find


_PATTERNS = {
    "in another tag": r"<(?!think>|answer>)(?P<tag>[^<>/\s]{1,40})>(?P<answer>[^<>]{1,400})</(?P=tag)>",
    "after ####": r"####[ \t]*(?P<answer>[^\n#]{1,200})",
    "in bold": r"\*\*(?P<answer>[^*\n]{1,200})\*\*",
    "as the last number": r"(?P<answer>-?\d[\d,]{0,40}(?:\.\d{1,40})?)",
}
PLACES: Mapping[str, Callable[[str], str | None]] = {
    r"in \boxed{}": last_boxed,
    **{place: _last(pattern) for place, pattern in _PATTERNS.items()},
}
"""Where an answer may stand that no setting reads: the prompt must ask for the tags."""
READINGS = (NORMALIZE, PREFILLED, LENIENT, LENIENT_NORMALIZE, *PLACES)
"""Settings and places, those that change least first."""


@dataclass
class Payments:
    """How the responses of a task are rewarded.

    Attributes:
        responses, solved, well_formed: numbers; `solved` with the settings of the run.
        paid: responses that are solved with another reading, those included that are solved already.
        violations: of the others, how they break the format.
        right_unrewarded: well-formed responses whose answer is right to the letter and that are not solved.
        example: the item of one of them, and its answer.
    """

    responses: int = 0
    solved: int = 0
    well_formed: int = 0
    paid: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    right_unrewarded: int = 0
    example: tuple[str, str] = ("", "")

    @property
    def commonest_violation(self) -> str:
        """The commonest way in which responses break the format; "" if none does."""
        return max(self.violations, key=self.violations.__getitem__, default="")

    @property
    def best(self) -> str:
        """The reading that pays most responses, the first of equals; empty if none pays more than the run."""
        best = max(READINGS, key=lambda reading: self.paid[reading])
        return best if self.paid[best] > self.solved else ""


def count_payments(groups: Iterable[GroupRecord], config: RGDumpConfig) -> dict[str, Payments]:
    """Return what the responses of recorded groups are paid, and would be paid, by task.

    Raises:
        ScorerPoolError: the scorer's processes cannot be started.
    """
    by_task: dict[str, Payments] = {}
    for group in groups:
        payments = by_task.setdefault(group.task, Payments())
        question = _Question(decode_entry(group.entry), decode_entry(group.task_config), config)
        for rollout in answered(group.rollouts):
            payments.responses += 1
            payments.well_formed += not rollout.violation
            if rollout.violation:
                payments.violations[rollout.violation] += 1
            if rollout.base_score >= config.solved_at:
                payments.solved += 1
                payments.paid.update(READINGS)
                continue
            payments.paid.update(question.readings_that_pay(rollout))
            if not rollout.violation and is_right_to_the_letter(rollout.answer, question.right):
                payments.right_unrewarded += 1
                payments.example = group.item, rollout.answer
    return by_task


class _Question:
    """Scores answers to one question, each text once."""

    def __init__(self, entry: Mapping[str, Any], options: Mapping[str, Any], config: RGDumpConfig) -> None:
        self._entry, self._options, self._config = entry, options, config
        self.right = reference_answer(entry)
        self._known: dict[tuple[str, bool], bool] = {}

    def readings_that_pay(self, rollout: RolloutRecord) -> Iterator[str]:
        """Yield the readings with which an unsolved response is solved."""
        for reading, answer in self._answers(rollout):
            normalize = reading not in (PREFILLED, LENIENT)
            if answer and self._is_solved(answer, normalize):
                yield reading

    def _answers(self, rollout: RolloutRecord) -> Iterator[tuple[str, str | None]]:
        """Yield each reading that may find another answer than the run did, and what it finds."""
        if not rollout.violation:
            # It has its answer: only what is written around that may be in the way.
            plain = without_separators(unwrapped(rollout.answer))
            yield NORMALIZE, None if plain == rollout.answer else rollout.answer
            return
        text, prefilled = rollout.response, self._config.prefilled_think
        longest = max(self._config.scorer.max_answer_chars, 2 * len(self.right))
        if self._config.format == ResponseFormat.STRICT:
            yield PREFILLED, parse_response(text, True, longest).answer
        lenient = parse_response(text, prefilled, longest, ResponseFormat.LENIENT).answer
        yield LENIENT, lenient
        yield LENIENT_NORMALIZE, lenient
        # A response that was cut off has no last place.
        if not rollout.truncated:
            for place, read in PLACES.items():
                yield place, read(text)

    def _is_solved(self, answer: str, normalize: bool) -> bool:
        key = answer, normalize
        if key not in self._known:
            settings = self._config.scorer
            scorer = shared_scorer(replace(settings, normalize=True) if normalize else settings)
            scored = scorer.score_answer(self._entry, answer, self._options)
            self._known[key] = scored.score >= self._config.solved_at
        return self._known[key]


def is_right_to_the_letter(answer: str, right: str) -> bool:
    """Return whether an answer is the stored one but for formatting, a lead-in and thousands separators.

    >>> is_right_to_the_letter("**1,658**", "1658"), is_right_to_the_letter("1658 cm", "1658")
    (True, False)
    """
    plain = short_answer(answer)
    return bool(right) and right in (answer, plain, without_separators(plain))
