"""The records of a run: groups of rollouts, their short version in the ledger, what each step was trained on, and the
trainer's numbers of each step. Each class is the lines of its files: names, order and types of the keys. Every line of
a kind has the same keys, and a key's value never changes its type, so that `datasets`, pandas, polars and DuckDB load a
file unchanged, with the types in `rg_env.dump.column_types`. A line that does not fit its class exactly is corrupt.

Everything about rollout *k* (text, scores, reward) is in one object, so that texts and numbers cannot be misaligned. A
group's outcome is decided on base scores, before any penalty. Strings are never null, in memory as in files: "" is
none. Numbers are null where nothing was measured.

To add a value, add a field to `RolloutFacts` or `GroupFacts` (and of a rollout a list to `LedgerRecord`): it is then in
text files, ledger and frames; or to `RolloutRecord` or `GroupRecord`, if only text files should have it. The default
is the value of records that lack the key, its line in the docstring the meaning in docs/dumps.md. It is set in
`rg_env/rollouts/rollout.py`, in `group_record` or `_rollout_record`; what they do not know yet is a new attribute of
`Rollout`, or of `Origin` if it is about the call. A kind of record is an entry of `FileKind`.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Self, TypedDict

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from rg_env.base.choices import SOLVED_AT
from rg_env.base.errors import DumpError
from rg_env.scoring.types import Status, Violation

SCHEMA_VERSION = 1
"""Version of the line formats."""
RG_DUMP = "rg_dump"
"""The environment of Reasoning Gym's groups. Those of another have `task`, `score` and `reward` as it gave them, any
number of turns and roles, and the defaults of Reasoning Gym's own fields."""
MESSAGE_KEYS = ("role", "content")

if TYPE_CHECKING:
    # For a type checker these are plain dicts; when it decodes, msgspec refuses a message that lacks a key.
    Message = dict[str, str]
    """A message of a conversation, with the keys `MESSAGE_KEYS`."""
    Number = float
    """A number that every record has; NaN, which JSON does not have, is null in a line."""
else:
    Message = TypedDict("Message", dict.fromkeys(MESSAGE_KEYS, str))
    Number = float | None
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]  # what a column of 64 bits holds
Json = str
"""A string that holds JSON."""


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
    """A base score is above 0, but none is above the threshold: the group fits neither of Atropos' two files."""
    EVAL_OFF = "dump_eval_rollouts_off"
    NO_ROLLOUTS = "no_rollouts"
    NO_RESPONSES = "no_responses"
    """Every request of the group failed."""


def as_violation(word: str) -> Violation | None:
    """Return the violation of a record, as the parser gives it."""
    return Violation(word) if word else None


def _word_of(words: Iterable[str]) -> Meta:
    """Return a string that is empty or one of these."""
    return Meta(pattern=f"^({'|'.join(['', *map(str, words)])})$")


Word = Annotated[str, _word_of(Violation)]


class Record(Struct, frozen=True, kw_only=True):
    """What every line has.

    Attributes:
        schema_version: version of the line's format.
    """

    schema_version: Whole = SCHEMA_VERSION


class GroupName(Record, frozen=True, kw_only=True):
    """The id in the line of a group; all else is skipped.

    Attributes:
        group_id: see `GroupFacts`.
    """

    group_id: str


