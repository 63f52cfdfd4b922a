"""Statistics as tables for a terminal.

Invariant: the main table shows only values of its frame and fits 80 columns. Columns that would be equal in every row
are omitted; `render_details` shows everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.text import Text

from rg_env.analysis.sample import Sample
from rg_env.dump.read.frames import GROUP_INDEX
from rg_env.output import cell, new_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

Row = dict[str, Any]
_UNKNOWN = "–"
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_RUNS_AT_ONCE = 7
"""Columns of runs that fit next to each other."""


def headline(sample: Sample, *, from_ledger: bool, names: Mapping[str, str] = _NO_NAMES) -> str:
    """Summarize in one line what was read.

    Args:
        from_ledger: whether every run has a ledger.
        names: of the runs, by run id.
    """
    rollouts = sample.rollouts
    runs = rollouts["run_id"].cast(pl.String).unique().sort().to_list()
    first, last = rollouts.select(low=pl.col("step").min(), high=pl.col("step").max()).row(0)
    parts = [
        f"run {names.get(runs[0], runs[0])}" if len(runs) == 1 else f"{len(runs)} runs",
        f"{rollouts[GROUP_INDEX].n_unique()} groups, {rollouts.height} rollouts",
        *([f"steps {first} to {last}"] if first is not None else []),
        *([f"{sample.no_response} rollouts left out (no response, or unscorable)"] if sample.no_response else []),
        "every group, from the ledger" if from_ledger else "no ledger: groups whose text was not kept are missing",
    ]
    return " · ".join(parts)


def speed(totals: pl.DataFrame) -> Iterator[str]:
    """One line for each phase and run of which the dump has times: tokens per second, share of scoring, time per step.

    Args:
        totals: from `statistics` by phase.
    """
    for row in totals.iter_rows(named=True):
        parts = [
            (row["tokens_per_second"], "{:,.0f} tokens per second"),
            (row["scoring_share"], "scoring {:.1%} of rollout time"),
            (row["step_seconds"], "{:.1f} s per step"),
            (row["rollout_seconds"], "rollouts {:.1f} s per step"),
        ]
        known = [text.format(value) for value, text in parts if value is not None]
        if known:
            yield f"{name_of(row, _keys(totals))}: {' · '.join(known)}"


def render_table(frame: pl.DataFrame, title: str | None = None, *, totals: pl.DataFrame | None = None) -> Table:
    """The main columns of `statistics` of one run, with a section for each phase.

    Args:
        frame: from `statistics`.
        title: printed above the table.
        totals: `statistics` of the same source by phase, shown in the section headings.
    """
    keys = _keys(frame)
    sections = _section_keys(keys)
    names = [name for name in keys if name not in sections]
    columns = {header: show for header, (needs, show) in _columns(frame).items() if needs(frame)}
    table = new_table([" ".join(names)], columns, compact=True, title=title)
    heads = (
        {tuple(row[key] for key in sections): row for row in totals.iter_rows(named=True)} if totals is not None else {}
    )
    section: tuple[Any, ...] = ()
    for row in frame.iter_rows(named=True):
        if section != (section := tuple(row[key] for key in sections)):
            table.add_section()
            head = heads.get(section)
            table.add_row(
                cell(" ".join(section), "bold"),
                *(Text(show(head), style="bold") for show in columns.values() if head is not None),
            )
        table.add_row(cell("  " * bool(section) + name_of(row, names)), *(show(row) for show in columns.values()))
    return table


def render_details(frame: pl.DataFrame, names: Mapping[str, str] = _NO_NAMES) -> Iterator[Table]:
    """All statistics with their confidence intervals, one table per row.

    Args:
        names: of the runs, by run id.
    """
    if "run_id" in frame.columns:
        frame = frame.with_columns(pl.col("run_id").replace(dict(names)))
    for row in frame.iter_rows(named=True):
        keys = _keys(frame)
        title = cell(" ".join(name_of(row, [key]) for key in keys))
        table = new_table([""], ["value", "95 % interval"], title=title, title_justify="left")
        for name in frame.columns[frame.columns.index("groups") :]:
            if name.endswith(("_low", "_high")) or row[name] is None:
                continue
            low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
            table.add_row(name, figure(row[name]), "" if low is None else f"{figure(low)} … {figure(high)}")
        yield table


def render_runs(frame: pl.DataFrame, totals: pl.DataFrame, names: Mapping[str, str]) -> Iterator[Table]:
    """The solve rates of several runs side by side, the best run first, as many per table as fit 80 columns.

    Args:
        frame: from `statistics`.
        totals: `statistics` of the same source by phase.
        names: of the runs, by run id.
    """
    best = totals.sort("solve_rate", descending=True, nulls_last=True, maintain_order=True)
    runs = best["run_id"].unique(maintain_order=True).to_list()
    for start in range(0, len(runs), _RUNS_AT_ONCE):
        yield _side_by_side(frame, totals, names, runs[start : start + _RUNS_AT_ONCE])


def _side_by_side(frame: pl.DataFrame, totals: pl.DataFrame, names: Mapping[str, str], runs: list[str]) -> Table:
    keys = [key for key in frame.columns[: frame.columns.index("groups")] if key not in ("run_id", "phase")]
    table = new_table([" ".join(keys)], compact=True)
    for run_id in runs:
        table.add_column(cell(names.get(run_id, run_id)), justify="right", overflow="fold", min_width=7, max_width=8)
    for (phase,), of_phase in frame.group_by("phase", maintain_order=True):
        table.add_section()
        heads = _by_run(totals.filter(phase=phase))
        table.add_row(cell(phase, "bold"), *(_cell_of(heads.get(run), _solved, "bold") for run in runs))
        table.add_row(
            cell("  base score", "bold"),
            *(_cell_of(heads.get(run), _score("mean_base_score"), "bold") for run in runs),
        )
        for _, rows in of_phase.group_by(keys, maintain_order=True) if keys else ():
            row_of = _by_run(rows)
            label = name_of(rows.row(0, named=True), keys)
            table.add_row(cell(f"  {label}"), *(_cell_of(row_of.get(run), _solved) for run in runs))
    return table


def _by_run(rows: pl.DataFrame) -> dict[str, Row]:
    return {row["run_id"]: row for row in rows.iter_rows(named=True)}


def _cell_of(row: Row | None, show: Callable[[Row], str], style: str = "") -> Text:
    return Text(_UNKNOWN if row is None else show(row), style=style)


def _keys(frame: pl.DataFrame) -> list[str]:
    """The columns that identify a row, without the run id if there is only one run."""
    keys = frame.columns[: frame.columns.index("groups")]
    return [key for key in keys if key != "run_id" or frame["run_id"].n_unique() > 1]


def _section_keys(keys: list[str]) -> list[str]:
    return [key for key in ("run_id", "phase") if key in keys[:-1]]


def name_of(row: Row, names: list[str]) -> str:
    absent = {"violation": "none", "complexity": "no level"}
    return " ".join(absent.get(name, _UNKNOWN) if row[name] is None else str(row[name]) for name in names)


def _columns(frame: pl.DataFrame) -> dict[str, tuple[Callable[[pl.DataFrame], bool], Callable[[Row], str]]]:
    """Header → (whether to show it, the cell)."""

    def known(name: str) -> Callable[[pl.DataFrame], bool]:
        return lambda table: table[name].count() > 0

    def sound(name: str) -> Callable[[pl.DataFrame], bool]:
        return lambda table: "violation" not in table.columns and known(name)(table)

    tries = sorted(int(name[8:]) for name in frame.columns if name.startswith("pass_at_") and name[8:].isdigit())
    return {
        "groups": (lambda _: True, lambda row: str(row["groups"])),
        "rollouts": (lambda table: "violation" in table.columns, lambda row: str(row["rollouts"])),
        "solved": (lambda _: True, _solved),
        "first→\nlast ¼": (sound("solve_rate_first"), _trend),
        "pass@k": (lambda table: tries[-1:] > [1] and known("pass_at_1")(table), _pass_at(tries)),
        "base\nscore": (sound("mean_base_score"), _score("mean_base_score")),
        "score": (lambda table: table["penalized"].sum() > 0, _score("mean_score")),
        "format": (sound("format_rate"), _share("format_rate")),
        "no\nsignal": (known("no_signal"), _share("no_signal")),
        "cut\noff": (lambda table: (table["truncated"] >= 0.005).any(), _share("truncated")),
        "tokens\n✓/✗": (known("mean_response_tokens"), _tokens),
    }


def _pass_at(tries: list[int]) -> Callable[[Row], str]:
    """pass@k for the largest k that the row's groups allow."""

    def cell(row: Row) -> str:
        k = max((k for k in tries if row[f"pass_at_{k}"] is not None), default=None)
        return _UNKNOWN if k is None else f"{row[f'pass_at_{k}']:.0%} @{k}"

    return cell


def _solved(row: Row) -> str:
    low, high = row["solve_rate_low"], row["solve_rate_high"]
    margin = "" if low is None else f" ±{50 * (high - low):.0f}"
    return f"{row['solve_rate']:.0%}{margin}"


def _trend(row: Row) -> str:
    first, last = row["solve_rate_first"], row["solve_rate_last"]
    return _UNKNOWN if first is None or last is None else f"{first:.0%}→{last:.0%}"


def _tokens(row: Row) -> str:
    right, wrong = row["tokens_right_p50"], row["tokens_wrong_p50"]
    return "/".join(_UNKNOWN if value is None else f"{value:.0f}" for value in (right, wrong))


def _share(name: str) -> Callable[[Row], str]:
    return lambda row: _UNKNOWN if row[name] is None else f"{row[name]:.0%}"


def _score(name: str) -> Callable[[Row], str]:
    return lambda row: _UNKNOWN if row[name] is None else f"{row[name]:.3f}"


def figure(value: float | None, sign: str = "") -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, int):
        return f"{value:{sign}d}"
    return f"{value:{sign}.3f}" if abs(value) < 10 else f"{value:{sign}.1f}"
