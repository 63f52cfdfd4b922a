"""The result of an evaluation: scores by category and task, counted from the ledger over rollouts.

Invariant: every rollout with a response counts once; requests that failed are only counted as such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from rg_env.analysis.stats import is_pass_at_k, measure, statistics, with_keys
from rg_env.analysis.tables import figure
from rg_env.base.choices import By
from rg_env.base.output import cell, new_table
from rg_env.base.wording import rate
from rg_env.dump.entry import open_run_of

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN = ("groups", "rollouts", "mean_base_score", "solve_rate", "format_rate", "pass_at_")
_COLUMNS = {"mean_base_score": "score", "solve_rate": "solved", "upstream_score": "upstream", "format_rate": "format"}
_WITH_INTERVAL: tuple[str, ...] = ("mean_base_score", "solve_rate")
_SCORES = ("mean_base_score", "upstream_score")
"""Means, which are shown as numbers; the other columns are rates."""
_WIDE = 100
"""Columns of a terminal from which all figures and intervals fit."""


@dataclass(frozen=True)
class Summary:
    """The scores of one run.

    Attributes:
        name: what was evaluated.
        rows: of the total, of every category and of every task, with the keys `kind` (`total`, `category`, `task`),
            `name`, `groups`, `rollouts`, `upstream_score` (mean of reasoning-gym's own score of the bare answer; 0 if
            nothing was scored), and from `statistics` the mean base score, solve rate, format rate and pass@k with
            their intervals.
        no_response: requests that failed.
        planned: the number of responses that the run is to have.
    """

    name: str
    run_id: str
    folder: Path
    suite: Mapping[str, Any] | None
    no_response: int
    planned: int
    rows: list[dict[str, Any]]

    @property
    def responses(self) -> int:
        """The number of responses, which the scores are about."""
        return int(self.rows[0]["rollouts"])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        facts = {"name": self.name, "run_id": self.run_id, "dump": str(self.folder), "suite": self.suite}
        categories = [row for row in self.rows if row["kind"] == "category"]
        tasks = [row for row in self.rows if row["kind"] == "task"]
        parts = {"total": self.rows[0], "categories": categories, "tasks": tasks}
        counts = {"responses": self.responses, "planned": self.planned, "no_response": self.no_response}
        return facts | counts | parts


def summarize(folder: Path, run_id: str, name: str, planned: int) -> Summary:
    """Compute the scores of a run that is to have `planned` responses.

    Raises:
        DumpError: it has no responses.
    """
    dump = open_run_of(folder, run_id)
    measured = measure(dump)
    rows = []
    # An evaluation has one phase and environment, so the rows by phase are a single one, the total.
    for kind, by in {"total": By.PHASE, "category": By.CATEGORY, "task": By.TASK}.items():
        of_kind = with_keys(measured.groups, [by]).group_by(pl.col(by).cast(pl.String))
        # A response without a raw score has 0 there.
        raw_score = pl.col("mean_raw_score:total").sum() / pl.col("solve_rate:count").sum()
        upstream = dict(of_kind.agg(raw_score).iter_rows())
        for row in statistics(measured, by).iter_rows(named=True):
            name_of_row = "total" if kind == "total" else row[by]
            facts = {"kind": kind, "name": name_of_row, "upstream_score": upstream[row[by]]}
            rows.append(facts | {name: row[name] for name in row if name.startswith(_SHOWN)})
    suite = dump.runs[0].noted.suite
    return Summary(name, run_id, folder, suite, measured.left_out, planned, rows)


def render(summaries: Sequence[Summary], width: int) -> Table:
    """Return the scores of a run by category and task, total first; of several runs one row each, to compare
    checkpoints.

    Args:
        width: of the terminal, in characters. A narrow one gets fewer intervals and columns, and whole names.
    """
    suite = str((summaries[0].suite or {}).get("name", ""))
    columns = dict(_COLUMNS)
    if width >= _WIDE:
        with_interval = _WITH_INTERVAL
        # Where a run has lost responses, its largest k is another one.
        names = dict.fromkeys(name for summary in summaries for name in summary.rows[0] if is_pass_at_k(name))
        tries = sorted(int(name.removeprefix("pass_at_")) for name in names)
        columns |= {f"pass_at_{k}": f"pass@{k}" for k in tries if k > 1}
    else:
        # Names stay whole, at the cost of pass@k and of upstream's score.
        with_interval = ("solve_rate",)
        columns.pop("upstream_score", None)
    # Of one run its total, categories and tasks; of several the total of each.
    if len(summaries) == 1:
        label, rows = "", summaries[0].rows
    else:
        label, rows = "checkpoint", [summary.rows[0] | {"name": summary.name} for summary in summaries]
    if suite.endswith(" questions"):  # only a part of the suite was asked, which the table says instead
        label = suite
    table = new_table([label], ["items", *columns.values()])
    table.columns[0].no_wrap = True
    kind = rows[0]["kind"]
    # A line between total, categories and tasks.
    for row in rows:
        if row["kind"] != kind:
            table.add_section()
            kind = row["kind"]
        figures = [_figure(row, name, name in with_interval) for name in columns]
        table.add_row(cell(row["name"]), str(row["groups"]), *figures)
    return table


def _figure(row: Mapping[str, Any], name: str, with_interval: bool) -> str:
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    if name not in _SCORES:
        if with_interval:
            return rate(row.get(name), low, high)
        return rate(row.get(name))
    interval = ""
    if with_interval and low is not None:
        interval = f" [{figure(low)}, {figure(high)}]"
    return figure(row[name]) + interval