class RolloutFacts(Struct, frozen=True, kw_only=True):
    """One response without its text, as in the ledger.

    Attributes:
        repetition: number of the sample within its group, from 0.
        score: base_score × penalty_factor, in [0, 1]; of another environment, as it gave it; None if unscored.
        reward: what `generate()` handed back to SkyRL; may be negative.
        base_score: computed from raw score, tagged score and the group's baseline (`rg_env.scoring.base_score`), in
            [0, 1]; 0 on a violation or a status other than ok; None if unscored.
        raw_score: score of the bare answer, in [0, 1]; None if nothing was scored.
        tagged_score: score of `<answer>…</answer>`, in [0, 1]; None if nothing was scored.
        violation: what is wrong with the format (`Violation`), or "".
        status: how scoring ended.
        response_tokens: length of the response in tokens; None if unknown. In groups of another environment, the tokens
            that are trained on: fewer than were written where a chat template drops the thinking of earlier turns.
        stop_reason: as SkyRL gives it (`stop`, `length`, …).
        truncated: True when the response hit the length limit.
        penalty_factor: in [0, 1]; 1 where no penalty applied.
        policy_version: the weights that generated it, where SkyRL knows.
        normalized: the score is that of the answer without formatting, which `detail` shows (`scorer.normalize`).
        custom_reward: what the user's reward function (`reward`) returned, which replaces the base score in the reward;
            None without one, and if it failed (status `reward_error`).
        published_score: the score that the publisher of an imported response gave it, usually in [0, 1]; else None.
        turns: number of turns of the assistant; None in groups of rg_dump, where it is 1.
        masked: True when the rollout is kept out of the loss because of the machine, not of what it says: there is no
            response, its scorer or the user's reward function failed, the scorer got no CPU time, or the reward of
            another environment is not a finite number.
    """

    repetition: Whole
    score: Number
    reward: Number
    base_score: Number
    raw_score: float | None = None
    tagged_score: float | None = None
    violation: Word = ""
    status: Status = Status.OK
    response_tokens: Whole | None = None
    stop_reason: str = ""
    truncated: bool = False
    penalty_factor: Number = 1.0
    policy_version: str = ""
    normalized: bool = False
    custom_reward: float | None = None
    published_score: float | None = None
    turns: Whole | None = None
    masked: bool = False

    def __post_init__(self) -> None:
        """Put NaN where a line has null for a number that every record has."""
        # All four at once first: this runs for every rollout that is decoded.
        if None in (self.score, self.reward, self.base_score, self.penalty_factor):
            for name in ("score", "reward", "base_score", "penalty_factor"):
                if getattr(self, name) is None:
                    msgspec.structs.force_setattr(self, name, math.nan)


class RolloutRecord(RolloutFacts, frozen=True, kw_only=True):
    """One response and everything that was decided about it.

    Attributes:
        detail: one line for people about a status other than ok, or why the scorer of a file could not read the
            answer; else empty.
        answer: the answer taken from the response; "" exactly when there is a violation or no response.
        conversation: the prompt's messages, then the assistant's response as it was scored; empty if there is none.
            In groups of another environment every turn of every role, as it was written.
        each_turn: a JSON array with `tokens` (trained on; see `response_tokens`) and `stop_reason` (null: unknown) of
            every turn of the assistant; "" in groups of rg_dump.
    """

    detail: str = ""
    answer: str = ""
    each_turn: Json = ""
    conversation: list[Message]

    @property
    def response(self) -> str:
        """The text that was scored: the assistant's last message."""
        messages = [message for message in self.conversation if message["role"] == "assistant"] or self.conversation
        return messages[-1]["content"] if messages else ""

    @property
    def prompt(self) -> Sequence[Message]:
        """The messages before the model's first turn."""
        by_model = [number for number, message in enumerate(self.conversation) if message["role"] == "assistant"]
        turns = self.turns or 1
        # The last assistant messages are the model's turns; earlier ones belong to the prompt, as examples do.
        if len(by_model) < turns:
            return self.conversation
        ends_with_turn = by_model[-1] == len(self.conversation) - 1
        if self.turns is None and not ends_with_turn:
            return self.conversation
        return self.conversation[: by_model[-turns]]

    def transcript(self, fold: int | None = None) -> str:
        """Return what follows the prompt, as one text: a single response as it is, several turns with their roles.

        Args:
            fold: of what the model was shown, at most this many characters.
        """
        messages = self.conversation[len(self.prompt) :]
        if len(messages) == 1:
            return messages[0]["content"]
        turns = []
        for message in messages:
            role, text = message["role"], message["content"]
            if fold is not None and role != "assistant" and len(text) > fold:
                text = f"{text[:fold]} … ({len(text) - fold} more characters)"
            turns.append(f"[{role}]\n{text}")
        return "\n\n".join(turns)


