"""What counts as a hole, and how to find one. The same rules apply to both sides.

| hole | found when |
|---|---|
| code | an answer ended its process or slept, created the canary file, or scored higher with the correct answer hidden in code than with a wrong one hidden the same way |
| poison | afterwards, the correct answer or a wrong one has another score than before |
| hang | no score by the deadline; for `rg_env`, which enforces it: by the deadline + 1 s |
| memory | the scorer's process grew by more than 256 MiB; for `rg_env`, which limits memory: never |
| crash | the scorer's process died; for `rg_env`, which replaces it: never |
| exception | the scorer raised; for `rg_env`: an exception reached the caller |
| free reward | the same attack scored at least 0.5 on average (many answers in one text: 0.3) without being correct |

Without being correct: with two possible answers, a constant is correct half of the time, so items for which the attack's
text is the correct answer count 0. Many answers in one text have the lower threshold because no such text is an answer.
One fixed answer may score up to 0.5 in tasks with many correct ones: `P ∧ Q` follows from 0.43 of propositional_logic's
premises.
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rg_env.audit.payloads import Kind, Payload, Subject
from rg_env.audit.sides import Ending, Outcome, Side, is_touched
from rg_env.scoring.same_answer import is_same_answer

FREE_REWARD = 0.5
"""Mean score from which a fixed text is a hole."""
_MANY_IN_ONE_REWARD = 0.3
"""The same, for a text with many answers."""
_GROWN_MB = 256
_OVERTIME_SECONDS = 1.0
_POISON_TRIES = 10
"""Late answers are retried: the machine may be busy, while the effect of poison is permanent."""
_HIDDEN_ON = 3
"""Hidden code must score on this many items to count; a single one may be chance."""
_HIDDEN_MARGIN = 0.05


class Hole(StrEnum):
    """What an attack achieved."""

    CODE = "code"
    POISON = "poison"
    HANG = "hang"
    MEMORY = "memory"
    CRASH = "crash"
    EXCEPTION = "exception"
    FREE_REWARD = "free reward"


@dataclass(frozen=True, slots=True)
class Finding:
    """One hole, with the attack that shows it.

    Attributes:
        text: the answer, cut to 120 characters.
        value: seconds for a hang, MiB for memory, mean score for a free reward; 0 otherwise.
    """

    hole: Hole
    payload: str
    text: str
    detail: str = ""
    value: float = 0.0


def subjects_of(entries: Sequence[Mapping[str, Any]], side: Side, canary: str) -> list[Subject]:
    """The items with their correct answers: upstream's or, if that is None, the best value in the metadata."""
    oracles = [_oracle(entry, side) for entry in entries]
    distinct = list(dict.fromkeys(oracles))
    return [Subject(entry, oracle, distinct, canary) for entry, oracle in zip(entries, oracles, strict=True)]


def probe(side: Side, subjects: Sequence[Subject], payload: Payload, reference: Reference) -> list[Finding]:
    """Try one payload on the first item and, unless it does harm, on all items."""
    first = subjects[0]
    text = payload.answer(first)
    if text is None:
        return []
    findings: dict[Hole, Finding] = {}

    def found(hole: Hole, detail: str = "", value: float = 0.0) -> None:
        findings.setdefault(hole, Finding(hole, payload.name, text[:120], detail[:200], value))

    outcome = side.ask(first.entry, text)
    _judge_ending(side, outcome, found)
    ended_badly = outcome.ending in (Ending.HUNG, Ending.DIED)
    if payload.kind is Kind.CODE and (ended_badly or is_touched(first.canary)):
        found(Hole.CODE, outcome.ending.value)
    if (changed := reference.changed(side)) is not None:
        found(Hole.POISON, changed)
        side.renew()
    if not ended_badly and Hole.POISON not in findings:
        if payload.control is not None and _hidden_code_ran(side, subjects[:_HIDDEN_ON], payload):
            found(Hole.CODE, "the correct answer hidden in code scored")
        enough = _MANY_IN_ONE_REWARD if payload.kind is Kind.SUBSTRING else FREE_REWARD
        mean = _unearned_mean(side, subjects, payload, outcome, enough)
        if mean >= enough and payload.kind is not Kind.CODE:
            found(Hole.FREE_REWARD, f"mean of {len(subjects)} items", round(mean, 3))
    return list(findings.values())


