"""Training data from a dump: supervised examples (`Sft`) and preference pairs (`Dpo`), as JSON lines or Parquet.

Invariant: what a model is trained toward (the response of `Sft`, the chosen one of `Dpo`) is solved, unless a lower
minimum score is asked for; it follows the format and is not truncated. A response is written exactly as it was
recorded, except for a think block that is dropped on request. Each rollout (`Sft`) or group (`Dpo`) that is read and
not written is counted once, under the first reason that applies. The file appears whole or not at all. Memory grows by
the digests of the examples, not with their texts.
Not covered: prompts without responses, for which `rg-env dataset` makes rows; balancing tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from itertools import batched
from pathlib import Path
from typing import Any, ClassVar, Protocol

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from rg_env.analysis.reparse import without_think
from rg_env.atomic import replacing
from rg_env.choices import Think
from rg_env.dump import Dump, GroupRecord, Phase, RolloutRecord
from rg_env.dump.manifest import default_settings
from rg_env.dump.runs import settings_of_attempts
from rg_env.dump.schema import Message, as_violation
from rg_env.errors import RGEnvError
from rg_env.scoring.types import Status

SUFFIXES = (".jsonl", ".parquet")
ROWS_AT_ONCE = 1000
"""Rows of a Parquet row group."""

Row = dict[str, Any]
"""One line of the data set; its keys and types are those of the kind's `schema`."""
_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_ORIGIN = [(name, pa.string()) for name in ("task", "item", "group_id", "phase")] + [("step", pa.int64())]


class ExportError(RGEnvError):
    """An export with invalid settings, or one that cannot be written."""


class Reason(StrEnum):
    """Why something was left out; the value is shown to the user."""

    EVALUATION = "evaluation groups (training on them contaminates later evaluations; --include-eval)"
    UNREADABLE = "lines that could not be read"
    NO_TEXT = "groups that are only in the ledger: their text was not kept"
    NO_PAIR = "groups without a good response (--min-score) and one that is worse by the margin (--margin)"

    NO_RESPONSE = "rollouts that do not end with a response to a prompt"
    BAD_TEXT = "rollouts with characters that cannot be encoded in UTF-8"
    NO_SCORE = "rollouts without a score, most because their scorer failed (a score of 0 is then meaningless)"
    VIOLATION = "rollouts that violate the format"
    REJECTED = "rollouts whose answer was rejected by the guard"
    TRUNCATED = "rollouts truncated at the length limit"
    LOW_SCORE = "rollouts below the minimum score (--min-score)"
    THINK_STAYS = "rollouts whose think block cannot be removed (--think drop)"
    NOT_BEST = "rollouts beyond the best of their group (--per-group)"
    DUPLICATE = "examples that differ from an earlier one only in whitespace"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rollout with its text as it would be exported.

    Attributes:
        flaw: why nothing should be trained toward it; None if it is a good response.
    """

    prompt: Sequence[Message]
    response: str
    record: RolloutRecord
    flaw: Reason | None

    @property
    def completion(self) -> list[Message]:
        return [{"role": "assistant", "content": self.response}]


class ExportKind(Protocol):
    """A kind of data set, with its settings.

    Attributes:
        min_score: minimum base score of what is trained toward, in [0, 1]; None: that of a solved rollout.
        schema: columns of a line.
    """

    schema: ClassVar[pa.Schema]

    @property
    def min_score(self) -> float | None: ...

    def rows(self, candidates: Sequence[Candidate], left_out: Counter[Reason]) -> Iterator[tuple[Row, str]]:
        """The lines made from a group's rollouts, each with a text that is equal for duplicates."""


@dataclass(frozen=True, slots=True)
class Sft:
    """`messages`, as TRL's `SFTTrainer` expects them.

    Attributes:
        min_score: minimum base score, in [0, 1]; None: that of a solved rollout.
        per_group: maximum number of responses per group; the best come first.
    """

    min_score: float | None = None
    per_group: int = 1

    schema: ClassVar[pa.Schema] = pa.schema(
        [("messages", _MESSAGES), ("base_score", pa.float64()), ("score", pa.float64()), *_ORIGIN]
    )

    def __post_init__(self) -> None:
        _check_min_score(self.min_score)
        _check("--per-group", self.per_group, self.per_group >= 1, "at least 1")

    def rows(self, candidates: Sequence[Candidate], left_out: Counter[Reason]) -> Iterator[tuple[Row, str]]:
        left_out.update(one.flaw for one in candidates if one.flaw is not None)
        # Ties are not broken by length: that would teach the model to skip reasoning wherever guessing works.
        good = [one for one in candidates if one.flaw is None]
        good.sort(key=lambda one: (-one.record.base_score, -one.record.score, one.record.repetition))
        left_out[Reason.NOT_BEST] += len(good[self.per_group :])
        for best in good[: self.per_group]:
            scores = {"base_score": best.record.base_score, "score": best.record.score}
            yield {"messages": [*best.prompt, *best.completion], **scores}, _identity(best.prompt, best.response)