class GroupFacts(Record, frozen=True, kw_only=True):
    """All rollouts of one prompt in one `generate()` call, without their texts.

    Attributes:
        item_id: the task's name, as Atropos writes it: the same as `task`.
        item: the item's id, unique within a dataset.
        group_id: the group's name, `RUN_ID:ATTEMPT:PHASE:CALL:UID`.
        run_id: the run.
        attempt: 1 for the first start of the run, one more for each resumption.
        phase: what the group was generated for: `train` or `eval`.
        step: SkyRL's global step; None outside of training.
        call: number of the `generate()` call within the attempt.
        uid: SkyRL's uid of the prompt; repeats over epochs and resumptions.
        task: name of the Reasoning Gym task, or of another environment's data source.
        environment: SkyRL's env class that scored it; `rg_dump` for Reasoning Gym.
        level: the level of each attribute of the task's scale of difficulty, as a JSON object; "" without a scale.
        complexity: c in [0, 1], of which the level is a function; None without a scale.
        baseline: the score of the best cheap policy on the item, in [0, 1], beyond which partial credit counts; 0 if
            there is none, or if nothing in the group was scored.
        outcome: `all_correct` (every base score is at least `solved_at`), `all_failed` (none is above 0), else `mixed`.
        no_signal: True when all rewards of responses are equal: the advantage of such a group is exactly 0 in the GRPO,
            RLOO and MaxRL of rg_env's trainers.
        solved_at: the base score from which a rollout counts as solved; None: the setting of that name.
        started_at: when the first response was requested, in seconds since 1970-01-01 UTC; None where it was not
            measured, as in imported responses.
        ended_at: the same, when the last response was scored.
        generation_seconds: time from the request to the response, summed over the rollouts. It includes time in the
            queue of the engine or server, and retries.
        scoring_seconds: time from the response to its verdict, summed over the rollouts, with the wait for an idle
            scorer process.
    """

    item_id: str
    item: str = ""
    group_id: str
    run_id: str
    attempt: Whole = 1
    phase: Phase
    step: Whole | None = None
    call: Whole = 0
    uid: str = ""
    task: str
    environment: str = RG_DUMP
    level: Json = ""
    complexity: float | None = None
    baseline: float = 0.0
    outcome: Outcome
    no_signal: bool
    solved_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    generation_seconds: float | None = None
    scoring_seconds: float | None = None


class GroupRecord(GroupFacts, frozen=True, kw_only=True):
    """All rollouts of one prompt in one `generate()` call.

    Attributes:
        task_config: the task's options.
        entry: the Reasoning Gym entry (question, answer, metadata).
        rollouts: the responses, in the order of SkyRL's batch.
    """

    task_config: Json = "{}"
    entry: Json = "{}"
    rollouts: list[RolloutRecord]

    @property
    def expected_answer(self) -> str | None:
        """The answer in the entry; None if it has none."""
        try:
            answer = json.loads(self.entry).get("answer")
        except (ValueError, AttributeError, RecursionError):
            return None
        return None if answer is None else str(answer)


class LedgerFacts(GroupFacts, frozen=True, kw_only=True):
    """What a line of the ledger has beside its lists.

    Attributes:
        text: the kind of file that holds the full text, or "".
        text_reason: why no file has the text (`NotKept`); "" if one does.
        text_file: the number of that file; None if no file has the text, and in older dumps.
        text_at: where the text's line begins in that file, in bytes before compression; None as `text_file`. A hint:
            the file may have been moved or changed since.
    """

    text: str = ""
    text_reason: str = ""
    text_file: Whole | None = None
    text_at: Whole | None = None

    def __post_init__(self) -> None:
        """Refuse unknown words."""
        # Every command decodes the whole ledger. With a pattern for each word, that takes 1.7 times as long.
        if self.text not in _TEXT_WORDS or self.text_reason not in _REASON_WORDS:
            raise ValueError("unknown word in `text` or `text_reason`")


