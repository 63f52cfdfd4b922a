"""Dump files as polars frames, one row per rollout: what statistics are made of.

Invariant: the same rows as a loop over the records gives, with null for what is absent. polars reads what is sound; a
chunk that it refuses, or in which something does not look like a record, is taken apart line by line instead, so that
a damaged line costs itself only. Strings that UTF-8 cannot carry stay escaped as they are in the file (see `codec`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import polars as pl

from rg_env.dump.codec import to_line
from rg_env.dump.read.chunks import Part
from rg_env.dump.schema import (
    SCHEMA_VERSION,
    FileKind,
    GroupRecord,
    LedgerRecord,
    NotKept,
    Outcome,
    Phase,
    TrainedRecord,
    has_no_signal,
    outcome_of,
)
from rg_env.scoring.types import Status, Violation

GROUP_SCHEMA: dict[str, pl.DataType] = {
    "item_id": pl.String(),
    "schema_version": pl.Int64(),
    "group_id": pl.String(),
    "run_id": pl.String(),
    "attempt": pl.Int64(),
    "phase": pl.String(),
    "step": pl.Int64(),
    "call": pl.Int64(),
    "uid": pl.String(),
    "task": pl.String(),
    "level": pl.String(),
    "outcome": pl.String(),
    "no_signal": pl.Boolean(),
    "text": pl.String(),
    "text_reason": pl.String(),
}
"""Columns that hold one value for a group."""

ROLLOUT_SCHEMA: dict[str, pl.DataType] = {
    "repetition": pl.Int64(),
    "score": pl.Float64(),
    "reward": pl.Float64(),
    "base_score": pl.Float64(),
    "raw_score": pl.Float64(),
    "tagged_score": pl.Float64(),
    "violation": pl.String(),
    "status": pl.String(),
    "response_tokens": pl.Int64(),
    "stop_reason": pl.String(),
    "truncated": pl.Boolean(),
    "penalty_factor": pl.Float64(),
    "policy_version": pl.String(),
    "normalised": pl.Boolean(),
}
"""Columns that hold one value for a rollout: lists in the ledger's lines, plain in every frame."""

_MESSAGE = pl.Struct({"role": pl.String(), "content": pl.String()})
GROUP_TEXT_SCHEMA: dict[str, pl.DataType] = {"task_config": pl.String(), "entry": pl.String()}
ROLLOUT_TEXT_SCHEMA: dict[str, pl.DataType] = {
    "conversation": pl.List(_MESSAGE),
    "answer": pl.String(),
    "detail": pl.String(),
}
"""With `GROUP_TEXT_SCHEMA`: what only the files with texts have."""

TRAINED_SCHEMA: dict[str, pl.DataType] = {
    "run_id": pl.String(),
    "attempt": pl.Int64(),
    "step": pl.Int64(),
    "group_id": pl.String(),
    "rollouts": pl.Int64(),
    "schema_version": pl.Int64(),
}
SCHEMA = GROUP_SCHEMA | ROLLOUT_SCHEMA
TEXT_SCHEMA = GROUP_SCHEMA | GROUP_TEXT_SCHEMA | ROLLOUT_SCHEMA | ROLLOUT_TEXT_SCHEMA

GROUP_INDEX = "group_index"
"""A number for each group of a frame, for who does not need the group's id."""

REPLACED_BY = ("phase", "step", "attempt")
"""The columns that say which attempt at what a row comes from."""

_OF_GROUP = GROUP_SCHEMA | GROUP_TEXT_SCHEMA
_OF_ROLLOUT = ROLLOUT_SCHEMA | ROLLOUT_TEXT_SCHEMA
_EMPTY_MEANS_NONE = {"level", "text", "text_reason", "violation", "stop_reason", "policy_version", "answer"}
_MAY_BE_NULL = {"step", "response_tokens"} | {name for name, dtype in ROLLOUT_SCHEMA.items() if dtype == pl.Float64()}
_ALLOWED: Mapping[str, list[str]] = {
    "violation": ["", *(v.value for v in Violation)],
    "status": [s.value for s in Status],
    "outcome": [o.value for o in Outcome],
    "text": ["", *(k.value for k in FileKind)],
    "text_reason": ["", *(r.value for r in NotKept)],
}
_SINCE_2 = {"normalised"}
"""False in lines of version 1, which lack it."""