@dataclass(frozen=True, slots=True)
class Dpo:
    """`prompt`, `chosen`, `rejected`, as TRL's `DPOTrainer` expects them: a group's best and worst response by score.

    Attributes:
        min_score: minimum base score of the chosen response, in [0, 1]; None: that of a solved rollout.
        margin: minimum difference between the two scores, which are those after the length penalty; in (0, 1].
    """

    min_score: float | None = None
    margin: float = 0.5

    schema: ClassVar[pa.Schema] = pa.schema(
        [
            *((name, _MESSAGES) for name in ("prompt", "chosen", "rejected")),
            *((name, pa.float64()) for name in ("score_chosen", "score_rejected")),
            *_ORIGIN,
        ]
    )

    def __post_init__(self) -> None:
        _check_min_score(self.min_score)
        _check("--margin", self.margin, 0 < self.margin <= 1, "above 0 and at most 1")

    def rows(self, candidates: Sequence[Candidate], left_out: Counter[Reason]) -> Iterator[tuple[Row, str]]:
        good = [one for one in candidates if one.flaw is None]
        chosen = max(good, key=lambda one: (one.record.score, one.record.base_score), default=None)
        rejected = min(candidates, key=lambda one: one.record.score, default=None)
        if (
            chosen is None
            or rejected is None
            or chosen.record.score - rejected.record.score < self.margin
            or chosen.prompt != rejected.prompt
            or chosen.response == rejected.response
        ):
            left_out[Reason.NO_PAIR] += 1
            return
        row = {
            "prompt": list(chosen.prompt),
            "chosen": chosen.completion,
            "rejected": rejected.completion,
            "score_chosen": chosen.record.score,
            "score_rejected": rejected.record.score,
        }
        yield row, _identity(chosen.prompt, chosen.response, rejected.response)


@dataclass
class Exported:
    """The result of an export.

    Attributes:
        groups, rollouts: number read from texts.
        per_task: examples written, by task.
        left_out: how many groups, rollouts and examples were not written, by reason.
        notes: what the dump does not record, and warnings; one sentence each.
    """

    groups: int = 0
    rollouts: int = 0
    per_task: Counter[str] = field(default_factory=Counter)
    left_out: Counter[Reason] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.per_task.total()


def export(
    dump: Dump,
    kind: ExportKind,
    out: Path,
    *,
    think: Think = Think.KEEP,
    include_eval: bool = False,
    force: bool = False,
) -> Exported:
    """Write a data set.

    Args:
        dump: from `open_run`, or a part of it.
        kind: `Sft` or `Dpo`.
        out: ends in `.jsonl` or `.parquet`, which sets the format. Its folder is created if needed.
        think: whether responses keep their think block.
        include_eval: include evaluation groups.
        force: replace a file of this name.

    Returns:
        what was written and left out. If no example remains, `rows` is 0 and no file is written.

    Raises:
        ExportError: `out` cannot be written.
        DumpError: as `Dump.groups`.
    """
    if out.suffix not in SUFFIXES:
        raise ExportError(f"--out {out}: the name must end in {' or '.join(SUFFIXES)}")
    if out.exists() and (out.is_dir() or not force):
        raise ExportError(f"{out} is a folder" if out.is_dir() else f"{out} exists; replace it with --force")
    result = Exported()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as draft:
            _write(_examples(dump, kind, think, include_eval, result), draft, out.suffix, kind.schema)
            if not result.rows:
                raise _NothingLeftError
    except _NothingLeftError:
        pass
    except OSError as error:
        raise ExportError(f"{out} cannot be written ({error.strerror}): choose another --out") from None
    wanted = (pl.col("text") == "") & (pl.lit(include_eval) | (pl.col("phase") != Phase.EVAL.value))
    without_text = dump.scan().filter(wanted).select(pl.col("group_id").n_unique())
    result.left_out[Reason.NO_TEXT] += without_text.collect(engine="streaming").item()
    result.left_out[Reason.UNREADABLE] += len(dump.problems)
    return result


