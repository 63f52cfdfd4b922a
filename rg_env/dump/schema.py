"""What a run records, as dataclasses: a group of rollouts, and its short line in the ledger.

Invariant: everything about rollout *k* (text, scores, reward) stands in one object, so that texts and numbers cannot be
misaligned; a group's outcome is judged on base scores, before any penalty.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rg_env.scoring.types import Status, Violation

SCHEMA_VERSION = 2
"""Version of the line formats. Plain Atropos lines, which carry none, count as 0; 1 lacked `normalised`."""

ADDED_IN = {"normalised": 2}
"""The version since which a key is in every line, for keys that the first version lacked."""

Message = dict[str, str]
"""`{"role": ..., "content": ...}`."""


class Phase(StrEnum):
    """What a group was generated for."""

    TRAIN = "train"
    EVAL = "eval"


class Outcome(StrEnum):
    """How a group did, on base scores. Exhaustive and exclusive."""

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
    """Which groups each step was really trained on: `TrainedRecord`s."""
    LEDGER = "groups"

    @property
    def holds_text(self) -> bool:
        """True for files of `GroupRecord`s."""
        return self not in (FileKind.TRAINED, FileKind.LEDGER)


class NotKept(StrEnum):
    """Why the ledger has a group whose text is in no file."""

    ROLLOUTS_OFF = "dump_rollouts_off"
    FAILED_OFF = "dump_failed_rollouts_off"
    OTHER_OFF = "dump_other_rollouts_off"
    """No base score above the threshold, yet not all 0: it fits neither of Atropos' two files."""
    EVAL_OFF = "dump_eval_rollouts_off"
    NO_ROLLOUTS = "no_rollouts"
    LOST = "lost"
    """It was kept and is damaged or gone: `rg-env dumps recover` found the group in the ledger only."""


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """One response and everything that was decided about it.

    Attributes:
        conversation: the prompt's messages, then the assistant's response as it was scored.
        score: base_score × penalty_factor, in [0, 1].
        reward: what `generate()` handed back to SkyRL; may be negative.
        base_score: max(raw, tagged), in [0, 1]; 0 on a violation or a status other than ok.
        raw_score: score of the bare answer, in [0, 1]; None where nothing was scored.
        tagged_score: score of `<answer>…</answer>`, in [0, 1]; None where nothing was scored.
        violation: what is wrong with the format, or None.
        status: how scoring ended.
        detail: one line for people about a status other than ok; else empty.
        normalised: the score is that of another form of the answer, which `detail` shows (`scorer.normalise`).
        answer: the answer taken from the response; None exactly when there is a violation (or the file is Atropos').
        response_tokens: length of the response in tokens; None in Atropos' files.
        stop_reason: as SkyRL gives it (`stop`, `length`, …).
        truncated: True when the response hit the length limit.
        penalty_factor: in [0, 1]; 1 where no penalty applied.
        repetition: number of the sample within its group, from 0.
        policy_version: the weights that generated it, where SkyRL knows.
    """

    conversation: Sequence[Message]
    score: float
    reward: float
    base_score: float
    raw_score: float | None
    tagged_score: float | None
    violation: Violation | None
    status: Status
    detail: str
    answer: str | None
    response_tokens: int | None
    stop_reason: str | None
    truncated: bool
    penalty_factor: float
    repetition: int
    policy_version: str | None = None
    normalised: bool = False

    @property
    def response(self) -> str:
        """The text that was scored: the last message's."""
        return self.conversation[-1]["content"] if self.conversation else ""


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """All rollouts of one prompt in one `generate()` call.

    Attributes:
        item_id: the item; in Atropos' files, the task's name.
        run_id: the run.
        attempt: 1 for the first start of the run, one more for each resumption.
        phase: `train` or `eval`.
        step: SkyRL's global step; None outside of training.
        call: number of the `generate()` call within the attempt.
        uid: SkyRL's uid of the prompt; repeats over epochs and resumptions.
        group_id: see `group_id`.
        task: name of the Reasoning Gym task.
        task_config: the task's options as a JSON string.
        level: difficulty as a JSON string, or None.
        entry: the Reasoning Gym entry (question, answer, metadata) as a JSON string.
        outcome: see `outcome_of`.
        no_signal: True when all rewards are equal: such a group moves no weight in GRPO.
        rollouts: in the order of SkyRL's batch.
    """

    item_id: str
    run_id: str
    attempt: int
    phase: str
    step: int | None
    call: int
    uid: str
    group_id: str
    task: str
    task_config: str
    level: str | None
    entry: str
    outcome: Outcome
    no_signal: bool
    rollouts: Sequence[RolloutRecord]
    schema_version: int = SCHEMA_VERSION

    @property
    def expected_answer(self) -> str | None:
        """The answer in the entry; None where there is none (five tasks, and Atropos' files)."""
        try:
            answer = json.loads(self.entry).get("answer")
        except (ValueError, AttributeError, RecursionError):
            return None
        return None if answer is None else str(answer)


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """A group without its texts. Sequences hold one element per rollout, in the group's order.

    Attributes:
        text: the kind of file that holds the full text, or None.
        text_reason: why no file holds it; None where one does.
        Everything else: as in `GroupRecord` and `RolloutRecord`.
    """

    item_id: str
    run_id: str
    attempt: int
    phase: str
    step: int | None
    call: int
    uid: str
    group_id: str
    task: str
    level: str | None
    outcome: Outcome
    no_signal: bool
    text: FileKind | None
    text_reason: NotKept | None
    repetition: Sequence[int]
    score: Sequence[float]
    reward: Sequence[float]
    base_score: Sequence[float]
    raw_score: Sequence[float | None]
    tagged_score: Sequence[float | None]
    violation: Sequence[Violation | None]
    status: Sequence[Status]
    response_tokens: Sequence[int | None]
    stop_reason: Sequence[str | None]
    truncated: Sequence[bool]
    penalty_factor: Sequence[float]
    policy_version: Sequence[str | None]
    normalised: Sequence[bool]
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def of(cls, group: GroupRecord, text: FileKind | None, text_reason: NotKept | None) -> LedgerRecord:
        """The ledger's line for `group`."""
        rollouts = group.rollouts
        return cls(
            item_id=group.item_id,
            run_id=group.run_id,
            attempt=group.attempt,
            phase=group.phase,
            step=group.step,
            call=group.call,
            uid=group.uid,
            group_id=group.group_id,
            task=group.task,
            level=group.level,
            outcome=group.outcome,
            no_signal=group.no_signal,
            text=text,
            text_reason=text_reason,
            repetition=[r.repetition for r in rollouts],
            score=[r.score for r in rollouts],
            reward=[r.reward for r in rollouts],
            base_score=[r.base_score for r in rollouts],
            raw_score=[r.raw_score for r in rollouts],
            tagged_score=[r.tagged_score for r in rollouts],
            violation=[r.violation for r in rollouts],
            status=[r.status for r in rollouts],
            response_tokens=[r.response_tokens for r in rollouts],
            stop_reason=[r.stop_reason for r in rollouts],
            truncated=[r.truncated for r in rollouts],
            penalty_factor=[r.penalty_factor for r in rollouts],
            policy_version=[r.policy_version for r in rollouts],
            normalised=[r.normalised for r in rollouts],
            schema_version=group.schema_version,
        )


@dataclass(frozen=True, slots=True)
class TrainedRecord:
    """A group in the training batch of one step. What `generate()` returned and no step took has none.

    Attributes:
        run_id: the run.
        attempt: the attempt that trained; a step run again after a crash has its records again.
        step: SkyRL's global step, whose weight update the group took part in.
        group_id: the group, as in `GroupRecord`; an earlier step's where the loop is asynchronous.
        rollouts: rows of that step's training batch that came from the group, repeats counted: with dynamic sampling
            `replace`, a group of 8 that was taken three times has 24. At least 1.
    """

    run_id: str
    attempt: int
    step: int
    group_id: str
    rollouts: int
    schema_version: int = SCHEMA_VERSION


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


def has_no_signal(rewards: Sequence[float]) -> bool:
    """True when all rewards are equal, so that every group-relative advantage is 0."""
    return len(set(rewards)) <= 1


def group_id(run_id: str, attempt: int, phase: str, call: int, uid: str) -> str:
    """The name of a group, unique over epochs, resumptions and dynamic sampling.

    >>> group_id("20261121-053012-ab12", 1, "train", 37, "1042")
    '20261121-053012-ab12:1:train:37:1042'
    """
    return f"{run_id}:{attempt}:{phase}:{call}:{uid}"