_VERSION_1 = re.compile(rb'"schema_version":1,')
_HEAD = 4096
"""Bytes at the beginning of a chunk that tell its version, but for chunks of several versions."""

_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
"""Where polars would read a NUL; escaped by `codec`, and so only in Atropos' files."""


def phase_of(kind: FileKind) -> Phase:
    """The phase of a group whose line does not name it."""
    return Phase.EVAL if kind is FileKind.EVAL else Phase.TRAIN


LineByLine = Callable[[Part], Iterable[GroupRecord | LedgerRecord | TrainedRecord]]
"""The records of a part, for when polars cannot judge it; deals with damaged lines."""


class _UnsoundError(Exception):
    """Something in a chunk that only the codec can judge."""


def read_bundle(parts: Sequence[Part], columns: Collection[str], line_by_line: LineByLine) -> pl.DataFrame:
    """The rollouts of a bundle: one row each, in order. Groups without rollouts have no row.

    Args:
        parts: of one run and kind, see `chunks.bundles`.
        columns: which of `SCHEMA`, or for files with texts of `TEXT_SCHEMA`, to read.
        line_by_line: called for the parts that polars cannot judge.

    Returns:
        `GROUP_INDEX`, counted within the bundle, and `columns` in that order.
    """
    kind = parts[0].file.kind
    try:
        return _tidy(_ours(b"".join(part.data for part in parts), kind, columns), columns)
    except (_UnsoundError, pl.exceptions.PolarsError):
        return concat_groups(_tidy(_read_part(part, columns, line_by_line), columns) for part in parts)


def read_groups(parts: Sequence[Part], line_by_line: LineByLine) -> pl.DataFrame:
    """The groups of a bundle of files with texts, in order: a row each, of the shape of a line of the ledger.

    Args:
        parts: of one run and kind, see `chunks.bundles`. Where polars can judge one, each of its lines is a group.
        line_by_line: called for the parts that polars cannot judge; then each of its records is a group.

    Returns:
        `GROUP_SCHEMA`, and `ROLLOUT_SCHEMA` as lists.
    """
    kind = parts[0].file.kind
    with suppress(_UnsoundError, pl.exceptions.PolarsError):
        return _in_groups(_ours(b"".join(part.data for part in parts), kind, SCHEMA), parts)
    return pl.concat([_read_groups_of(part, line_by_line) for part in parts])


