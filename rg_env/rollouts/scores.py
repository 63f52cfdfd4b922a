"""The result of an evaluation: scores by category and task, counted from the ledger over rollouts.

Invariant: every rollout with a response counts once; requests that failed are only counted as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from rg_env.analysis.by import with_keys
from rg_env.analysis.stats import statistics
from rg_env.choices import By
from rg_env.dump.files import list_files
from rg_env.dump.read.dump import open_run
from rg_env.output import cell, new_table
from rg_env.scoring.types import Status

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN = ("mean_base_score", "solve_rate", "format_rate")
_TOTAL = "total"


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
    """

    name: str
    run_id: str
    folder: Path
    suite: Mapping[str, Any] | None
    no_response: int
    rows: list[dict[str, Any]]

    @property
    def total(self) -> dict[str, Any]:
        return self.rows[0]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        by_kind = {kind: [row for row in self.rows if row["kind"] == kind] for kind in ("category", "task")}
        return {
            "name": self.name,
            "run_id": self.run_id,
            "dump": str(self.folder),
            "suite": self.suite,
            "no_response": self.no_response,
            "total": self.total,
            "categories": by_kind["category"],
            "tasks": by_kind["task"],
        }


def summarize(folder: Path, run_id: str, name: str, solved_at: float) -> Summary:
    """Compute the scores of a run.

    Raises:
        DumpError: it has no responses.
    """
    dump = open_run(*(file.path for file in list_files(folder, run_id)))
    rollouts = with_keys(dump.ledger_frame(all_attempts=True), [By.CATEGORY]).with_columns(total=pl.lit(_TOTAL))
    responses = rollouts.filter(pl.col("status").cast(pl.String).ne_missing(Status.NO_RESPONSE.value))
    rows = []
    for kind in (_TOTAL, By.CATEGORY, By.TASK):
        key = pl.col(kind).cast(pl.String)
        upstream = dict(responses.group_by(key.alias("task")).agg(pl.col("raw_score").fill_null(0).mean()).iter_rows())
        frame = statistics(rollouts.with_columns(task=key), By.TASK, solved_at=solved_at, pool_runs=True)
        for row in frame.iter_rows(named=True):
            counts = {name: row[name] for name in ("groups", "rollouts")}
            scores = {name: row[name] for name in row if name.startswith((*_SHOWN, "pass_at_"))}
            mine = {"kind": str(kind), "name": row["task"], **counts, "upstream_score": upstream[row["task"]]}
            rows.append(mine | scores)
    manifest = dump.runs[0].manifest or {}
    failed = rollouts.height - responses.height
    return Summary(name, run_id, folder, manifest.get("suite"), failed, rows)


def render(summary: Summary) -> Table:
    """The scores by category and task, total first."""
    table = new_table([_part(summary)], ["items", "score", "solved", "upstream", "format", *_tries(summary)])
    previous = ""
    for row in summary.rows:
        if row["kind"] != previous and previous:
            table.add_section()
        previous = row["kind"]
        table.add_row(cell(row["name"]), str(row["groups"]), *_cells(row, _tries(summary)))
    return table


def render_all(summaries: list[Summary]) -> Table:
    """One row per run, to compare checkpoints."""
    tries = _tries(summaries[0])
    table = new_table([_part(summaries[0]) or "checkpoint"], ["items", "score", "solved", "upstream", "format", *tries])
    for summary in summaries:
        table.add_row(cell(summary.name), str(summary.total["groups"]), *_cells(summary.total, tries))
    return table


def _part(summary: Summary) -> str:
    """The name of the suite if only a part of it was asked."""
    name = str((summary.suite or {}).get("name", ""))
    return name if name.endswith(" questions") else ""


def _tries(summary: Summary) -> list[str]:
    """The names of pass@k beyond pass@1, which is the share solved."""
    names = [key for key in summary.total if key.startswith("pass_at_") and not key.endswith(("_low", "_high"))]
    return [name.replace("pass_at_", "pass@") for name in names if name != "pass_at_1"]


def _cells(row: dict[str, Any], tries: list[str]) -> list[str]:
    return [
        _with_interval(row, "mean_base_score"),
        _with_interval(row, "solve_rate"),
        _number(row["upstream_score"]),
        _number(row["format_rate"]),
        *(_number(row[name.replace("pass@", "pass_at_")]) for name in tries),
    ]


def _with_interval(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return _number(row[name]) if low is None else f"{_number(row[name])} [{_number(low)}, {_number(high)}]"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
