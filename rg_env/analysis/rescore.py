"""Scores a recorded dump again with the current scorer, to find the scores that have changed.

Invariant: every rollout whose text and question were recorded is scored again as in training (format, guard, scorer in
its own process), and everything that does not depend on its group is compared. Groups that cannot be scored again are
counted. Memory holds a few groups at a time, whatever the size of the dump.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from rg_env.analysis.rejudge import Judge, Question, Scores
from rg_env.dump import Dump, GroupRecord, outcome_of
from rg_env.errors import DumpError
from rg_env.scoring import Verdict

_EXAMPLES = 3
_AHEAD = 4
"""Groups in progress per worker: enough that no worker waits."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The recorded and the new result of a rollout."""

    group_id: str
    task: str
    repetition: int
    old: Scores
    new: Scores

    @property
    def changed(self) -> bool:
        return not self.new.equals(self.old)


@dataclass
class TaskChanges:
    """The changes in one task.

    Attributes:
        raised, lowered: rollouts whose base score is now higher, lower.
        status, violation: rollouts whose status, violation has changed.
        changed: rollouts with any difference, including those in which only the raw or the tagged score differs.
        outcomes: groups whose outcome has changed.
        examples: ids of the first groups with a change.
    """

    task: str
    groups: int = 0
    rollouts: int = 0
    raised: int = 0
    lowered: int = 0
    status: int = 0
    violation: int = 0
    changed: int = 0
    outcomes: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, group: GroupRecord, compared: list[Comparison], solved_at: float) -> None:
        self.groups += 1
        self.rollouts += len(compared)
        changed = [one for one in compared if one.changed]
        self.raised += sum(one.new.base_score > one.old.base_score for one in changed)
        self.lowered += sum(one.new.base_score < one.old.base_score for one in changed)
        self.status += sum(one.new.status is not one.old.status for one in changed)
        self.violation += sum(one.new.violation is not one.old.violation for one in changed)
        self.changed += len(changed)
        self.outcomes += outcome_of(_base_scores(compared), solved_at) is not group.outcome
        if changed and len(self.examples) < _EXAMPLES:
            self.examples.append(group.group_id)


def _base_scores(compared: list[Comparison]) -> list[float]:
    return [one.new.base_score for one in compared if one.new.status.is_counted]


@dataclass
class Rescored:
    """The result.

    Attributes:
        tasks: by name.
        without_question: groups that were skipped because their lines do not contain the question (Atropos).
        without_settings: groups of attempts without a manifest, scored with the current default settings.
    """

    tasks: dict[str, TaskChanges] = field(default_factory=dict)
    without_question: int = 0
    without_settings: int = 0

    @property
    def changed(self) -> int:
        """Number of rollouts whose result has changed."""
        return sum(task.changed for task in self.tasks.values())


def rescore(
    dump: Dump,
    *,
    workers: int,
    timeout: float | None = None,
    each: Callable[[Comparison], object] = lambda _: None,
    advance: Callable[[int], None] = lambda _: None,
) -> Rescored:
    """Score every recorded response again.

    Args:
        dump: from `open_run`; all attempts are scored.
        workers: number of answers scored in parallel, at least 1.
        timeout: seconds per answer; None: as in the run.
        each: called with every rollout, in the order of the dump.
        advance: called with the number of rollouts scored since the last call.

    Raises:
        DumpError: no line contains its question, as in files written by Atropos.
        ScorerPoolError: scorers cannot be started.
    """
    result = Rescored()
    judge = Judge(dump, workers, timeout)
    with ThreadPoolExecutor(workers) as threads:
        for group, compared in _compare(dump, judge, threads, workers * _AHEAD, result):
            task = result.tasks.setdefault(group.task, TaskChanges(group.task))
            task.add(group, compared, judge.settings(group).config.solved_at)
            result.without_settings += not judge.knows_settings(group)
            for comparison in compared:
                each(comparison)
            advance(len(compared))
    if result.without_question and not result.tasks:
        raise DumpError(
            "nothing can be scored again: the lines do not contain their questions, as in files written by Atropos"
        )
    return result


def _compare(
    dump: Dump, judge: Judge, threads: ThreadPoolExecutor, ahead: int, result: Rescored
) -> Iterator[tuple[GroupRecord, list[Comparison]]]:
    waiting: deque[tuple[GroupRecord, list[Future[Verdict]]]] = deque()

    def take() -> tuple[GroupRecord, list[Comparison]]:
        group, verdicts = waiting.popleft()
        return group, [
            Comparison(group.group_id, group.task, old.repetition, Scores.of(old), Scores.of(new.result()))
            for old, new in zip(group.rollouts, verdicts, strict=True)
        ]

    for group in dump.groups(all_attempts=True):
        question = Question.of(group)
        if question is None:
            result.without_question += 1
            continue
        verdicts = [threads.submit(judge.verdict, group, question, rollout) for rollout in group.rollouts]
        waiting.append((group, verdicts))
        if len(waiting) >= ahead:
            yield take()
    while waiting:
        yield take()