class LedgerRecord(LedgerFacts, frozen=True, kw_only=True):
    """A group without its texts: one list for each field of `RolloutFacts`, in the order of SkyRL's batch."""

    # A key that the line lacks is unset: every rollout has the field's default.
    repetition: list[Whole]
    score: list[float | None]
    reward: list[float | None]
    base_score: list[float | None]
    raw_score: list[float | None] | UnsetType = UNSET
    tagged_score: list[float | None] | UnsetType = UNSET
    violation: list[str] | UnsetType = UNSET
    status: list[Status] | UnsetType = UNSET
    response_tokens: list[Whole | None] | UnsetType = UNSET
    stop_reason: list[str] | UnsetType = UNSET
    truncated: list[bool] | UnsetType = UNSET
    penalty_factor: list[float | None] | UnsetType = UNSET
    policy_version: list[str] | UnsetType = UNSET
    normalized: list[bool] | UnsetType = UNSET
    custom_reward: list[float | None] | UnsetType = UNSET
    published_score: list[float | None] | UnsetType = UNSET
    turns: list[Whole | None] | UnsetType = UNSET
    masked: list[bool] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Refuse lists of different lengths, and unknown words."""
        super().__post_init__()
        if self.violation is not UNSET and not VIOLATION_WORDS.issuperset(self.violation):
            raise ValueError("unknown word in `violation`")
        lists = _lists_of(self)
        try:
            sizes = set(map(len, lists))
        except TypeError:  # a key that the line lacks
            sizes = {len(values) for values in lists if values is not UNSET}
        if len(sizes) > 1:
            raise ValueError("its lists differ in length")

    def column(self, name: str) -> list[Any]:
        """Return the values of a field of `RolloutFacts`, one for each rollout."""
        values: list[Any] | UnsetType = getattr(self, name)
        if values is UNSET:
            return [DEFAULTS[name]] * len(self.repetition)
        return values

    @property
    def rollouts(self) -> list[RolloutFacts]:
        """The rollouts, in the order of SkyRL's batch."""
        columns = [self.column(name) for name in ROLLOUT_FACTS]
        return [RolloutFacts(**dict(zip(ROLLOUT_FACTS, values, strict=True))) for values in zip(*columns, strict=True)]


GROUP_FACTS = GroupFacts.__struct_fields__
ROLLOUT_FACTS = RolloutFacts.__struct_fields__
_lists_of = attrgetter(*ROLLOUT_FACTS)
DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(RolloutFacts) if not field.required}
"""The values of rollouts of a line that lacks the key."""


class TrainedRecord(Record, frozen=True):
    """A group in the training batch of one step. A group that was never trained on has no such record.

    Attributes:
        run_id: the run.
        attempt: the attempt that trained; a step that is repeated after a crash is recorded again.
        step: SkyRL's global step that trained on the group.
        group_id: the group, as in `GroupRecord`; in the fully-async loop it may be from an earlier step.
        rollouts: rows of that step's training batch that came from the group, repeats counted: with dynamic sampling
            `replace`, a group of 8 that was taken three times has 24. At least 1.
        repetition, advantage: of each of these rows, its rollout, as in `RolloutFacts`, and the advantage with which it
            was trained, on its last token; 0 for masked rows. Estimators that compare a group give every token of a
            response the same. Empty in dumps of older programs.
    """

    run_id: str
    attempt: Whole
    step: Whole
    group_id: str
    rollouts: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    repetition: list[Whole] = []
    advantage: list[float] = []


class StepRecord(Record, frozen=True):
    """The trainer's own numbers of one step: loss, KL, entropy, gradient norm, learning rate, seconds, ….

    Attributes:
        run_id: the run.
        attempt: the attempt that trained; a step that is repeated after a crash is recorded again.
        step: SkyRL's global step; 0 is the evaluation before training.
        name: what SkyRL calls each number, such as `policy/loss`.
        value: the numbers, in the order of `name`; None for NaN.
    """

    run_id: str
    attempt: Whole
    step: Whole
    name: list[str]
    value: list[float | None]

    def __post_init__(self) -> None:
        """Refuse lists of different lengths."""
        if len(self.name) != len(self.value):
            raise ValueError("its lists differ in length")


