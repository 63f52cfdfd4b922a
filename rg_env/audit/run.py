"""One audit: every attack and every cheap policy, on `Scorer` as training uses it.

Invariants: no attack reaches the calling process; tasks are independent of each other. What an attack achieved:

| finding | when |
|---|---|
| code | an attack with code ended or stopped its process, or made the canary file |
| poison | afterwards, the correct answer or a wrong one has another score than before |
| free reward | the attack scored at least 0.5 on average without being correct (many answers in one text: 0.3); a policy that solves nothing scores over 0.2 more than the class prior |
| hang, crash, exception | the scorer used up its CPU time, its process died, or it raised: contained, so the answer scored 0 |

Without being correct: with two possible answers, a constant is correct half of the time, so items for which the attack's
text is the correct answer count 0. The class prior is the largest share of items on which one constant or frequent answer
is fully right; no scorer can prevent it. Policies are chosen and measured on different items.
"""  # noqa: E501

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rg_env.audit.attacks import Attack, Kind, Subject, attacks
from rg_env.audit.policies import Entry, Family, Policy, policies_for
from rg_env.errors import describe
from rg_env.scoring import AnswerScore, Scorer, Status
from rg_env.scoring.same_answer import is_same_answer
from rg_env.tasks import hash64, soundness_of, task_names
from rg_env.tasks.mix import TaskMix
from rg_env.tasks.upstream import UnusableItemError
from rg_env.tasks.upstream.dataset import UpstreamDataset

FREE_REWARD, MANY_IN_ONE_REWARD = 0.5, 0.3
FREE_MARGIN = 0.2
POLICY_ITEMS = 5
"""Policies get this many times the items of attacks."""
_SEED = 7
_MAX_REDRAWS = 100
_KEPT = 8
"""Number of policies that are measured, and again of those that do not read the question."""
_BLIND = frozenset({Family.CONSTANT, Family.MAJORITY})
_FULLY_RIGHT = 1 - 1e-9


class Hole(StrEnum):
    """What an attack achieved."""

    CODE = "code"
    POISON = "poison"
    FREE_REWARD = "free reward"
    HANG = "hang"
    CRASH = "crash"
    EXCEPTION = "exception"


CONTAINED = {Status.TIMEOUT: Hole.HANG, Status.CRASHED: Hole.CRASH, Status.ERROR: Hole.EXCEPTION}


@dataclass(frozen=True, slots=True)
class Hit:
    """An attack that achieved something; `value`: the mean score of a free reward."""

    hole: Hole
    attack: str
    text: str
    detail: str = ""
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class PolicyScores:
    """The scores of a policy: the mean, and the share of items on which its answer is fully right."""

    policy: str
    family: str
    mean: float
    right: float


@dataclass(frozen=True)
class TaskAudit:
    """The audit of one task.

    Attributes:
        counts: whether a hole makes the audit fail: the task was named, or is in the default mix.
        prior: the class prior.
        policy: the best policy; None if none scores above 0.
        problem: why the task could not be audited, in one line; else empty.
    """

    task: str
    counts: bool
    soundness: str
    hits: tuple[Hit, ...] = ()
    prior: float = 0.0
    policy: PolicyScores | None = None
    problem: str = ""

    @property
    def excess(self) -> float:
        """How much the best policy scores beyond the class prior, at least 0."""
        return max(0.0, self.policy.mean - self.prior) if self.policy is not None else 0.0

    @property
    def has_hole(self) -> bool:
        """Whether an answer can gain something, or nobody knows."""
        gained = any(hit.hole not in CONTAINED.values() for hit in self.hits)
        return gained or bool(self.problem) or self.excess > FREE_MARGIN


@dataclass(frozen=True)
class Audit:
    """A whole audit and its settings. `deadline`: CPU seconds per answer."""

    items: int
    deadline: float
    tasks: tuple[TaskAudit, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """Tasks that count and have a hole."""
        return tuple(task.task for task in self.tasks if task.counts and task.has_hole)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"failed": self.failed}


