"""The ledger as polars frames: what statistics are made of.

Invariant: the same rows as a loop over `Dump.ledger()` gives, one per rollout, with null for what is absent. A sound
file is read by polars; only one with a damaged line is taken apart line by line.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl

from rg_env.dump.codec import to_line
from rg_env.dump.lines import open_lines
from rg_env.dump.schema import SCHEMA_VERSION, LedgerRecord
from rg_env.errors import DumpError

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
}
"""Columns that hold one value for a rollout: lists in the ledger's lines, plain in `Dump.ledger_frame()`."""

_LINE_SCHEMA = GROUP_SCHEMA | {name: pl.List(dtype) for name, dtype in ROLLOUT_SCHEMA.items()}
_EMPTY_MEANS_NONE = ("level", "text", "text_reason", "violation", "stop_reason", "policy_version")


def read_ledger(path: Path, line_by_line: Callable[[], Iterable[LedgerRecord]]) -> pl.DataFrame:
    """The groups of a ledger file: one row each, with lists for the rollouts.

    Args:
        path: the file.
        line_by_line: the records of the same file, for when polars refuses it; deals with damaged lines.

    Raises:
        DumpError: the file cannot be read.
    """
    try:
        with open_lines(path) as lines:
            frame = _parse(lines.read())
    except OSError as error:
        raise DumpError(f"{path} cannot be read ({error.strerror})") from None
    except pl.exceptions.PolarsError:
        return from_records(line_by_line())
    foreign = frame["group_id"].has_nulls() or frame["base_score"].has_nulls()
    newer = frame["schema_version"].ge(SCHEMA_VERSION + 1).any()
    return from_records(line_by_line()) if foreign or newer else frame


def from_records(records: Iterable[LedgerRecord]) -> pl.DataFrame:
    """As `read_ledger`, from records."""
    return _parse(b"".join(map(to_line, records)))


def one_row_per_rollout(groups: pl.DataFrame) -> pl.DataFrame:
    """Groups without rollouts have no row; empty strings that stand for "none" become null."""
    return (
        groups.filter(pl.col("score").list.len() > 0)
        .explode(list(ROLLOUT_SCHEMA))
        .with_columns(pl.col(_EMPTY_MEANS_NONE).replace("", None))
    )


def last_attempts_only(frame: pl.DataFrame) -> pl.DataFrame:
    """Leave out what a later attempt has done again. What belongs to no step replaces nothing."""
    latest = pl.col("attempt").max().over("run_id", "phase", "step")
    return frame.filter(pl.col("step").is_null() | (pl.col("attempt") == latest))


def _parse(lines: bytes) -> pl.DataFrame:
    if not lines.strip():
        return pl.DataFrame(schema=_LINE_SCHEMA)
    return pl.read_ndjson(io.BytesIO(lines), schema=_LINE_SCHEMA)
