"""The records of a run as dataclasses: groups of rollouts, their short form in the ledger, what was trained on, and the
moves of levels.

Invariant: everything about rollout *k* (text, scores, reward) is in one object, so that texts and numbers cannot be
misaligned; a group's outcome is decided on base scores, before any penalty.

A field is named here and nowhere else: the lines of files, their checks and the columns of frames follow from its type
(`rg_env.dump.columns`). To add a value, add a field to `RolloutFacts` or `GroupFacts`: it is then in text files, ledger
and frames. Its default, if it has one, is the value for lines without the key.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, StrEnum
from operator import attrgetter
from typing import Annotated

from rg_env.scoring.types import Status, Violation

SCHEMA_VERSION = 1
"""Version of the line formats. Plain Atropos lines, which carry none, count as 0."""

Message = dict[str, str]
"""A message of a conversation, with the keys `MESSAGE_KEYS`."""
MESSAGE_KEYS = ("role", "content")


Place = tuple[int, int]
"""Where a text is in the files of its kind: the number of the file, and the byte at which its line begins."""


class Mark(Enum):
    """What the type of a field does not express."""

    JSON = "a string that holds JSON"
    COLUMNS = "records that a line holds as one list per field"


Json = Annotated[str, Mark.JSON]


class Phase(StrEnum):
    """What a group was generated for."""

    TRAIN = "train"
    EVAL = "eval"


class Outcome(StrEnum):
    """The result of a group by its base scores; exactly one applies."""

    ALL_CORRECT = "all_correct"
    ALL_FAILED = "all_failed"
    MIXED = "mixed"


class FileKind(StrEnum):
    """The kinds of JSONL files of a run; the value is the part of the file's name between prefix and run id."""

    ROLLOUTS = "rollouts"
    FAILED = "FAILED_rollouts"
    OTHER = "other_rollouts"
    EVAL = "eval_rollouts"
    TRAINED = "trained"
    """Which groups each step was trained on: `TrainedRecord`s."""
    LEVELS = "levels"
    """When the curriculum moved the level of a task, and why: `LevelRecord`s."""
    LEDGER = "groups"

    @property
    def holds_text(self) -> bool:
        """True for files of `GroupRecord`s."""
        return self not in (FileKind.TRAINED, FileKind.LEVELS, FileKind.LEDGER)


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
    LOST = "lost"
    """The text was kept and is now damaged or gone: `rg-env dumps recover` found the group in the ledger only."""


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
    """

    repetition: int
    score: float
    reward: float
    base_score: float
    raw_score: float | None = None
    tagged_score: float | None = None
    violation: Violation | None = None
    status: Status = Status.OK
    response_tokens: int | None = None
    stop_reason: str | None = None
    truncated: bool = False
    penalty_factor: float = 1.0
    policy_version: str | None = None
    normalized: bool = False
    custom_reward: float | None = None
    published_score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRecord(RolloutFacts):
    """One response and everything that was decided about it.

    Attributes:
        detail: one line for people about a status other than ok; else empty.
        answer: the answer taken from the response; None exactly when there is a violation or no response, or the file
            is Atropos'.
        conversation: the prompt's messages, then the assistant's response as it was scored; empty if there is none.
    """

    detail: str = ""
    answer: str | None = None
    conversation: Sequence[Message]

    @property
    def response(self) -> str:
        """The text that was scored: the last message's."""
        return self.conversation[-1]["content"] if self.conversation else ""


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
        level: the level of each attribute of the task's scale of difficulty, as a JSON object; None without a scale.
        complexity: c in [0, 1], of which the level is a function; None without a scale.
        draw_probability: with which the task was drawn for the prompt's row; None if unknown.
        controller_version: number of training batches that had moved the state of the curriculum or of adaptive
            sampling when the row was drawn; 0 without either.
        baseline: the score of the best cheap policy on the item, in [0, 1], beyond which partial credit counts; 0 if
            there is none, or if nothing in the group was scored.
        outcome: see `outcome_of`.
        no_signal: True when all rewards of responses are equal: such a group moves no weight in GRPO.
        started_at, ended_at: when the first response was requested and the last one was scored, in seconds since
            1970-01-01 UTC; None where nobody measured, as in imported responses.
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
    level: Json | None = None
    complexity: float | None = None
    draw_probability: float | None = None
    controller_version: int = 0
    baseline: float = 0.0
    outcome: Outcome
    no_signal: bool
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

    task_config: Json = "{}"
    entry: Json = "{}"
    rollouts: Sequence[RolloutRecord]

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


def answered[R: RolloutFacts](rollouts: Sequence[R]) -> list[R]:
    """The rollouts with a scorable response, on which outcome, signal and all rates are based."""
    ok = Status.OK
    return [rollout for rollout in rollouts if rollout.status is ok or rollout.status.is_counted]


@dataclass(frozen=True, slots=True)
class LevelRecord:
    """A move of a task's level by the curriculum.

    Attributes:
        run_id: the run.
        attempt: the attempt that moved it; a step that is repeated after a crash may move it again.
        step: SkyRL's global step of the groups after which it moved.
        task: name of the task.
        rule: the rule that moved it (`complexity_rule`).
        before, after: the complexity c, in [0, 1], of items drawn before and after the move.
        solve_rate: that the rule looked at, in [0, 1].
        lower, upper: bounds of its confidence interval; None if the rule uses none.
        rollouts, groups: number of those that it is taken from.
        reason: one line for people.
    """

    schema_version: int = field(default=SCHEMA_VERSION, kw_only=True)
    run_id: str
    attempt: int
    step: int
    task: str
    rule: str
    before: float
    after: float
    solve_rate: float
    lower: float | None
    upper: float | None
    rollouts: int
    groups: int
    reason: str


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
