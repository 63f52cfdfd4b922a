"""Scores recorded responses again with today's code, to find what has changed: in a dump, or in one group's values.

Invariant: the new record of a group is made by the functions that training uses (`Scorer.score_response`,
`group_rewards`, `rollout_record`), from what its line contains and the settings in the run's manifest; the recorded
verdict does not affect it. Memory holds a few groups at a time, whatever the size of the dump.
Not covered: groups without text; Atropos' files, whose lines lack the question; the user's reward function, whose
recorded values are used again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.dump import Dump, GroupRecord, Phase, RolloutRecord, has_no_signal, outcome_of
from rg_env.dump.run_settings import RunSettings, default_settings, settings_of_attempts
from rg_env.dump.schema import answered
from rg_env.dump.strings import unescape
from rg_env.errors import ConfigError, DumpError
from rg_env.rewards import RewardFunction, Rollout, group_rewards
from rg_env.rollouts.group import rollout_record
from rg_env.scoring import Status, Verdict, parse_response, shared_scorer
from rg_env.tasks.entry_json import decode_entry
from rg_env.tasks.registry import check_name
from rg_env.user_code import UserCodeError, import_modules

OF_RESPONSE = ("violation", "answer", "status", "raw_score", "tagged_score", "base_score")
"""The values of a rollout that depend only on its response, in the order in which they are computed."""
OF_GROUP = ("penalty_factor", "score", "reward")
"""The values that depend on the group and on the length limit, too."""
COMPARED = tuple(name for name in OF_RESPONSE if name != "answer")
"""The values by which a rollout counts as changed."""
_EXAMPLES = 3
_AHEAD = 4
"""Groups in progress per worker: enough that no worker waits."""

Question = tuple[Mapping[str, Any], Mapping[str, Any] | None]
"""Reasoning Gym's entry, and the task's options; None if all have their defaults."""


def same(one: object, other: object) -> bool:
    """Whether two values of a record are equal, numbers up to rounding."""
    if isinstance(one, float) and isinstance(other, (int, float)):
        return abs(one - other) <= 1e-9
    return one == other


def question_of(group: GroupRecord) -> Question | None:
    """The group's question; None if its line does not contain it, as in Atropos' files."""
    try:
        entry, config = decode_entry(group.entry), decode_entry(group.task_config)
        known = isinstance(entry["metadata"]["source_dataset"], str) and isinstance(config, Mapping)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (entry, config or None) if known else None


class Rescorer:
    """Today's scorer with the settings of each run. Thread-safe.

    Args:
        dump: contains the groups.
        workers: number of answers scored at the same time.
        timeout: seconds per answer; None: as in the run.
    """

    def __init__(self, dump: Dump, workers: int = 1, timeout: float | None = None) -> None:
        self._settings = settings_of_attempts(dump.runs)
        self._defaults = default_settings()
        self._workers, self._timeout = workers, timeout
        self._not_imported = _import_tasks(self._settings.values())
        self._known: set[str] = set()

    def settings(self, group: GroupRecord) -> RunSettings:
        """The settings of the group's attempt; the current defaults if no manifest has them."""
        return self._settings.get((group.run_id, group.attempt), self._defaults)

    def knows_settings(self, group: GroupRecord) -> bool:
        """Whether a manifest has the settings of the group's attempt."""
        return (group.run_id, group.attempt) in self._settings

    def knows_penalty(self, group: GroupRecord) -> bool:
        """Whether the penalty can be computed: a length limit is known, or there is no penalty."""
        config = self.settings(group).config.length_penalty
        return self._limit(group) is not None or group.phase != Phase.TRAIN or config.kind == "none"

    def _verdict(self, group: GroupRecord, question: Question, rollout: RolloutRecord) -> Verdict:
        """Judge one of the group's responses. No response and an unscorable one remain what they are."""
        config = self.settings(group).config
        if rollout.status is Status.NO_RESPONSE:
            return Verdict.no_response(rollout.detail)
        if rollout.status is Status.UNSCORABLE:
            parsed = parse_response(rollout.response, config.prefilled_think, format=config.format)
            return Verdict.unscorable(parsed, rollout.detail)
        timeout = config.scorer.timeout if self._timeout is None else self._timeout
        settings = replace(config.scorer, workers=self._workers, timeout=timeout)
        entry, options = question
        return shared_scorer(settings).score_response(
            entry, rollout.response, options, config.prefilled_think, config.format
        )

    def _need_task(self, task: str) -> None:
        if task not in self._known:
            try:
                check_name(task)
            except ConfigError as error:
                why = self._not_imported or str(error)
                raise ConfigError(f"task {task} cannot be scored: {why}; name its module with --imports") from None
            self._known.add(task)

    def again(self, group: GroupRecord, question: Question) -> GroupRecord:
        """The group's record as today's code makes it; without the penalty if that cannot be computed.

        Raises:
            ScorerPoolError: the scorer's processes cannot be started.
            ConfigError: there is no such task, so its answers cannot be scored.
        """
        self._need_task(group.task)
        verdicts = [self._verdict(group, question, rollout) for rollout in group.rollouts]
        settings = self.settings(group)
        judged = [
            Rollout(verdict, old.response_tokens, old.stop_reason, old.conversation, old.repetition)
            for verdict, old in zip(verdicts, group.rollouts, strict=True)
        ]
        rewards = group_rewards(
            judged,
            settings.config,
            max_length=self._limit(group) or 1,
            penalize=group.phase == Phase.TRAIN and self.knows_penalty(group),
            zero_on_non_stop=settings.zero_reward_on_non_stop,
            reward_function=_recorded(group.rollouts),
        )
        rollouts = [rollout_record(*pair, None) for pair in zip(judged, rewards, strict=True)]
        counted = answered(rollouts)
        return replace(
            group,
            rollouts=rollouts,
            baseline=max((verdict.scored.baseline for verdict in verdicts), default=0.0),
            outcome=outcome_of([rollout.base_score for rollout in counted], settings.config.solved_at),
            no_signal=has_no_signal([rollout.reward for rollout in counted]),
        )

    def remarks(self, group: GroupRecord) -> Iterator[str]:
        """What is unknown about the group's settings."""
        if not self.knows_settings(group):
            yield "no manifest for this attempt; using the current default settings"
        elif absent := self.settings(group).absent:
            yield f"not in the manifest, using the current defaults: {', '.join(absent)}"
        if not self.knows_penalty(group):
            yield "the length limit is unknown; penalty, score and reward are not compared"

    def _limit(self, group: GroupRecord) -> int | None:
        settings = self.settings(group)
        return settings.config.length_penalty.max_length or settings.max_generate_length


