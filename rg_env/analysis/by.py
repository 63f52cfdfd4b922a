"""The keys by which statistics are grouped: columns of the dump, and columns derived from them.

Invariant: a derived key is a function of one group, so that the rollouts of a group stay together.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rg_env.choices import By, parse_by
from rg_env.errors import DumpError

OTHER_CATEGORY = "other"
"""The category of tasks that reasoning-gym does not have."""


def key_columns(by: str) -> list[str]:
    """The columns that distinguish the rows of statistics grouped by this, always with phase and environment.

    Raises:
        DumpError: not values of `By` separated by commas.
    """
    try:
        chosen = parse_by(by)
    except ValueError as error:
        raise DumpError(f"statistics by {by!r}: {error}") from None
    return list(dict.fromkeys(["phase", "environment", *(column for one in chosen for column in one.columns)]))


def with_keys(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Add the derived columns among the keys to a frame of rollouts or groups."""
    if By.CATEGORY in keys:
        frame = frame.with_columns(category=_category(frame["task"]))
    if "complexity" in keys and frame.schema["complexity"].is_float():
        frame = frame.with_columns(complexity=_tenth(pl.col("complexity")))
    return frame


def _tenth(complexity: pl.Expr) -> pl.Expr:
    """The tenth of the scale: `0.0-0.1` to `0.9-1.0`. A boundary belongs to the upper one, except 1."""
    low = ((complexity * 10_000).round() / 1000).floor().cast(pl.Int64).clip(0, 9)
    return pl.format("0.{}-{}.{}", low, (low + 1) // 10, (low + 1) % 10)


def _category(tasks: pl.Series) -> pl.Series:
    from rg_env.tasks.registry import task_categories  # loads reasoning-gym

    names = tasks.cast(pl.String)
    known = task_categories()
    found = {name: known.get(name, OTHER_CATEGORY) for name in names.unique().drop_nulls()}
    return names.replace_strict(found, default=OTHER_CATEGORY, return_dtype=pl.String())