class Reference:
    """The scores of a correct and a wrong answer before any attack, for comparison."""

    def __init__(self, side: Side, subjects: Sequence[Subject]) -> None:
        self._entry = subjects[0].entry
        wrong = min(
            ["0", "wrong", *(subject.oracle for subject in subjects[1:4])],
            key=lambda text: side.ask(self._entry, text).score,
        )
        self._answers = (subjects[0].oracle, wrong)
        self._expected = [self._result(side, answer) for answer in self._answers]

    def changed(self, side: Side) -> str | None:
        """Describe what has changed; None if nothing has."""
        for name, answer, expected in zip(("correct", "wrong"), self._answers, self._expected, strict=True):
            for _ in range(_POISON_TRIES):
                result = self._result(side, answer)
                if result[0] is not Ending.HUNG:
                    break
            if result != expected:
                return f"the {name} answer: {_shown(expected)} before, {_shown(result)} after"
        return None

    def _result(self, side: Side, answer: str) -> tuple[Ending, float]:
        outcome = side.ask(self._entry, answer)
        return outcome.ending, round(outcome.score, 9)


def _shown(result: tuple[Ending, float]) -> str:
    return f"{result[1]:g}" if result[0] is Ending.SCORED else result[0].value


def _judge_ending(side: Side, outcome: Outcome, found: Callable[[Hole, str, float], None]) -> None:
    if side.contains:
        if outcome.ending is Ending.ESCAPED:
            found(Hole.EXCEPTION, outcome.detail, 0.0)
        if outcome.seconds > side.deadline + _OVERTIME_SECONDS:
            found(Hole.HANG, "", round(outcome.seconds, 1))
        return
    if outcome.ending is Ending.HUNG:
        found(Hole.HANG, "", round(outcome.seconds, 1))
    if outcome.ending is Ending.DIED:
        found(Hole.CRASH, outcome.detail, 0.0)
    if outcome.ending is Ending.RAISED:
        found(Hole.EXCEPTION, outcome.detail, 0.0)
    if outcome.grown_mb > _GROWN_MB:
        found(Hole.MEMORY, "", float(outcome.grown_mb))


def _hidden_code_ran(side: Side, subjects: Sequence[Subject], payload: Payload) -> bool:
    def score(text: str | None, subject: Subject) -> float:
        return 0.0 if text is None else side.ask(subject.entry, text).score

    control = payload.control
    return all(
        score(payload.answer(subject), subject)
        > score(control(subject) if callable(control) else control, subject) + _HIDDEN_MARGIN
        for subject in subjects
    )


def _unearned_mean(side: Side, subjects: Sequence[Subject], payload: Payload, first: Outcome, enough: float) -> float:
    """Mean score over the items; items for which the text is correct count 0. Returns 0 if it cannot reach `enough`."""
    total = 0.0
    for asked, subject in enumerate(subjects):
        if total + len(subjects) - asked < enough * len(subjects):
            return 0.0
        text = payload.answer(subject)
        if text is None or is_same_answer(text, subject.oracle):
            continue
        outcome = first if asked == 0 else side.ask(subject.entry, text)
        if outcome.ending in (Ending.HUNG, Ending.DIED):
            return 0.0
        total += outcome.score
    return total / len(subjects)


def _oracle(entry: Mapping[str, Any], side: Side) -> str:
    if entry["answer"] is not None:
        return str(entry["answer"])
    shown = [value for value in entry["metadata"].values() if isinstance(value, (str, dict, list))]
    texts = [value if isinstance(value, str) else json.dumps(value, default=str) for value in shown]
    return max(["None", *texts], key=lambda text: side.ask(entry, text).score)
