"""A polars LazyFrame over frames that are read one by one.

Invariant: collecting gives the rows of the frames, and reads no column that the query does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import polars as pl
from polars.io.plugins import register_io_source


def scan(schema: Mapping[str, pl.DataType], frames: Callable[[list[str]], Iterable[pl.DataFrame]]) -> pl.LazyFrame:
    """A LazyFrame of these columns.

    Args:
        frames: reads the named columns; called when the query is collected.
    """

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        shown = list(schema) if with_columns is None else with_columns
        asked = [] if predicate is None else predicate.meta.root_names()
        left = n_rows
        for frame in frames([name for name in schema if name in {*shown, *asked}]):
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.select(shown)
            if left == 0:
                return

    return register_io_source(read, schema=pl.Schema(schema))
