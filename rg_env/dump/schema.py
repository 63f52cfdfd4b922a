"""The records of a run as dataclasses: groups of rollouts, their short form in the ledger, and what was trained on.

Invariant: everything about rollout *k* (text, scores, reward) is in one object, so that texts and numbers cannot be
misaligned; a group's outcome is decided on base scores, before any penalty.

A field is named here and nowhere else: the lines of files, their types and the columns of frames follow from it
(`rg_env.dump.codec`). To add a value, add a field to `RolloutFacts` or `GroupFacts`: it is then in text files, ledger
and frames. Its default, if it has one, is the value for lines without the key. A kind of record is an entry of
`FileKind`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, StrEnum
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Self, get_args, get_type_hints

from rg_env.scoring.base_score import base_score
from rg_env.scoring.types import Status, Violation

SCHEMA_VERSION = 1
"""Version of the line formats. Plain Atropos lines, which carry none, count as 0."""

Message = dict[str, str]
"""A message of a conversation, with the keys `MESSAGE_KEYS`."""
MESSAGE_KEYS = ("role", "content")

VITAL = frozenset(("schema_version", "outcome", "no_signal", "base_score", "violation", "status"))
"""Fields that numbers depend on. A line in which one of these is damaged is skipped, whatever a reader asks for. Any
other damaged value counts as missing."""


Place = tuple[int, int]
"""Where a text is in the files of its kind: the number of the file, and the byte at which its line begins."""


class Mark(Enum):
    """What the type of a field does not express."""

    COLUMNS = "records that a line holds as one list per field"
    SHARE = "in [0, 1] in groups of rg_dump; any number in those of another environment"
    RG_DUMP = "only groups of rg_dump have it; in those of another environment it has its default"


Json = str
"""A string that holds JSON."""
Share = Annotated[float, Mark.SHARE]
RG_DUMP = "rg_dump"
"""The environment whose groups are checked in full. Those of another have `task`, `score` and `reward` as it gave them,
any number of turns and roles, and the defaults of the fields with `Mark.RG_DUMP`."""


class BadLineError(ValueError):
    """A line that is not a record; the message says why."""


class FaultyRecordError(BadLineError):
    """A record of the right types that no run can have written."""


class Phase(StrEnum):
    """What a group was generated for."""

    TRAIN = "train"
    EVAL = "eval"


class Outcome(StrEnum):
    """The result of a group by its base scores; exactly one applies."""

    ALL_CORRECT = "all_correct"
    ALL_FAILED = "all_failed"
    MIXED = "mixed"


class NotKept(StrEnum):
    """Why the ledger has a group whose text is in no file."""

    ROLLOUTS_OFF = "dump_rollouts_off"
    FAILED_OFF = "dump_failed_rollouts_off"
    OTHER_OFF = "dump_other_rollouts_off"
    """No base score is above the threshold, yet not all are 0: the group fits neither of Atropos' two files."""
    EVAL_OFF = "dump_eval_rollouts_off"
    NO_ROLLOUTS = "no_rollouts"
    NO_RESPONSES = "no_responses"
    """Every request of the group failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFacts:
    """One response without its text, as in the ledger.

    Attributes:
        repetition: number of the sample within its group, from 0.
        score: base_score × penalty_factor, in [0, 1].
        reward: what `generate()` handed back to SkyRL; may be negative.
        base_score: computed from raw score, tagged score and the group's baseline (`rg_env.scoring.base_score`), in
            [0, 1]; 0 on a violation or a status other than ok.
        raw_score: score of the bare answer, in [0, 1]; None if nothing was scored.
        tagged_score: score of `<answer>…</answer>`, in [0, 1]; None if nothing was scored.
        violation: what is wrong with the format, or None.
        status: how scoring ended.
        response_tokens: length of the response in tokens; None in Atropos' files.
        stop_reason: as SkyRL gives it (`stop`, `length`, …).
        truncated: True when the response hit the length limit.
        penalty_factor: in [0, 1]; 1 where no penalty applied.
        policy_version: the weights that generated it, where SkyRL knows.
        normalized: the score is that of another form of the answer, which `detail` shows (`scorer.normalize`).
        custom_reward: what the user's reward function (`reward`) returned, which replaces the base score in the reward;
            None without one, and if it failed (status `reward_error`).
        published_score: the score that the publisher of an imported response gave it, usually in [0, 1]; else None.
        turns: number of turns of the assistant; None in groups of rg_dump, where it is 1.
    """

    repetition: int
    score: Share
    reward: float
    base_score: Share
    raw_score: Annotated[Share | None, Mark.RG_DUMP] = None
    tagged_score: Annotated[Share | None, Mark.RG_DUMP] = None
    violation: Annotated[Violation | None, Mark.RG_DUMP] = None
    status: Status = Status.OK
    response_tokens: int | None = None
    stop_reason: str | None = None
    truncated: bool = False
    penalty_factor: Share = 1.0
    policy_version: str | None = None
    normalized: Annotated[bool, Mark.RG_DUMP] = False
    custom_reward: float | None = None
    published_score: float | None = None
    turns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRecord(RolloutFacts):
    """One response and everything that was decided about it.

    Attributes:
        detail: one line for people about a status other than ok; else empty.
        answer: the answer taken from the response; None exactly when there is a violation or no response, or the file
            is Atropos'.
        conversation: the prompt's messages, then the assistant's response as it was scored; empty if there is none.
            In groups of another environment every turn of every role.
        each_turn: a JSON array with `tokens` and `stop_reason` (null: unknown) of every turn of the assistant; None in
            groups of rg_dump.
    """

    detail: str = ""
    answer: str | None = None
    each_turn: str | None = None
    conversation: Sequence[Message]

    @property
    def response(self) -> str:
        """The text that was scored: the assistant's last message."""
        said = (one["content"] for one in reversed(self.conversation) if one["role"] == "assistant")
        return next(said, self.conversation[-1]["content"] if self.conversation else "")

    @property
    def prompt(self) -> Sequence[Message]:
        """The messages before the model's first turn."""
        said = [number for number, one in enumerate(self.conversation) if one["role"] == "assistant"]
        turns = self.turns or 1
        whole = len(said) < turns or (self.turns is None and said[-1] != len(self.conversation) - 1)
        return self.conversation if whole else self.conversation[: said[-turns]]

    def transcript(self, fold: int | None = None) -> str:
        """What follows the prompt, as one text: a single response as it is, several turns with their roles.

        Args:
            fold: of what the model was shown, at most so many characters.
        """
        after = self.conversation[len(self.prompt) :]
        if len(after) == 1:
            return after[0]["content"]
        return "\n\n".join(f"[{one['role']}]\n{_folded(one, fold)}" for one in after)


