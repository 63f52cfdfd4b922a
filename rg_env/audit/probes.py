"""What counts as a hole, and how one is looked for. The same rules for both sides.

| hole | found when |
|---|---|
| code | an answer ended its process or slept, made the canary file, or earned more for the right answer hidden in code than for a wrong one hidden the same way |
| poison | after it, the right answer or a wrong one scores other than before |
| hang | no score by the deadline; of `rg_env`, which promises to end them: not by the deadline + 1 s |
| memory | the scorer's process grew by more than 256 MiB; of `rg_env`, which bounds them: never |
| crash | the scorer's process died; of `rg_env`, which replaces them: never |
| exception | the scorer raised; of `rg_env`: an exception reached the caller |
| free reward | the same attack earned at least 0.5 on average (many answers in one text: 0.3), where it is not simply right |

"Simply right": an answer of two possible ones is right half of the time. So where the attack's text is the item's right
answer, the item counts 0. Why 0.3 for many answers in one: no such text is an answer, and `Yes No` earns one for every
second item or so. Below 0.5 lies what one fixed answer earns on tasks with many right ones: `P ∧ Q` follows from 0.43 of
propositional_logic's premises.
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rg_env.audit.payloads import Kind, Payload, Subject
from rg_env.audit.sides import Ending, Outcome, Side, is_touched

FREE_REWARD = 0.5
"""Mean score from which a text that is no answer is a hole."""
_MANY_IN_ONE_REWARD = 0.3
"""The same, for a text of many answers."""
_GROWN_MB = 256
_OVERTIME_SECONDS = 1.0
_PATIENT_TRIES = 10
"""A scorer that answers late is asked again: a busy machine is no poison, and poison does not wear off."""
_HIDDEN_ON = 3
"""On so many items code must have earned a reward to be believed; one may be chance."""
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
    """The items with their right answers: upstream's, or where that is None the best of what the metadata hold."""
    oracles = [_oracle(entry, side) for entry in entries]
    distinct = list(dict.fromkeys(oracles))
    return [Subject(entry, oracle, distinct, canary) for entry, oracle in zip(entries, oracles, strict=True)]


def probe(side: Side, subjects: Sequence[Subject], payload: Payload, reference: Reference) -> list[Finding]:
    """Try one payload: on the first item, then, where it does no harm, on all."""
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
            found(Hole.CODE, "the right answer, hidden in code, scored")
        enough = _MANY_IN_ONE_REWARD if payload.kind is Kind.SUBSTRING else FREE_REWARD
        mean = _unearned_mean(side, subjects, payload, outcome, enough)
        if mean >= enough and payload.kind is not Kind.CODE:
            found(Hole.FREE_REWARD, f"mean of {len(subjects)} items", round(mean, 3))
    return list(findings.values())


class Reference:
    """The scores of a right and a wrong answer on an untouched scorer, to be compared with later ones."""

    def __init__(self, side: Side, subjects: Sequence[Subject]) -> None:
        self._entry = subjects[0].entry
        wrong = min(
            ["0", "wrong", *(subject.oracle for subject in subjects[1:4])],
            key=lambda text: side.ask(self._entry, text).score,
        )
        self._answers = (subjects[0].oracle, wrong)
        self._expected = [self._result(side, answer) for answer in self._answers]

    def changed(self, side: Side) -> str | None:
        """What is different now, or None."""
        for name, answer, expected in zip(("right", "wrong"), self._answers, self._expected, strict=True):
            for _ in range(_PATIENT_TRIES):
                result = self._result(side, answer)
                if result[0] is not Ending.HUNG:
                    break
            if result != expected:
                return f"the {name} answer: {_said(expected)} before, {_said(result)} after"
        return None

    def _result(self, side: Side, answer: str) -> tuple[Ending, float]:
        outcome = side.ask(self._entry, answer)
        return outcome.ending, round(outcome.score, 9)


def _said(result: tuple[Ending, float]) -> str:
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
    """Mean score over the items, those counting 0 for which the text is right; 0 as soon as it cannot be `enough`."""
    total = 0.0
    for asked, subject in enumerate(subjects):
        if total + len(subjects) - asked < enough * len(subjects):
            return 0.0
        text = payload.answer(subject)
        if text is None or _normal(text) == _normal(subject.oracle):
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


def _normal(text: str) -> str:
    return "".join(text.split()).casefold()