class _NothingLeftError(Exception):
    """No example is left: the draft is removed."""


def _examples(dump: Dump, kind: ExportKind, think: Think, include_eval: bool, result: Exported) -> Iterator[Row]:
    """The lines of all groups; counts them and what is left out."""
    seen: set[bytes] = set()
    settings = settings_of_attempts(dump.runs)
    evaluations = asking = 0
    for group in dump.groups():
        result.groups += 1
        result.rollouts += len(group.rollouts)
        if group.phase == Phase.EVAL and not include_eval:
            result.left_out[Reason.EVALUATION] += 1
            continue
        evaluations += group.phase == Phase.EVAL
        asking += _asks_to_think(group)
        origin = {name: getattr(group, name) for name, _ in _ORIGIN}
        found = settings.get((group.run_id, group.attempt)) or default_settings()
        min_score = kind.min_score
        if min_score is None:
            min_score = found.config.solved_at if group.solved_at is None else group.solved_at
        for row, identity in kind.rows(list(_candidates(group, min_score, think, result.left_out)), result.left_out):
            digest = blake2b(identity.encode(), digest_size=16).digest()
            if digest in seen:
                result.left_out[Reason.DUPLICATE] += 1
            else:
                seen.add(digest)
                result.per_task[group.task] += 1
                yield row | origin
    if evaluations:
        result.notes.append(
            f"CONTAMINATED: {evaluations} evaluation groups are included (--include-eval). "
            "A policy trained on this set can no longer be evaluated on those questions."
        )
    if asking and think is Think.DROP:
        result.notes.append("Think blocks were dropped from the responses, but some system prompts still ask for one.")


def _write(rows: Iterable[Row], path: Path, suffix: str, schema: pa.Schema) -> None:
    if suffix == ".jsonl":
        with path.open("wb") as file:
            file.writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
        return
    with pq.ParquetWriter(path, schema, compression="zstd") as table:
        for batch in batched(rows, ROWS_AT_ONCE):
            table.write_table(pa.Table.from_pylist(list(batch), schema=schema))


def _candidates(group: GroupRecord, min_score: float, think: Think, left_out: Counter[Reason]) -> Iterator[Candidate]:
    """The rollouts of a group with a usable text and a reliable score."""
    for rollout in group.rollouts:
        *prompt, last = rollout.conversation or [{"role": "", "content": ""}]
        response: str | None = last["content"]
        if not prompt or last["role"] != "assistant" or not response:
            left_out[Reason.NO_RESPONSE] += 1
        elif not all(_is_utf8(message["role"] + message["content"]) for message in rollout.conversation):
            left_out[Reason.BAD_TEXT] += 1
        elif rollout.status.is_scorer_failure or any(map(math.isnan, (rollout.base_score, rollout.score))):
            left_out[Reason.NO_SCORE] += 1
        elif think is Think.DROP and not (response := without_think(response, as_violation(rollout.violation))):
            left_out[Reason.THINK_STAYS] += 1
        else:
            yield Candidate(prompt, response, rollout, _flaw(rollout, min_score))


def _flaw(record: RolloutRecord, min_score: float) -> Reason | None:
    """Why nothing should be trained toward a response; None if it is a good one."""
    if record.violation:
        return Reason.VIOLATION
    if record.status is Status.REJECTED:
        return Reason.REJECTED
    if record.truncated:
        return Reason.TRUNCATED
    return Reason.LOW_SCORE if record.base_score < min_score else None


def _identity(prompt: Sequence[Message], *responses: str) -> str:
    """A text that is equal for examples that differ only in whitespace."""
    texts = [message["role"] + "\0" + message["content"] for message in prompt]
    return "\0\0".join(" ".join(text.split()) for text in (*texts, *responses))


def _asks_to_think(group: GroupRecord) -> bool:
    first = group.rollouts[0].conversation[:1] if group.rollouts else []
    return any(message["role"] == "system" and "<think>" in message["content"] for message in first)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_min_score(value: float | None) -> None:
    if value is not None:
        _check("--min-score", value, 0 <= value <= 1, "from 0 to 1")


def _check(option: str, value: float, valid: bool, requirement: str) -> None:
    """Raise an `ExportError` that names the option and the requirement, unless the value is valid."""
    if not valid:
        raise ExportError(f"{option} {value:g}: must be {requirement}")