def concat_groups(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Frames one below the other, at least one, with `GROUP_INDEX` counted on."""
    return pl.concat(list(count_on(frames)))


def count_on(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The frames, with `GROUP_INDEX` unique over all of them."""
    start = 0
    for frame in frames:
        yield frame.with_columns(pl.col(GROUP_INDEX) + start)
        start += 1 + (frame.select(pl.col(GROUP_INDEX).max()).item() or 0)


def replaced(frames: Iterable[pl.DataFrame]) -> frozenset[tuple[str, int | None, int]]:
    """The `REPLACED_BY` of rows that a later attempt has taken back: from the first step that it trained again on, even
    where it did not get as far. What belongs to no step replaces nothing, and is not replaced.
    """
    seen = pl.concat(
        [pl.DataFrame(schema={name: SCHEMA[name] for name in REPLACED_BY})]
        + [frame.select(REPLACED_BY).drop_nulls("step").unique() for frame in frames]
    ).unique()
    training = seen.filter(pl.col("phase") == "train").group_by("attempt").agg(pl.col("step").min()).rows()

    def went_back_to(attempt: int) -> int | None:
        return min((step for later, step in training if later > attempt), default=None)

    back = {attempt: went_back_to(attempt) for attempt in seen["attempt"].unique()}
    abandoned = pl.col("step") >= pl.col("attempt").replace_strict(back, return_dtype=pl.Int64())
    repeated = pl.col("attempt") < pl.col("attempt").max().over("phase", "step")
    return frozenset(seen.filter(abandoned.fill_null(False) | repeated).iter_rows())


def without(frame: pl.DataFrame, replaced: Collection[tuple[str, int | None, int]]) -> pl.DataFrame:
    """The rows whose `REPLACED_BY` are none of these."""
    schema = {name: SCHEMA[name] for name in REPLACED_BY}
    old = pl.DataFrame(list(replaced), schema=schema, orient="row")
    return frame.join(old, on=REPLACED_BY, how="anti", maintain_order="left")


def trained_frame(records: Iterable[TrainedRecord]) -> pl.DataFrame:
    """One row per record."""
    return pl.DataFrame(list(records), schema=TRAINED_SCHEMA)


def _read_part(part: Part, columns: Collection[str], line_by_line: LineByLine) -> pl.DataFrame:
    with suppress(_UnsoundError, pl.exceptions.PolarsError):
        return _judged_by_polars(part, columns)
    lines = b"".join(map(to_line, line_by_line(part)))
    return _explode(_parse(lines, part.file.kind, {"base_score", *columns}, strict=False), part.file.kind)


def _read_groups_of(part: Part, line_by_line: LineByLine) -> pl.DataFrame:
    with suppress(_UnsoundError, pl.exceptions.PolarsError):
        return _in_groups(_judged_by_polars(part, SCHEMA), [part])
    found = [record for record in line_by_line(part) if isinstance(record, GroupRecord)]
    lines = b"".join(to_line(LedgerRecord.of(group, part.file.kind, None)) for group in found)
    return _parse(lines, FileKind.LEDGER, SCHEMA, strict=False).select(
        *(_none_for_empty(name, pl.col(name)) for name in GROUP_SCHEMA),
        *(pl.col(name).list.eval(_none_for_empty(name, pl.element())) for name in ROLLOUT_SCHEMA),
    )


def _in_groups(rollouts: pl.DataFrame, parts: Sequence[Part]) -> pl.DataFrame:
    """Rollouts put together again, where every line has some."""
    of_group = [pl.col(name).first() for name in GROUP_SCHEMA]
    by_group = _tidy(rollouts, SCHEMA).group_by(GROUP_INDEX, maintain_order=True)
    groups = by_group.agg(*of_group, *ROLLOUT_SCHEMA).drop(GROUP_INDEX)
    if groups.height != sum(1 for part in parts for _ in part.numbered()):
        raise _UnsoundError
    return groups


def _judged_by_polars(part: Part, columns: Collection[str]) -> pl.DataFrame:
    with suppress(_UnsoundError, pl.exceptions.PolarsError):
        return _ours(part.data, part.file.kind, columns)
    return _atropos(part, columns)


def _ours(data: bytes, kind: FileKind, columns: Collection[str]) -> pl.DataFrame:
    """Lines that are all in our current format and all whole."""
    wanted = {"schema_version", "base_score", "status", *columns}
    lacks = wanted & _SINCE_2 if _VERSION_1.search(data, 0, _HEAD) else set()
    groups = _parse(data, kind, wanted - lacks)
    must_be = [pl.col(name).is_not_null().all() for name in groups.columns if name not in _MAY_BE_NULL]
    if not groups.select(
        pl.all_horizontal(
            *must_be,
            pl.col("schema_version").is_between(1, SCHEMA_VERSION).all(),
            (pl.col("schema_version") == 1).all() if lacks else True,
        )
    ).item():
        raise _UnsoundError
    rollouts = _explode(groups, kind).with_columns(pl.lit(False).alias(name) for name in lacks)
    must_be = [pl.col(name).is_not_null().all() for name in rollouts.columns if name not in _MAY_BE_NULL]
    must_be += [pl.col(name).is_in(_ALLOWED[name]).all() for name in rollouts.columns if name in _ALLOWED]
    if not rollouts.select(pl.all_horizontal(must_be)).item():
        raise _UnsoundError
    return rollouts


def _atropos(part: Part, columns: Collection[str]) -> pl.DataFrame:
    """Lines that are all as Atropos writes them, with what they lack filled in as `codec.from_line` does."""
    if not part.file.kind.holds_text:
        raise _UnsoundError
    groups = _parse(part.data, part.file.kind, TEXT_SCHEMA)
    rollouts = _explode(groups, part.file.kind)
    theirs = ("item_id", "score", "conversation")
    lacking = [name for name in rollouts.columns if name not in (GROUP_INDEX, *theirs, "text", "text_reason")]
    sound = pl.all_horizontal(
        *(pl.col(name).is_not_null().all() for name in theirs),
        *(pl.col(name).is_null().all() for name in lacking),
        pl.col("conversation").list.eval(pl.element().struct.field("content").is_null()).list.any().not_().all(),
    )
    if (
        _LONE_SURROGATE.search(part.data)
        or groups["rollouts"].has_nulls()
        or groups.height != part.lines
        or not rollouts.select(sound).item()
    ):
        raise _UnsoundError
    values: dict[str, pl.Expr] = {
        "schema_version": pl.lit(0),
        "group_id": pl.format(f"{part.file.path.stem}:{{}}", pl.col(GROUP_INDEX) + part.first_line),
        "run_id": pl.lit(part.file.run_id),
        "attempt": pl.lit(1),
        "phase": pl.lit(str(phase_of(part.file.kind))),
        "call": pl.lit(0),
        "uid": pl.lit(""),
        "task": pl.col("item_id"),
        "level": pl.lit(""),
        "task_config": pl.lit("{}"),
        "entry": pl.lit("{}"),
        "reward": pl.col("score"),
        "base_score": pl.col("score"),
        "violation": pl.lit(""),
        "status": pl.lit(str(Status.OK)),
        "detail": pl.lit(""),
        "answer": pl.lit(""),
        "stop_reason": pl.lit(""),
        "truncated": pl.lit(False),
        "penalty_factor": pl.lit(1.0),
        "repetition": pl.int_range(pl.len()).over(GROUP_INDEX),
        "policy_version": pl.lit(""),
        "normalised": pl.lit(False),
    }
    rollouts = rollouts.with_columns(**{name: value for name, value in values.items() if name in columns})
    if not {"outcome", "no_signal"}.isdisjoint(columns):
        rollouts = rollouts.drop("outcome", "no_signal").join(_judged(rollouts), on=GROUP_INDEX, maintain_order="left")
    return rollouts


def _judged(rollouts: pl.DataFrame) -> pl.DataFrame:
    scores = rollouts.group_by(GROUP_INDEX).agg(pl.col("score"))
    return scores.select(
        GROUP_INDEX,
        outcome=pl.Series([str(outcome_of(of_group)) for of_group in scores["score"].to_list()]),
        no_signal=pl.Series([has_no_signal(of_group) for of_group in scores["score"].to_list()]),
    )


def _parse(data: bytes, kind: FileKind, columns: Collection[str], *, strict: bool = True) -> pl.DataFrame:
    """One row per line, with lists for the rollouts; null where a line has no such key or, unless `strict`, something
    else than the column holds, as foreign files may.
    """
    of_rollout = {name: dtype for name, dtype in _OF_ROLLOUT.items() if name in columns}
    schema: dict[str, pl.DataType] = {name: dtype for name, dtype in _OF_GROUP.items() if name in columns}
    if kind.holds_text:
        schema = {name: dtype for name, dtype in schema.items() if name not in ("text", "text_reason")}
        schema["rollouts"] = pl.List(pl.Struct(of_rollout))
    else:
        schema |= {name: pl.List(dtype) for name, dtype in of_rollout.items()}
    if not data.strip():
        return pl.DataFrame(schema=schema)
    return pl.scan_ndjson(io.BytesIO(data), schema=schema, ignore_errors=not strict).collect(engine="streaming")


def _explode(groups: pl.DataFrame, kind: FileKind) -> pl.DataFrame:
    """One row per rollout, with `GROUP_INDEX`."""
    groups = groups.with_row_index(GROUP_INDEX).with_columns(pl.col(GROUP_INDEX).cast(pl.Int64))
    if kind.holds_text:
        groups = groups.with_columns(text=pl.lit(str(kind)), text_reason=pl.lit(""))
        return groups.filter(pl.col("rollouts").list.len() > 0).explode("rollouts").unnest("rollouts")
    lists = [name for name, dtype in groups.schema.items() if isinstance(dtype, pl.List)]
    return groups.filter(pl.col(lists[0]).list.len() > 0).explode(lists)


def _tidy(rollouts: pl.DataFrame, columns: Collection[str]) -> pl.DataFrame:
    """The columns that were asked for; empty strings that stand for "none" become null."""
    types = pl.Schema({name: TEXT_SCHEMA[name] for name in columns})
    values = [_none_for_empty(name, pl.col(name)) for name in columns]
    return rollouts.select(GROUP_INDEX, *columns).cast(types).with_columns(values)


def _none_for_empty(name: str, value: pl.Expr) -> pl.Expr:
    return value.replace("", None) if name in _EMPTY_MEANS_NONE else value