def _folded(message: Message, fold: int | None) -> str:
    text = message["content"]
    if fold is None or message["role"] == "assistant" or len(text) <= fold:
        return text
    return f"{text[:fold]} … ({len(text) - fold} more characters)"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """All rollouts of one prompt in one `generate()` call, without their texts.

    Attributes:
        item_id: the task's name, as Atropos writes it: the same as `task`.
        item: the item's id, unique within a dataset; empty in Atropos' files.
        schema_version: version of the line's format; 0 for Atropos' lines.
        group_id: see `group_id`.
        run_id: the run.
        attempt: 1 for the first start of the run, one more for each resumption.
        phase: `train` or `eval`.
        step: SkyRL's global step; None outside of training.
        call: number of the `generate()` call within the attempt.
        uid: SkyRL's uid of the prompt; repeats over epochs and resumptions.
        task: name of the Reasoning Gym task.
        environment: SkyRL's env class that scored it; `rg_dump` for Reasoning Gym.
        level: the level of each attribute of the task's scale of difficulty, as a JSON object; None without a scale.
        complexity: c in [0, 1], of which the level is a function; None without a scale.
        baseline: the score of the best cheap policy on the item, in [0, 1], beyond which partial credit counts; 0 if
            there is none, or if nothing in the group was scored.
        outcome: see `outcome_of`.
        no_signal: True when all rewards of responses are equal: such a group moves no weight in GRPO.
        solved_at: the base score from which a rollout counts as solved; None: the setting of that name.
        started_at, ended_at: when the first response was requested and the last one was scored, in seconds since
            1970-01-01 UTC; None where it was not measured, as in imported responses.
        generation_seconds: time from the request to the response, summed over the rollouts. It includes time in the
            queue of the engine or server, and retries. In batched mode every rollout waits for the whole batch.
        scoring_seconds: time from the response to its verdict, summed over the rollouts, with the wait for an idle
            scorer process.
    """

    item_id: str
    item: str = ""
    schema_version: int = SCHEMA_VERSION
    group_id: str
    run_id: str
    attempt: int = 1
    phase: str
    step: int | None = None
    call: int = 0
    uid: str = ""
    task: str
    environment: str = RG_DUMP
    level: Annotated[Json | None, Mark.RG_DUMP] = None
    complexity: Annotated[Share | None, Mark.RG_DUMP] = None
    baseline: Annotated[Share, Mark.RG_DUMP] = 0.0
    outcome: Outcome
    no_signal: bool
    solved_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    generation_seconds: float | None = None
    scoring_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord(GroupFacts):
    """All rollouts of one prompt in one `generate()` call.

    Attributes:
        task_config: the task's options.
        entry: the Reasoning Gym entry (question, answer, metadata).
        rollouts: in the order of SkyRL's batch.
    """

    task_config: Annotated[Json, Mark.RG_DUMP] = "{}"
    entry: Annotated[Json, Mark.RG_DUMP] = "{}"
    rollouts: Sequence[RolloutRecord]

    def check(self) -> None:
        """Check that the record is consistent.

        Raises:
            FaultyRecordError: naming what is not.
        """
        _check_facts(self)

    @property
    def expected_answer(self) -> str | None:
        """The answer in the entry; None if it has none (five tasks, and Atropos' files)."""
        try:
            answer = json.loads(self.entry).get("answer")
        except (ValueError, AttributeError, RecursionError):
            return None
        return None if answer is None else str(answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord(GroupFacts):
    """A group without its texts.

    Attributes:
        text: the kind of file that holds the full text, or None.
        text_reason: why no file has the text; None if one does.
        text_batch: number of the file that holds the text; None if no file does.
        text_offset: where the text's line begins in that file, in bytes before compression.
        rollouts: in the order of SkyRL's batch.
    """

    text: FileKind | None
    text_reason: NotKept | None
    text_batch: int | None = None
    text_offset: int | None = None
    rollouts: Annotated[Sequence[RolloutFacts], Mark.COLUMNS]

    def check(self) -> None:
        """As `GroupRecord.check`."""
        if (self.text is None) == (self.text_reason is None):
            raise FaultyRecordError("has both `text` and `text_reason`, or neither")
        _check_facts(self)

    @classmethod
    def of(
        cls, group: GroupRecord, text: FileKind | None, text_reason: NotKept | None, place: Place | None = None
    ) -> LedgerRecord:
        """The ledger's record of `group`. It shares the group's rollouts, of which only the facts are written."""
        facts = dict(zip(_GROUP_FACTS, _group_facts(group), strict=True))
        batch, offset = place or (None, None)
        return cls(
            **facts, text=text, text_reason=text_reason, text_batch=batch, text_offset=offset, rollouts=group.rollouts
        )

    def without_place(self) -> LedgerRecord:
        """The record, whatever file has the text."""
        return replace(self, text_batch=None, text_offset=None)


_GROUP_FACTS = tuple(fact.name for fact in fields(GroupFacts))
_group_facts = attrgetter(*_GROUP_FACTS)


@dataclass(frozen=True, slots=True)
class TrainedRecord:
    """A group in the training batch of one step. A group that was never trained on has no such record.

    Attributes:
        run_id: the run.
        attempt: the attempt that trained; a step that is repeated after a crash is recorded again.
        step: SkyRL's global step that trained on the group.
        group_id: the group, as in `GroupRecord`; in the fully-async loop it may be from an earlier step.
        rollouts: rows of that step's training batch that came from the group, repeats counted: with dynamic sampling
            `replace`, a group of 8 that was taken three times has 24. At least 1.
    """

    schema_version: int = field(default=SCHEMA_VERSION, kw_only=True)
    run_id: str
    attempt: int
    step: int
    group_id: str
    rollouts: int

    def check(self) -> None:
        """As `GroupRecord.check`."""
        if self.rollouts < 1:
            raise FaultyRecordError(f"`rollouts` is {self.rollouts}, less than 1")


def answered[R: RolloutFacts](rollouts: Sequence[R]) -> list[R]:
    """The rollouts with a scorable response, on which outcome, signal and all rates are based."""
    ok = Status.OK
    return [rollout for rollout in rollouts if rollout.status is ok or rollout.status.is_counted]


Record = GroupRecord | LedgerRecord | TrainedRecord


class FileKind(StrEnum):
    """The kinds of JSONL files of a run, in the order of reading and writing: a group's text before its ledger line.

    The value is the part of the file's name between prefix and run id.

    Attributes:
        record: the class of its records, whose `check` says what is wrong with one.
    """

    record: type[Record]

    def __new__(cls, value: str, record: type[Record] = GroupRecord) -> Self:
        kind = str.__new__(cls, value)
        kind._value_, kind.record = value, record
        return kind

    ROLLOUTS = "rollouts", GroupRecord
    FAILED = "FAILED_rollouts", GroupRecord
    OTHER = "other_rollouts", GroupRecord
    EVAL = "eval_rollouts", GroupRecord
    TRAINED = "trained", TrainedRecord
    LEDGER = "groups", LedgerRecord

    @property
    def holds_text(self) -> bool:
        """True for files of `GroupRecord`s."""
        return self.record is GroupRecord

    @classmethod
    def of(cls, record: TrainedRecord) -> FileKind:
        """The kind of file for a record of which there is only one kind."""
        return next(kind for kind in cls if kind.record is type(record))


TEXT_KINDS = tuple(kind for kind in FileKind if kind.holds_text)


def outcome_of(base_scores: Sequence[float], solved_at: float = 0.99) -> Outcome:
    """The outcome of a group with these base scores.

    >>> outcome_of([1.0, 0.99]), outcome_of([0.0, 0.0]), outcome_of([0.0, 0.01])
    (<Outcome.ALL_CORRECT: 'all_correct'>, <Outcome.ALL_FAILED: 'all_failed'>, <Outcome.MIXED: 'mixed'>)

    A group without rollouts neither succeeded nor failed: it is `mixed`.
    """
    if base_scores and all(score >= solved_at for score in base_scores):
        return Outcome.ALL_CORRECT
    if base_scores and all(score == 0 for score in base_scores):
        return Outcome.ALL_FAILED
    return Outcome.MIXED


def is_equal_partial_credit(base_scores: Sequence[float], solved_at: float = 0.99) -> bool:
    """True when nothing is solved and all have the same partial credit: all wrong to people, though `mixed`.

    >>> is_equal_partial_credit([0.01, 0.01]), is_equal_partial_credit([0.01, 0.5]), is_equal_partial_credit([0.0, 0.0])
    (True, False, False)
    """
    return len(set(base_scores)) == 1 and 0 < base_scores[0] < solved_at


def has_no_signal(rewards: Sequence[float]) -> bool:
    """True when all rewards are equal, so that every group-relative advantage is 0."""
    return len(set(rewards)) <= 1


def group_id(run_id: str, attempt: int, phase: str, call: int, uid: str) -> str:
    """The name of a group, unique over epochs, resumptions and dynamic sampling.

    >>> group_id("20261121-053012-ab12", 1, "train", 37, "1042")
    '20261121-053012-ab12:1:train:37:1042'
    """
    return f"{run_id}:{attempt}:{phase}:{call}:{uid}"


_CLOSE = 1e-9


@cache
def _shares(record: Any) -> list[str]:
    """The fields of a record's class that are in [0, 1]."""
    hints = get_type_hints(record, include_extras=True)
    return [name for name, hint in hints.items() if Mark.SHARE in marks_of(hint)]


def marks_of(hint: Any) -> list[Any]:
    """What is annotated anywhere in a type."""
    return [*getattr(hint, "__metadata__", ()), *(mark for part in get_args(hint) for mark in marks_of(part))]


def _check_shares(record: Record | RolloutFacts) -> None:
    kind: Any = type(record)
    for name in _shares(kind):
        value = getattr(record, name)
        if value is not None and not 0 <= value <= 1:  # NaN too
            raise FaultyRecordError(f"`{name}` is {value}, outside [0, 1]")


def _check_facts(group: GroupRecord | LedgerRecord) -> None:
    """Check what a group's text and its ledger line have in common."""
    if group.environment == RG_DUMP:
        _check_shares(group)
        for number, rollout in enumerate(group.rollouts):
            try:
                _check_shares(rollout)
                _check_scores(group, rollout)
            except FaultyRecordError as error:
                raise FaultyRecordError(f"rollout {number}: {error}") from None
    rewards = [rollout.reward for rollout in answered(group.rollouts)]
    if all(map(math.isfinite, rewards)) and group.no_signal != has_no_signal(rewards):
        raise FaultyRecordError(f"`no_signal` is {group.no_signal}, which does not fit its rewards")


def _check_scores(group: GroupFacts, rollout: RolloutFacts) -> None:
    """Check that the scores of a rollout of rg_dump follow from each other."""
    raw, tagged, base = rollout.raw_score, rollout.tagged_score, rollout.base_score
    if rollout.violation is not None and rollout.status is Status.NO_RESPONSE:
        raise FaultyRecordError("has a violation although there is no response")
    if rollout.violation is not None or rollout.status not in (Status.OK, Status.REWARD_ERROR):
        if base != 0 or raw is not None or tagged is not None:
            raise FaultyRecordError("has scores although nothing was scored")
    elif raw is None or tagged is None:
        raise FaultyRecordError("has no scores, and neither a violation nor a status explains it")
    else:
        right = base_score(group.task, raw, tagged, group.baseline)
        as_upstream = max(raw, tagged) if group.baseline == 0 else right  # scorer.partial_credit=upstream
        if not any(math.isclose(base, score, abs_tol=_CLOSE) for score in (right, as_upstream)):
            numbers = f"raw {raw}, tagged {tagged}, baseline {group.baseline}"
            raise FaultyRecordError(f"`base_score` is {base}, not {right:g}: {numbers}")
    if not math.isclose(rollout.score, base * rollout.penalty_factor, abs_tol=_CLOSE):
        raise FaultyRecordError(f"`score` is {rollout.score}, not {base} × {rollout.penalty_factor}")
