"""A comparison of two runs as a table for a terminal.

Invariant: it shows only values of its frames and fits 80 columns; totals come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from rich.table import Table
from rich.text import Text

from rg_env.analysis.tables import figure, name_of
from rg_env.output import cell, new_table

_TOTALS = ("solve_rate", "mean_score", "format_rate", "no_signal", "mean_response_tokens")
_MAIN = "solve_rate"


def render_comparison(totals: pl.DataFrame, *parts: pl.DataFrame, every_measure: bool = False) -> Table:
    """The differences found by `compare`.

    Args:
        totals: by phase.
        parts: by other keys, shown below the total of their phase with their solve rate.
        every_measure: show all measures of all rows instead.
    """
    table = new_table([""], ["questions", "this", "other", "difference", "95 % interval"], compact=True)
    for phase in totals["phase"].unique(maintain_order=True):
        table.add_section()
        table.add_row(cell(phase, "bold"))
        overall = list(_shown(totals, phase, None if every_measure else _TOTALS))
        for row in overall:
            _add(table, f"  {row['measure']}", row)
        if all(row["difference"] is None for row in overall):
            continue  # one side lacks the phase
        for part in parts:
            rows = list(_shown(part, phase, None if every_measure else (_MAIN,)))
            keys = [key for key in part.columns[: part.columns.index("measure")] if key != "phase"]
            if rows:
                table.add_row(cell(f"{_MAIN if not every_measure else ''} by {' and '.join(keys)}".strip(), "bold"))
            for row in rows:
                measure = f" {row['measure']}" if every_measure else ""
                _add(table, f"  {name_of(row, keys)}{measure}", row)
    return table


def legend(*frames: pl.DataFrame) -> Iterator[str]:
    """How the rows of the table were compared, one line each."""
    rows = pl.concat([frame.select("paired", "difference") for frame in frames]).drop_nulls("difference")
    if rows["paired"].any():
        yield "Only questions that both sides have are compared, one by one."
        yield "* differs beyond chance: sign-flip test, p < 0.05 after Holm's correction for"
        yield "  the rows of the block."
    if not rows["paired"].all():
        few = "~ less than half of the questions are shared" if rows["paired"].any() else "No shared questions"
        yield f"{few}: compared as independent runs."
        yield "  Bold: the interval excludes 0."


def _shown(frame: pl.DataFrame, phase: str, measures: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    rows = frame.filter(pl.col("phase") == phase)
    if measures is not None:
        rows = pl.concat([rows.filter(measure=name) for name in measures])
    for row in rows.iter_rows(named=True):
        if row["value"] is not None or row["other"] is not None:
            yield row


def _add(table: Table, label: str, row: dict[str, Any]) -> None:
    low, high = row["low"], row["high"]
    found = row["differs"] if row["differs"] is not None else row["clear"]
    style = "bold" if found else ""
    mark = "" if row["difference"] is None else "~" if not row["paired"] else "*" if row["differs"] else " "
    table.add_row(
        cell(label),
        "" if row["questions"] is None else str(row["questions"]),
        figure(row["value"]),
        figure(row["other"]),
        Text(f"{figure(row['difference'], '+')} {mark}", style=style),
        Text("" if low is None else f"{figure(low, '+')} … {figure(high, '+')}", style=style),
    )