def run_audit(
    tasks: str | None = None,
    items: int = 20,
    quick: bool = False,
    deadline: float = 2.0,
    progress: Callable[[str, int, int], None] = lambda task, done, total: None,
) -> Audit:
    """Attack the scorers.

    Args:
        tasks: a task mix; None: every task, including those outside the default mix, which then do not count.
        items: per task, at least 1, for the attacks; policies get five times as many, or twice as many if `quick`.
        quick: use fewer attacks.
        deadline: CPU seconds per answer.
        progress: called before each task, and at the end.

    Raises:
        ConfigError: the mix is invalid.
        ScorerPoolError: scorer processes cannot be started.
    """
    default_mix = {task.name for task in TaskMix.parse(None).tasks}
    named = {task.name for task in TaskMix.parse(tasks).tasks} if tasks else default_mix
    names = sorted(named) if tasks else task_names()
    done = []
    with tempfile.TemporaryDirectory() as folder, closing(_Scorer(deadline)) as scorer:
        for number, task in enumerate(names):
            progress(task, number, len(names))
            facts = (task, task in named, soundness_of(task).value)
            try:
                entries = _entries(task, items * (2 if quick else POLICY_ITEMS))
            except _CannotAuditError as error:
                done.append(TaskAudit(*facts, problem=str(error)))
                continue
            subjects = _subjects(entries[:items], scorer, f"{folder}/canary")
            reference = _Reference(scorer, subjects)
            hits = [hit for attack in attacks(quick) for hit in _attack(scorer, subjects, attack, reference)]
            done.append(TaskAudit(*facts, tuple(hits), *_best_policy(task, entries, scorer)))
        progress("", len(names), len(names))
    return Audit(items, deadline, tuple(done))


class _Scorer:
    """A `Scorer` with one worker process, which sees all answers, and can be replaced by a new one."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._scorer = Scorer(workers=1, timeout=deadline)

    def score(self, entry: Entry, answer: str) -> AnswerScore:
        return self._scorer.score_answer(entry, answer)

    def renew(self) -> None:
        """Discard all effects that answers may have had."""
        self.close()
        self._scorer = Scorer(workers=1, timeout=self._deadline)

    def close(self) -> None:
        self._scorer.close()


class _CannotAuditError(Exception):
    """A task generates no items."""


def _entries(task: str, items: int) -> list[dict[str, Any]]:
    dataset = UpstreamDataset(task, {})
    made: list[dict[str, Any]] = []
    for draw in range(items + _MAX_REDRAWS):
        try:
            made.append(dataset.make(hash64("audit", task, _SEED, draw) % 2**32))
        except UnusableItemError:
            continue
        except Exception as error:
            raise _CannotAuditError(describe(error)) from error
        if len(made) == items:
            break
    if len(made) < 2:
        raise _CannotAuditError("it generates no items")
    return made


def _subjects(entries: Sequence[Entry], scorer: _Scorer, canary: str) -> list[Subject]:
    """The items with their correct answers: the task's or, if that is None, the best value in the metadata."""

    def oracle(entry: Entry) -> str:
        if entry["answer"] is not None:
            return str(entry["answer"])
        shown = [value for value in entry["metadata"].values() if isinstance(value, (str, dict, list))]
        texts = [value if isinstance(value, str) else json.dumps(value, default=str) for value in shown]
        return max(["None", *texts], key=lambda text: scorer.score(entry, text).score)

    oracles = [oracle(entry) for entry in entries]
    distinct = list(dict.fromkeys(oracles))
    return [Subject(entry, oracle, distinct, canary) for entry, oracle in zip(entries, oracles, strict=True)]


