"""The rollouts that statistics are computed from, in compact form.

Invariant: `whole` is False if a condition may have removed some rollouts of a group but not others, because pass@k and
outcomes of the rest would be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

from rg_env.analysis.where import ConditionError, parse_conditions
from rg_env.dump.read.dump import Dump
from rg_env.dump.read.frames import GROUP_INDEX
from rg_env.dump.schema import Outcome
from rg_env.errors import DumpError
from rg_env.scoring.types import UNCOUNTED, Status, Violation

if TYPE_CHECKING:
    import pyarrow as pa
    import ray.data

COLUMNS: dict[str, pl.DataType] = {
    "run_id": pl.Categorical(),
    "phase": pl.Categorical(),
    "step": pl.Int64(),
    "task": pl.Categorical(),
    "complexity": pl.Float64(),
    "outcome": pl.Enum(Outcome),
    "no_signal": pl.Boolean(),
    "score": pl.Float64(),
    "reward": pl.Float64(),
    "base_score": pl.Float64(),
    "raw_score": pl.Float64(),
    "tagged_score": pl.Float64(),
    "violation": pl.Enum(Violation),
    "status": pl.Enum(Status),
    "response_tokens": pl.Int64(),
    "truncated": pl.Boolean(),
    "attempt": pl.Int32(),
    "started_at": pl.Float64(),
    "ended_at": pl.Float64(),
    "generation_seconds": pl.Float32(),
    "scoring_seconds": pl.Float32(),
}
"""The columns that statistics need, and their types in memory."""

TO_MATCH: dict[str, pl.DataType] = {"item": pl.String(), "group_id": pl.String()}
"""The columns that matching the questions of two runs needs in addition."""

NOT_IN_TABLES = frozenset({"raw_score", "tagged_score", "reward"})
"""The columns that tables need only with `--details`."""


@dataclass(frozen=True)
class Sample:
    """Rollouts to compute statistics from.

    Attributes:
        rollouts: `COLUMNS`, perhaps `TO_MATCH`, and `GROUP_INDEX`, by which it is sorted; one row per rollout.
        whole: whether all groups are complete.
        no_response: number of matching rollouts that were left out, because their requests failed or their questions
            cannot be made again.
    """

    rollouts: pl.DataFrame
    whole: bool = True
    no_response: int = 0
    _made: dict[Hashable, pl.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: Hashable, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """The result of `make`, cached under a name."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]


Source: TypeAlias = "Dump | pl.DataFrame | ray.data.Dataset | Sample"
"""A dump; rows as in `Dump.ledger_frame`, as a polars frame or a Ray dataset (`Dump.to_ray`); or a sample."""


def sample_of(
    source: Source, where: Sequence[str] = (), *, to_match: bool = False, without: Collection[str] = ()
) -> Sample:
    """Read the rollouts that match the conditions. Those without a response are left out and counted.

    Args:
        source: read once. Ray's workers select the columns of a Ray dataset.
        where: see `parse_conditions`; must be empty for a sample.
        to_match: also read the columns `TO_MATCH`.
        without: columns that are not read, which is faster, and null in the sample.

    Raises:
        ConditionError: a condition is invalid, or nothing matches.
        DumpError: nothing could be read.
    """
    conditions = parse_conditions(where)
    if isinstance(source, Sample):
        if conditions:
            raise ConditionError("a sample cannot be filtered again: pass `where` to `sample_of`")
        return source
    tests = [condition.test for condition in conditions]
    columns = COLUMNS | TO_MATCH if to_match else COLUMNS
    read = [name for name in columns if name not in without]
    wanted = list(dict.fromkeys([*read, *(condition.column for condition in conditions)]))
    unread = [pl.lit(None).alias(name) for name in without]
    tasks: set[str] = set()
    failed = 0

    def narrow(frame: pl.DataFrame, group: str) -> pl.DataFrame:
        nonlocal failed
        tasks.update(frame["task"].unique())
        matching = frame.filter(*tests).with_columns(unread).select(list(dict.fromkeys([group, *columns])))
        matching = matching.cast(pl.Schema(columns))
        found = matching.filter(pl.col("status").is_in(UNCOUNTED).fill_null(False).not_())
        failed += matching.height - found.height
        return found

    if isinstance(source, Dump):
        rollouts = _concat((narrow(frame, GROUP_INDEX) for frame in source.frames(wanted)), columns)
    elif isinstance(source, pl.DataFrame):
        rollouts = _numbered(narrow(source, "group_id"), columns)
    else:
        names = list(dict.fromkeys(["group_id", *wanted]))
        batches = source.select_columns(names).iter_batches(batch_size=None, batch_format="pyarrow")
        parts = (narrow(_from_arrow(batch), "group_id") for batch in batches)
        rollouts = _numbered(_concat(parts, columns, "group_id"), columns)
    if rollouts.is_empty() and failed:
        raise DumpError(f"nothing can be counted: all {failed} matching rollouts are {' or '.join(UNCOUNTED)}")
    if rollouts.is_empty() and tasks:
        raise ConditionError(f"no rollout matches {' and '.join(where)}; the tasks are {', '.join(sorted(tasks))}")
    if rollouts.is_empty() and isinstance(source, Dump):
        raise DumpError(_nothing_read(source))
    rollouts = rollouts.set_sorted(GROUP_INDEX)
    whole = not any(condition.splits_groups for condition in conditions)
    return Sample(rollouts, whole=whole, no_response=failed)


def _concat(
    frames: Iterable[pl.DataFrame], columns: Mapping[str, pl.DataType], group: str = GROUP_INDEX
) -> pl.DataFrame:
    found = list(frames)
    return pl.concat(found, rechunk=True) if found else pl.DataFrame(schema={group: pl.Int64(), **columns})


def _numbered(rollouts: pl.DataFrame, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Number the groups by their ids: `GROUP_INDEX` and the columns."""
    number = pl.col("group_id").rank("dense").cast(pl.Int64).alias(GROUP_INDEX)
    return rollouts.select(number, *columns).sort(GROUP_INDEX)


def _from_arrow(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _nothing_read(dump: Dump) -> str:
    names = ", ".join(dict.fromkeys(str(file.path) for file in dump.files_to_read())) or "these files"
    why = f"; the first of {len(dump.problems)} problems: {dump.problems[0]}" if dump.problems else ""
    return f"no rollout in {names}{why}"