class FileKind(StrEnum):
    """The kinds of JSONL files of a run, in the order of reading and writing: a group's text before its ledger line.

    The value is the part of the file's name between prefix and run id; `record` is the class of its lines.
    """

    record: type[Record]

    def __new__(cls, value: str, record: type[Record] = GroupRecord) -> Self:
        # Of two arguments only the first is the value; Enum by itself would hand both to `str`.
        kind = str.__new__(cls, value)
        kind._value_, kind.record = value, record
        return kind

    ROLLOUTS = "rollouts"
    FAILED = "FAILED_rollouts"
    OTHER = "other_rollouts"
    EVAL = "eval_rollouts"
    TRAINED = "trained", TrainedRecord
    STEPS = "steps", StepRecord
    LEDGER = "ledger", LedgerRecord

    @property
    def holds_text(self) -> bool:
        """True for files of `GroupRecord`s."""
        return self.record is GroupRecord

    @property
    def setting(self) -> str:
        """The setting that keeps these texts; Atropos has the same names."""
        return f"dump_{self.lower()}"


TEXT_KINDS = tuple(kind for kind in FileKind if kind.holds_text)
_TEXT_WORDS = frozenset({"", *TEXT_KINDS})
_REASON_WORDS = frozenset({"", *NotKept})
VIOLATION_WORDS = frozenset({"", *Violation})


def answered[R: RolloutFacts](rollouts: Sequence[R]) -> list[R]:
    """Return the rollouts with a scorable response, on which outcome, signal and all rates are based."""
    # `is` before the property, which takes longer: nearly every rollout is OK.
    ok = Status.OK
    return [rollout for rollout in rollouts if rollout.status is ok or rollout.status.is_counted]


def is_all_wrong(base_scores: Sequence[float]) -> bool:
    """Return whether no score is above 0: the rule of `all_failed` and of FAILED files.

    Other environments than ours may give -1 for a wrong answer.

    >>> is_all_wrong([0.0, 0.0]), is_all_wrong([-1.0, 0.0]), is_all_wrong([-1.0, 0.01]), is_all_wrong([])
    (True, True, False, False)
    """
    return bool(base_scores) and all(score <= 0 for score in base_scores)


def outcome_of(base_scores: Sequence[float], solved_at: float = SOLVED_AT) -> Outcome:
    """Return the outcome of a group with these base scores.

    >>> outcome_of([1.0, 0.99]), outcome_of([0.0, 0.0]), outcome_of([0.0, 0.01])
    (<Outcome.ALL_CORRECT: 'all_correct'>, <Outcome.ALL_FAILED: 'all_failed'>, <Outcome.MIXED: 'mixed'>)

    A group without rollouts neither succeeded nor failed: it is `mixed`.
    """
    if base_scores and all(score >= solved_at for score in base_scores):
        return Outcome.ALL_CORRECT
    if is_all_wrong(base_scores):
        return Outcome.ALL_FAILED
    return Outcome.MIXED


def is_equal_partial_credit(base_scores: Sequence[float], solved_at: float = SOLVED_AT) -> bool:
    """True when nothing is solved and all have the same partial credit: all wrong to people, though `mixed`.

    >>> is_equal_partial_credit([0.01, 0.01]), is_equal_partial_credit([0.01, 0.5]), is_equal_partial_credit([0.0, 0.0])
    (True, False, False)
    """
    return len(set(base_scores)) == 1 and outcome_of(base_scores, solved_at) is Outcome.MIXED


def has_no_signal(rewards: Sequence[float]) -> bool:
    """True when all rewards are equal, so that every group-relative advantage is 0."""
    return len(set(rewards)) <= 1