class _Reference:
    """The scores of a correct and a wrong answer before any attack, for comparison."""

    def __init__(self, scorer: _Scorer, subjects: Sequence[Subject]) -> None:
        self._scorer, self._entry = scorer, subjects[0].entry
        others = ["0", "wrong", *(subject.oracle for subject in subjects[1:4])]
        wrong = min(others, key=lambda text: scorer.score(self._entry, text).score)
        self._expected = {answer: self._result(answer) for answer in (subjects[0].oracle, wrong)}

    def changed(self) -> str | None:
        """Describe what has changed; None if nothing has."""
        for answer, expected in self._expected.items():
            if (result := self._result(answer)) != expected:
                return f"{answer[:40]!r} scored {expected[1]:g} before and {result[1]:g} after"
        return None

    def _result(self, answer: str) -> tuple[Status, float]:
        scored = self._scorer.score(self._entry, answer)
        return scored.status, round(scored.score, 9)


def _attack(scorer: _Scorer, subjects: Sequence[Subject], attack: Attack, reference: _Reference) -> list[Hit]:
    """Try one attack on the first item and, unless it does harm, on all items."""
    first = subjects[0]
    text = attack.answer(first)
    if text is None:
        return []
    hits: list[Hit] = []

    def hit(hole: Hole, detail: str = "", value: float = 0.0) -> None:
        hits.append(Hit(hole, attack.name, text[:120], detail[:200], value))

    outcome = scorer.score(first.entry, text)
    if contained := CONTAINED.get(outcome.status):
        hit(contained, outcome.detail)
    ended = outcome.status in (Status.TIMEOUT, Status.CRASHED)
    if attack.kind is Kind.CODE and (ended or _is_touched(first.canary)):
        hit(Hole.CODE, outcome.status.value)
    if changed := reference.changed():
        hit(Hole.POISON, changed)
        scorer.renew()
    elif not ended and attack.kind is not Kind.CODE:
        enough = MANY_IN_ONE_REWARD if attack.kind is Kind.MANY else FREE_REWARD
        if (mean := _mean_when_wrong(scorer, subjects, attack, outcome, enough)) >= enough:
            hit(Hole.FREE_REWARD, f"mean of {len(subjects)} items", round(mean, 3))
    return hits


def _mean_when_wrong(
    scorer: _Scorer, subjects: Sequence[Subject], attack: Attack, first: AnswerScore, enough: float
) -> float:
    """Mean score over the items; items for which the text is correct count 0. Returns 0 if it cannot reach `enough`."""
    total = 0.0
    for asked, subject in enumerate(subjects):
        if total + len(subjects) - asked < enough * len(subjects):
            return 0.0
        text = attack.answer(subject)
        if text is not None and not is_same_answer(text, subject.oracle):
            total += (first if asked == 0 else scorer.score(subject.entry, text)).score
    return total / len(subjects)


def _is_touched(canary: str) -> bool:
    """Whether the canary exists; removes it."""
    with suppress(FileNotFoundError):
        Path(canary).unlink()
        return True
    return False


def _best_policy(task: str, entries: Sequence[Entry], scorer: _Scorer) -> tuple[float, PolicyScores | None]:
    """The class prior, and the best policy: chosen on up to a fifth of the items, measured on the others."""
    screened = max(1, min(8, len(entries) // 5))
    known, asked = entries[:screened], entries[screened:]
    policies = policies_for(task, [str(entry["answer"]) for entry in known if entry["answer"] is not None])
    ranked = sorted(policies, key=lambda policy: -_tried(scorer, policy, known).mean)
    blind = [policy for policy in ranked if policy.family in _BLIND]
    chosen = dict.fromkeys([*ranked[:_KEPT], *blind[:_KEPT]])
    results = [_tried(scorer, policy, asked) for policy in chosen]
    best = max(results, key=lambda result: result.mean)
    return max(result.right for result in results if result.family in _BLIND), best if best.mean > 0 else None


def _tried(scorer: _Scorer, policy: Policy, entries: Sequence[Entry]) -> PolicyScores:
    answers = [policy.answer(entry) for entry in entries]
    scores = [
        0.0 if answer is None else scorer.score(entry, answer).score
        for entry, answer in zip(entries, answers, strict=True)
    ]
    right = sum(score >= _FULLY_RIGHT for score in scores)
    return PolicyScores(policy.name, policy.family.value, sum(scores) / len(scores), right / len(scores))
