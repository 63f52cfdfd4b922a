"""Scores the recorded responses of a dump again with today's code, to find what has changed.

Invariant: a response is judged by the functions that training uses, from what its line contains and the settings in
the run's manifest; the recorded verdict does not affect it. A dump is data: no module that it names is imported.
Memory holds a few groups at a time, whatever the size of the dump.
Not covered: groups without text or question; rewards, which depend on the user's reward function and on the penalty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

from rg_env.base.errors import ConfigError, DumpError
from rg_env.base.wording import visible
from rg_env.configuration.user_code import named_modules
from rg_env.dump import Dump, GroupRecord, RolloutRecord, outcome_of
from rg_env.dump.schema import RG_DUMP, answered
from rg_env.rollouts.judge import Judge
from rg_env.scoring import Status
from rg_env.scoring.file_scorers import file_question
from rg_env.tasks.entry_json import decode_entry
from rg_env.tasks.registry import check_name

COMPARED = ("violation", "status", "raw_score", "tagged_score", "base_score")
"""The values by which a rollout counts as changed."""
_EXAMPLES = 3
_AHEAD = 4
"""Groups in progress per worker: enough that no worker waits."""


@dataclass
class TaskChanges:
    """The changes in one task.

    Attributes:
        raised, lowered: rollouts whose base score is now higher, lower.
        newly_scored: rollouts that had no score (status unscored).
        changed: rollouts with any difference, including those in which only the raw or the tagged score differs.
        outcomes: groups whose outcome has changed; 0 if conditions may have removed some of their rollouts.
        examples: ids of the first groups with a change.
    """

    task: str
    groups: int = 0
    rollouts: int = 0
    raised: int = 0
    lowered: int = 0
    newly_scored: int = 0
    changed: int = 0
    outcomes: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, group: GroupRecord, scored: Sequence[RolloutRecord], solved_at: float, *, whole: bool) -> None:
        """Count a group, and the differences between its rollouts and the same ones `scored` again, in one order."""
        self.groups += 1
        self.rollouts += len(scored)
        changed = 0
        for old, new in zip(group.rollouts, scored, strict=True):
            if not has_changed(old, new):
                continue
            changed += 1
            # Neither, if a score is NaN.
            if new.base_score > old.base_score:
                self.raised += 1
            elif new.base_score < old.base_score:
                self.lowered += 1
            if old.status is Status.UNSCORED:
                self.newly_scored += 1
        self.changed += changed
        outcome = outcome_of([rollout.base_score for rollout in answered(scored)], solved_at)
        # Of a part of a group the outcome would be another one for that reason alone.
        if whole and outcome != group.outcome:
            self.outcomes += 1
        if changed and len(self.examples) < _EXAMPLES:
            self.examples.append(group.group_id)


def has_changed(old: RolloutRecord, new: RolloutRecord) -> bool:
    """Return whether a value of `COMPARED` differs, numbers by more than rounding. Imports have status and base score
    only."""
    imported = old.raw_score is None and old.status is Status.OK and not old.violation
    # An import never had raw and tagged scores: having them now is not a change.
    names = ("status", "base_score") if imported else COMPARED
    return any(differ(getattr(old, name), getattr(new, name)) for name in names)


def differ(old: object, new: object) -> bool:
    """Return whether two values differ, numbers by more than rounding."""
    if isinstance(old, float) and isinstance(new, float) and abs(old - new) <= 1e-9:
        return False
    return old != new


@dataclass
class Rescored:
    """The result.

    Attributes:
        tasks: by name.
        without_question: groups that were skipped because their lines do not contain the question.
        without_settings: groups of attempts whose settings are unknown, scored with the current defaults.
        lenient: those of them that are imports or of another environment, scored in the lenient format.
    """

    tasks: dict[str, TaskChanges] = field(default_factory=dict)
    without_question: int = 0
    without_settings: int = 0
    lenient: int = 0

    @property
    def changed(self) -> int:
        """Number of rollouts whose result has changed."""
        return sum(task.changed for task in self.tasks.values())


def rescore(
    dump: Dump,
    *,
    workers: int,
    timeout: float | None = None,
    each: Callable[[GroupRecord, Sequence[RolloutRecord]], object] = lambda group, scored: None,
    only: Container[str] | None = None,
) -> Rescored:
    """Score every recorded response again.

    Args:
        dump: from `open_run`; all attempts are scored.
        workers: number of answers scored in parallel, at least 1.
        timeout: seconds per answer; None: as in the run.
        each: called with every group, and its rollouts with the values of `COMPARED` that they have now, in the order
            of the dump.
        only: ids of groups; the others are skipped and not counted. None: all are scored.
    """
    result = Rescored()
    waiting: deque[tuple[GroupRecord, Future[list[RolloutRecord]]]] = deque()

    def take() -> None:
        group, future = waiting.popleft()
        scored = future.result()
        changes = result.tasks.setdefault(group.task, TaskChanges(group.task))
        changes.add(group, scored, dump.solved_at(group), whole=dump.whole_groups)
        each(group, scored)

    # The threads only wait: the scoring is done by the scorer's processes.
    with ThreadPoolExecutor(workers) as threads:
        for group in dump.all_attempts().groups():
            if only is not None and group.group_id not in only:
                continue
            question = question_of(group)
            if question is None:
                result.without_question += 1
                continue
            # The first group of a task; called for its exception, before any answer of the task is scored.
            if group.task not in result.tasks:
                _check_scorer(dump, group.task, question.entry)
                result.tasks[group.task] = TaskChanges(group.task)
            is_unknown = (group.run_id, group.attempt) not in dump.settings
            if is_unknown:
                result.without_settings += 1
                if group.environment != RG_DUMP:
                    result.lenient += 1
            config = dump.settings_for(group)
            seconds = timeout
            if seconds is None:
                seconds = config.scorer.timeout
            # Groups of equal settings share one scorer, and with it the processes.
            scorer = replace(config.scorer, workers=workers, timeout=seconds)
            future = threads.submit(_score_again, group, question, Judge(replace(config, scorer=scorer)))
            waiting.append((group, future))
            # Groups are taken in the order of the dump, and no more of them are read than the workers need.
            if len(waiting) >= workers * _AHEAD:
                take()
        while waiting:
            take()
    if result.without_question and not result.tasks:
        raise DumpError("nothing can be scored again: the lines do not contain their questions")
    return result


class RecordedQuestion(NamedTuple):
    """An entry, and the options of its task, None for the defaults."""

    entry: Mapping[str, Any]
    config: Mapping[str, Any] | None


def question_of(group: GroupRecord) -> RecordedQuestion | None:
    """Return the question of a group; None if its line does not have it."""
    try:
        entry, config = decode_entry(group.entry), decode_entry(group.task_config)
        # An entry may lack the name of its task, which the group has.
        metadata = {"source_dataset": group.task, **entry["metadata"]}
        whole = isinstance(entry["question"], str) and isinstance(metadata["source_dataset"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not whole or not isinstance(config, Mapping):
        return None
    return RecordedQuestion({**entry, "metadata": metadata}, config or None)


def _score_again(
    group: GroupRecord,
    question: RecordedQuestion,
    judge: Judge,
) -> list[RolloutRecord]:
    scored = []
    for rollout in group.rollouts:
        if rollout.status is Status.NO_RESPONSE:  # there is nothing to score
            scored.append(rollout)
            continue
        verdict = judge.score_blocking(question, rollout.response)
        status = verdict.scored.status
        if status is Status.OK and rollout.status is Status.REWARD_ERROR:  # the user's function is not called
            status = Status.REWARD_ERROR
        new = {
            "violation": verdict.parsed.violation or "",
            "status": status,
            "raw_score": verdict.scored.raw,
            "tagged_score": verdict.scored.tagged,
            "base_score": verdict.scored.score,
        }
        scored.append(msgspec.structs.replace(rollout, **new))
    return scored


def _check_scorer(dump: Dump, task: str, entry: Mapping[str, Any]) -> None:
    """Refuse a question whose answers this process cannot score."""
    question = file_question(entry)
    if isinstance(question, str):
        raise ConfigError(visible(f"cannot score {task}: {question}", one_line=True))
    if question is None:
        _check_task(dump, task)


def _check_task(dump: Dump, task: str) -> None:
    """Refuse a task that this process does not know, with the modules that the dump names."""
    try:
        check_name(task)
    except ConfigError:
        modules: dict[str, None] = {}  # each once, in the order of the attempts
        for config in dump.settings.values():
            modules |= dict.fromkeys(named_modules(config))
        hint = "its manifest names no module"
        if modules:
            hint = f"the run imported {', '.join(modules)}"
        message = (
            f"cannot score {task}: not a task of Reasoning Gym, and what a dump names is not imported by itself "
            f"({hint}): add --imports MODULE for each module that you trust"
        )
        raise ConfigError(visible(message, one_line=True)) from None