def _recorded(rollouts: Sequence[RolloutRecord]) -> RewardFunction | None:
    """A reward function that returns what the user's returned in the run, and fails where that failed."""
    if all(rollout.custom_reward is None and rollout.status is not Status.REWARD_ERROR for rollout in rollouts):
        return None
    values = [rollout.custom_reward for rollout in rollouts if rollout.custom_reward is not None]
    return lambda _: values


# -- one group


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a record.

    Attributes:
        compared: whether the two can be compared.
    """

    name: str
    recorded: Any
    now: Any
    compared: bool = True

    @property
    def differs(self) -> bool:
        return self.compared and not same(self.now, self.recorded)


@dataclass(frozen=True, slots=True)
class RescoredGroup:
    """A group scored again.

    Attributes:
        question: Reasoning Gym's entry.
        rollouts: the values of each rollout, in the group's order, from the response to the reward.
        values: those of the group as a whole.
        remarks: what is unknown.
    """

    group: GroupRecord
    question: Mapping[str, Any]
    rollouts: Sequence[Sequence[Value]]
    values: Sequence[Value]
    remarks: Sequence[str]

    @property
    def differences(self) -> int:
        return sum(value.differs for values in (self.values, *self.rollouts) for value in values)


def rescore_group(dump: Dump, name: str, *, timeout: float | None = None) -> RescoredGroup:
    """Score one group again.

    Args:
        dump: from `open_run`.
        name: the group's id, or its unique beginning or end.
        timeout: seconds per answer; None: as in the run.

    Raises:
        DumpError: no group or several match, its text was not kept, or its line does not contain the question.
    """
    group, rescorer = find_group(dump, name), Rescorer(dump, timeout=timeout)
    question = question_of(group)
    if question is None:
        raise DumpError(f"group {group.group_id} cannot be scored again: its line does not contain the question")
    new = rescorer.again(group, question)
    known = rescorer.knows_penalty(group)

    def values(old: object, now: object, names: Iterable[str], compared: bool = True) -> list[Value]:
        return [Value(name, getattr(old, name), getattr(now, name), compared) for name in names]

    rollouts = [
        [
            *values(old, now, OF_RESPONSE),
            *values(old, now, ("detail",) if old.detail or now.detail else (), compared=False),
            *values(old, now, OF_GROUP, compared=known),
        ]
        for old, now in zip(group.rollouts, new.rollouts, strict=True)
    ]
    of_group = [*values(group, new, ("baseline", "outcome")), *values(group, new, ("no_signal",), compared=known)]
    return RescoredGroup(group, question[0], rollouts, of_group, list(rescorer.remarks(group)))


def find_group(dump: Dump, name: str) -> GroupRecord:
    """The group with this id, or the only one whose id begins or ends with it.

    Raises:
        DumpError: no group or several, with some of their ids; or the text was not kept.
    """
    groups = dump.scan(all_attempts=True).select("group_id", "text_reason").unique(maintain_order=True)
    known = {unescape(group_id): why for group_id, why in groups.collect(engine="streaming").iter_rows()}
    fitting = [name] if name in known else [one for one in known if one.startswith(name) or one.endswith(name)]
    if len(fitting) != 1:
        some = ", ".join((fitting or list(known))[:4])
        raise DumpError(f"{len(fitting)} groups match {name!r}; there are {some}{', …' if len(known) > 4 else ''}")
    (group_id,) = fitting
    if known[group_id] is not None:
        raise DumpError(f"the text of group {group_id} was not kept ({known[group_id]})")
    for group in dump.groups(ids=[group_id], all_attempts=True):
        return group
    raise DumpError(f"the text of group {group_id} is missing: see `rg-env dumps validate`")


# -- a whole dump


@dataclass
class TaskChanges:
    """The changes in one task.

    Attributes:
        raised, lowered: rollouts whose base score is now higher, lower.
        changed: rollouts with any difference, including those in which only the raw or the tagged score differs.
        outcomes: groups whose outcome has changed.
        examples: ids of the first groups with a change.
    """

    task: str
    groups: int = 0
    rollouts: int = 0
    raised: int = 0
    lowered: int = 0
    changed: int = 0
    outcomes: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, old: GroupRecord, new: GroupRecord) -> None:
        pairs = [pair for pair in zip(old.rollouts, new.rollouts, strict=True) if has_changed(*pair)]
        self.groups += 1
        self.rollouts += len(old.rollouts)
        self.raised += sum(now.base_score > was.base_score for was, now in pairs)
        self.lowered += sum(now.base_score < was.base_score for was, now in pairs)
        self.changed += len(pairs)
        self.outcomes += new.outcome is not old.outcome
        if pairs and len(self.examples) < _EXAMPLES:
            self.examples.append(old.group_id)


def has_changed(old: RolloutRecord, new: RolloutRecord) -> bool:
    """Whether a value of `COMPARED` differs."""
    return not all(same(getattr(old, name), getattr(new, name)) for name in COMPARED)


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
    each: Callable[[GroupRecord, GroupRecord], object] = lambda old, new: None,
) -> Rescored:
    """Score every recorded response again.

    Args:
        dump: from `open_run`; all attempts are scored.
        workers: number of answers scored in parallel, at least 1.
        timeout: seconds per answer; None: as in the run.
        each: called with the recorded and the new record of every group, in the order of the dump.

    Raises:
        DumpError: no line contains its question, as in files written by Atropos.
        ScorerPoolError: scorers cannot be started.
    """
    result, rescorer = Rescored(), Rescorer(dump, workers, timeout)
    waiting: deque[tuple[GroupRecord, Future[GroupRecord]]] = deque()

    def take() -> None:
        old, new = waiting[0][0], waiting.popleft()[1].result()
        result.tasks.setdefault(old.task, TaskChanges(old.task)).add(old, new)
        result.without_settings += not rescorer.knows_settings(old)
        each(old, new)

    with ThreadPoolExecutor(workers) as threads:
        for group in dump.groups(all_attempts=True):
            if (question := question_of(group)) is None:
                result.without_question += 1
                continue
            waiting.append((group, threads.submit(rescorer.again, group, question)))
            if len(waiting) >= workers * _AHEAD:
                take()
        while waiting:
            take()
    if result.without_question and not result.tasks:
        raise DumpError(
            "nothing can be scored again: the lines do not contain their questions, as in files written by Atropos"
        )
    return result


def _import_tasks(runs: Iterable[RunSettings]) -> str:
    """Import the modules with tasks that the runs imported. Returns why that failed, or an empty string."""
    modules = dict.fromkeys(name for run in runs for name in run.config.imports)
    try:
        import_modules(RGDumpConfig(imports=list(modules)))
    except UserCodeError as error:
        return str(error)
    return ""
