"""Statistics as tables for a terminal.

Invariant: the main table shows only values of its frame and fits 80 columns. Columns that would be equal in every row
are omitted; `render_details` shows everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from rg_env.analysis.sample import Sample
from rg_env.dump.read.frames import GROUP_INDEX
from rg_env.output import cell

if TYPE_CHECKING:
    from collections.abc import Callable

Row = dict[str, Any]
_UNKNOWN = "–"


def headline(sample: Sample, *, from_ledger: bool) -> str:
    """Summarize in one line what was read.

    Args:
        from_ledger: whether every run has a ledger.
    """
    rollouts = sample.rollouts
    runs = rollouts["run_id"].cast(pl.String).unique().sort().to_list()
    first, last = rollouts.select(low=pl.col("step").min(), high=pl.col("step").max()).row(0)
    parts = [
        f"run {runs[0]}" if len(runs) == 1 else f"{len(runs)} runs",
        f"{rollouts[GROUP_INDEX].n_unique()} groups, {rollouts.height} rollouts",
        *([f"steps {first} to {last}"] if first is not None else []),
        *([f"{sample.no_response} rollouts left out (no response, or unscorable)"] if sample.no_response else []),
        "every group, from the ledger" if from_ledger else "no ledger: groups whose text was not kept are missing",
    ]
    return " · ".join(parts)


def render_table(frame: pl.DataFrame, title: str | None = None, *, totals: pl.DataFrame | None = None) -> Table:
    """The main columns of `statistics`, with a section for each run and phase.

    Args:
        frame: from `statistics`.
        title: printed above the table.
        totals: `statistics` of the same source by phase, shown in the section headings.
    """
    keys = _keys(frame)
    sections = _section_keys(keys)
    names = [name for name in keys if name not in sections]
    columns = {header: show for header, (needs, show) in _columns(frame).items() if needs(frame)}
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    table.add_column(" ".join(names), overflow="fold", min_width=10)
    for header in columns:
        table.add_column(header, justify="right", no_wrap=True)
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
        table.add_row(cell("  " * bool(section) + _name(row, names)), *(show(row) for show in columns.values()))
    return table


def render_details(frame: pl.DataFrame) -> Iterator[Table]:
    """All statistics with their confidence intervals, one table per row."""
    for row in frame.iter_rows(named=True):
        keys = _keys(frame)
        table = Table(
            title=cell(" ".join(_name(row, [key]) for key in keys)),
            title_justify="left",
            box=SIMPLE_HEAD,
            show_edge=False,
        )
        for header in ("", "value", "95 % interval"):
            table.add_column(header, justify="left" if not header else "right", no_wrap=True)
        for name in frame.columns[frame.columns.index("groups") :]:
            if name.endswith(("_low", "_high")) or row[name] is None:
                continue
            low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
            table.add_row(name, _figure(row[name]), "" if low is None else f"{_figure(low)} … {_figure(high)}")
        yield table


def render_comparison(frame: pl.DataFrame, measures: tuple[str, ...] | None = None) -> Table:
    """The differences found by `compare`, with their intervals.

    Args:
        frame: from `compare`.
        measures: the measures to show; all by default.
    """
    keys = frame.columns[: frame.columns.index("measure")]
    names = [key for key in keys if key != "phase"]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    table.add_column(" ".join(names) or "phase", overflow="fold", min_width=10)
    table.add_column("", no_wrap=True)
    for header in ("this", "other", "difference", "95 % interval"):
        table.add_column(header, justify="right", no_wrap=True)
    last: list[Any] = []
    shown = frame if measures is None else frame.filter(pl.col("measure").is_in(measures))
    for row in shown.iter_rows(named=True):
        if row["value"] is None and row["other"] is None:
            continue
        here = [row[key] for key in keys]
        if last and here[0] != last[0] and "phase" in keys:
            table.add_section()
        label = "" if here == last else " ".join(_name(row, [key]) for key in keys)
        last = here
        style = "bold" if row["clear"] else ""
        low, high = row["low"], row["high"]
        table.add_row(
            cell(label),
            row["measure"],
            _figure(row["value"]),
            _figure(row["other"]),
            Text(_figure(row["difference"], "+"), style=style),
            Text("" if low is None else f"{_figure(low, '+')} … {_figure(high, '+')}", style=style),
        )
    return table


def _keys(frame: pl.DataFrame) -> list[str]:
    """The columns that identify a row, without the run id if there is only one run."""
    keys = frame.columns[: frame.columns.index("groups")]
    return [key for key in keys if key != "run_id" or frame["run_id"].n_unique() > 1]


def _section_keys(keys: list[str]) -> list[str]:
    return [key for key in ("run_id", "phase") if key in keys[:-1]]


def _name(row: Row, names: list[str]) -> str:
    absent = {"violation": "none", "level": _UNKNOWN}
    words = [str(row[name]) if row[name] is not None else absent.get(name, _UNKNOWN) for name in names]
    return " ".join(words)


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


def _figure(value: float | None, sign: str = "") -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, int):
        return f"{value:{sign}d}"
    return f"{value:{sign}.3f}" if abs(value) < 10 else f"{value:{sign}.1f}"