def group_id(run_id: str, attempt: int, phase: str, call: int, uid: str) -> str:
    """Return the name of a group, unique over epochs, resumptions and dynamic sampling.

    >>> group_id("20261121-053012-ab12", 1, "train", 37, "1042")
    '20261121-053012-ab12:1:train:37:1042'
    """
    return f"{run_id}:{attempt}:{phase}:{call}:{uid}"


# -- lines


class BadLineError(ValueError):
    """A line that is not a record; the message says why."""


class NewerSchemaError(DumpError):
    """A line written by a later version of rg_env."""


_encode_into = msgspec.json.Encoder().encode_into
_group_facts = attrgetter(*GROUP_FACTS)
_rollout_facts = attrgetter(*ROLLOUT_FACTS)


class _Buffer(threading.local):
    """What a thread encodes into, again and again."""

    def __init__(self) -> None:
        self.content = bytearray()


_buffer = _Buffer()


def to_line(record: Record) -> bytes:
    """Return the record as one line of JSON Lines, with its line feed. Raises MemoryError."""
    return _as_line(record)


def _as_line(value: object) -> bytes:
    # Not `Encoder.encode`: when its buffer cannot grow, it ends the process (msgspec 0.22.0). This raises.
    line = _buffer.content
    _encode_into(value, line)
    line += b"\n"
    return bytes(line)


def ledger_line(
    group: GroupRecord, text: FileKind | None, reason: str = "", place: tuple[int, int] | None = None
) -> bytes:
    """Return the ledger's line of `group`, whose text is in a file of the kind `text`, or in none for a reason.

    Args:
        place: the number of that file, and the byte at which the text's line begins.
    """
    # The keys in the order of `LedgerRecord`: `validate` expects the bytes that `to_line` makes of the record.
    facts: dict[str, Any] = dict(zip(GROUP_FACTS, _group_facts(group), strict=True))
    text_file, text_at = place or (None, None)
    facts |= {"text": text or "", "text_reason": reason, "text_file": text_file, "text_at": text_at}
    columns = zip(*map(_rollout_facts, group.rollouts), strict=True) if group.rollouts else [()] * len(ROLLOUT_FACTS)
    return _as_line(facts | dict(zip(ROLLOUT_FACTS, columns, strict=True)))


def without_place(line: bytes) -> bytes:
    """Return a line of the ledger, as our writer makes it, without the place of its text."""
    # Neither is found within a text, whose quotes JSON escapes.
    start = line.find(b',"text_file":')
    end = line.find(b',"repetition":', start)
    if start < 0 or end < 0:
        return line
    return line[:start] + line[end:]


def from_line[R: Record](kind: type[R], line: bytes) -> R:
    """Return the record of a class, such as `FileKind.LEDGER.record`, in a line.

    Raises:
        BadLineError: the line is torn, joined to another, or does not fit.
        NewerSchemaError: it needs a later version of rg_env.
    """
    version, fault = 0, None
    try:
        record: R = _decoder(kind).decode(line)
        version = record.schema_version
    except (ValueError, RecursionError) as error:  # of all that msgspec raises, UnicodeDecodeError is a ValueError, too
        reason = "not a record" if isinstance(error, msgspec.ValidationError) else "torn or joined to another"
        fault = BadLineError(f"{reason}: {error}")
        if kind is GroupRecord and _is_of_atropos(line):
            fault = BadLineError(
                "a line of Atropos' environment: `rg-env dumps import atropos` makes a dump of its files"
            )
        with suppress(ValueError, RecursionError):
            # A line of a later version may not fit for just that reason, and must not count as corrupt.
            version = _decoder(Record).decode(line).schema_version
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"written with schema version {version}; this rg_env reads up to {SCHEMA_VERSION}: update rg_env"
        )
    if fault:
        raise fault
    return record


def _is_of_atropos(line: bytes) -> bool:
    """Return whether a line that is not a record has the two keys of Atropos' environment and none of ours."""
    try:
        keys = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(keys, dict) and keys.keys() == {"item_id", "rollouts"}


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
