"""Statistics as tables for a terminal.

Invariant: tables show only values of their frames; the main one and a comparison fit 80 columns. Columns that would say
nothing are omitted; `render_details` shows everything. Which statistics have a column is said in `STATISTICS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.text import Text

from rg_env.analysis.compare import Unit
from rg_env.analysis.stats import STATISTICS, Measured, above_threshold_unsolved
from rg_env.dump.schema import RG_DUMP, Phase
from rg_env.output import cell, counted, new_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

Row = dict[str, Any]
_UNKNOWN = "–"
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_NO_NUMBERS: Mapping[tuple[str, int], Row] = MappingProxyType({})
_WIDTH = 80
_LABEL = 26
"""Width for the names of tasks next to columns of runs."""
_SECTION = ("run_id", "phase", "environment")
"""The columns whose values head a section."""


def headline(found: Measured, *, from_ledger: bool, whole: bool = True, names: Mapping[str, str] = _NO_NAMES) -> str:
    """Summarize in one line what was read.

    Args:
        from_ledger: whether every run has a ledger.
        whole: whether nothing is missing in it.
        names: of the runs, by run id.
    """
    groups = found.groups
    runs = groups["run_id"].cast(pl.String).unique().sort().to_list()
    first, last = groups.select(low=pl.col("step").min(), high=pl.col("step").max()).row(0)
    unsolved = above_threshold_unsolved(found)
    parts = [
        f"run {names.get(runs[0], runs[0])}" if len(runs) == 1 else f"{len(runs)} runs",
        f"{counted(groups.height, 'group')}, {counted(found.rollouts.height, 'rollout')}",
        *([f"steps {first} to {last}"] if first is not None else []),
        *([f"{counted(unsolved, 'group')} above the threshold, none solved"] if unsolved else []),
        *([f"{counted(found.left_out, 'rollout')} left out (no response, or unscored)"] if found.left_out else []),
        "no ledger: groups whose text was not kept are missing"
        if not from_ledger
        else "every group, from the ledger"
        if whole
        else "from the ledger, not every group: see below",
    ]
    return " · ".join(parts)


def render_table(frame: pl.DataFrame, title: str | None = None, *, totals: pl.DataFrame | None = None) -> Table:
    """The main columns of `statistics` of one run, with a section for each phase and environment.

    Args:
        frame: from `statistics`.
        title: printed above the table.
        totals: `statistics` of the same source by phase, shown in the section headings.
    """
    keys = _keys(frame)
    names = [name for name in keys if name not in _SECTION] or keys
    sections = [key for key in keys if key not in names]
    columns = _columns(frame)
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


def render_details(
    frame: pl.DataFrame, names: Mapping[str, str] = _NO_NAMES, trainer: Mapping[tuple[str, int], Row] = _NO_NUMBERS
) -> Iterator[Table]:
    """All statistics with their confidence intervals, one table per row.

    Args:
        names: of the runs, by run id.
        trainer: the trainer's own numbers of each step, by run id and step; shown in rows of training by step.
    """
    for row in frame.iter_rows(named=True):
        own = trainer.get((row.get("run_id", ""), row.get("step", -1)), {}) if row["phase"] == Phase.TRAIN else {}
        row["run_id"] = names.get(row.get("run_id", ""), row.get("run_id"))
        title = cell(name_of(row, _keys(frame)))
        table = new_table([""], ["value", "95 % interval"], title=title, title_justify="left")
        for name in frame.columns[frame.columns.index("groups") :]:
            if name.endswith(("_low", "_high")) or row[name] is None:
                continue
            low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
            table.add_row(name, figure(row[name]), "" if low is None else f"{figure(low)} … {figure(high)}")
        for name, value in own.items():
            table.add_row(cell(name), "–" if value is None else f"{value:.4g}", "")
        yield table


def render_runs(frame: pl.DataFrame, totals: pl.DataFrame, names: Mapping[str, str]) -> Iterator[Table]:
    """The solve rates of several runs side by side, the best run first, as many per table as fit 80 columns.

    Args:
        frame: from `statistics`.
        totals: `statistics` of the same source by phase.
        names: of the runs, by run id.
    """
    best = totals.sort("solve_rate", descending=True, nulls_last=True, maintain_order=True)
    headers = {run: names.get(run, run) for run in best["run_id"].unique(maintain_order=True)}
    together: dict[str, str] = {}
    for run, header in headers.items():
        if together and sum(max(len(one), 10) + 1 for one in (*together.values(), header)) > _WIDTH - _LABEL:
            yield _side_by_side(frame, totals, together)
            together = {}
        together[run] = header
    yield _side_by_side(frame, totals, together)


def _side_by_side(frame: pl.DataFrame, totals: pl.DataFrame, headers: Mapping[str, str]) -> Table:
    shown = _keys(frame)
    keys = [key for key in shown if key not in _SECTION]
    section = [key for key in shown if key in _SECTION[1:]]
    table = new_table([" ".join(keys)], compact=True)
    for header in headers.values():
        table.add_column(cell(header), justify="right", no_wrap=True)
    for of_section, rows_of_section in frame.group_by(section, maintain_order=True):
        table.add_section()
        heads = _by_run(totals.filter(**dict(zip(section, of_section, strict=True))))
        table.add_row(
            cell(" ".join(of_section), "bold"), *(_cell_of(heads.get(run), _solved, "bold") for run in headers)
        )
        table.add_row(
            cell("  base score", "bold"),
            *(_cell_of(heads.get(run), _figure_of("mean_base_score", ".3f"), "bold") for run in headers),
        )
        for _, rows in rows_of_section.group_by(keys, maintain_order=True) if keys else ():
            row_of = _by_run(rows)
            label = name_of(rows.row(0, named=True), keys)
            table.add_row(cell(f"  {label}"), *(_cell_of(row_of.get(run), _solved) for run in headers))
    return table


def _by_run(rows: pl.DataFrame) -> dict[str, Row]:
    return {row["run_id"]: row for row in rows.iter_rows(named=True)}


def _cell_of(row: Row | None, show: Callable[[Row], str], style: str = "") -> Text:
    return Text(_UNKNOWN if row is None else show(row), style=style)


def _keys(frame: pl.DataFrame) -> list[str]:
    """The columns that identify a row, without the run id of a single run, and the environment if all are rg_dump."""
    keys = frame.columns[: frame.columns.index("groups" if "groups" in frame.columns else "measure")]
    if "run_id" in keys and frame["run_id"].n_unique() == 1:
        keys.remove("run_id")
    if (frame["environment"] == RG_DUMP).all():
        keys.remove("environment")
    return keys


def name_of(row: Row, names: list[str]) -> str:
    absent = {"violation": "none", "complexity": "no level"}
    return " ".join(absent.get(name, _UNKNOWN) if row[name] is None else str(row[name]) for name in names)


def _columns(frame: pl.DataFrame) -> dict[str, Callable[[Row], str]]:
    """Header → the cell. A column that would say nothing is left out."""
    of_rollouts = not {"violation", "status"}.isdisjoint(frame.columns)
    tries = sorted(int(name[8:]) for name in frame.columns if name.startswith("pass_at_") and name[8:].isdigit())
    columns: dict[str, Callable[[Row], str]] = {"groups": lambda row: str(row["groups"])}
    if of_rollouts:
        columns["rollouts"] = lambda row: str(row["rollouts"])
    columns["solved"] = _solved
    if not of_rollouts and frame["solve_rate_first"].count():
        columns["first→\nlast ¼"] = _trend
    if tries[-1:] > [1] and frame["pass_at_1"].count():
        columns["pass@k"] = _pass_at(tries)
    for one in STATISTICS:
        known = frame[one.name].count() and not (of_rollouts and one.name in ("mean_base_score", "format_rate"))
        lost = one.name != "mean_score" or (frame["mean_score"] < frame["mean_base_score"]).any()
        if one.header and known and lost and not (one.rare and (frame[one.name].fill_null(0) < 0.005).all()):
            columns[one.header] = _figure_of(one.name, one.form)
    if frame["mean_response_tokens"].count():
        columns["tokens\n✓/✗"] = _tokens
    return columns


def _pass_at(tries: list[int]) -> Callable[[Row], str]:
    """pass@k for the largest k that the row's groups allow."""

    def cell(row: Row) -> str:
        k = max((k for k in tries if row[f"pass_at_{k}"] is not None), default=None)
        return _UNKNOWN if k is None else f"{row[f'pass_at_{k}']:.0%} @{k}"

    return cell


def _solved(row: Row) -> str:
    """The share with half of its interval, or with the other end of it where all or no rollouts are solved."""
    rate, low, high = row["solve_rate"], row["solve_rate_low"], row["solve_rate_high"]
    if low is None:
        return f"{rate:.0%}"
    margin = f"≤{100 * high:.0f}" if rate == 0 else f"≥{100 * low:.0f}" if rate == 1 else f"±{50 * (high - low):.0f}"
    return f"{rate:.0%} {margin}"


def _trend(row: Row) -> str:
    first, last = row["solve_rate_first"], row["solve_rate_last"]
    return _UNKNOWN if first is None or last is None else f"{first:.0%}→{last:.0%}"


def _tokens(row: Row) -> str:
    right, wrong = row["tokens_right_p50"], row["tokens_wrong_p50"]
    return "/".join(_UNKNOWN if value is None else f"{value:.0f}" for value in (right, wrong))


def _figure_of(name: str, form: str) -> Callable[[Row], str]:
    return lambda row: _UNKNOWN if row[name] is None else f"{row[name]:{form}}"


def figure(value: float | None, sign: str = "") -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, int):
        return f"{value:{sign}d}"
    return f"{value:{sign}.3f}" if abs(value) < 10 else f"{value:{sign}.1f}"


# -- a comparison

_TOTALS = ("solve_rate", "mean_score", "format_rate", "no_signal", "mean_response_tokens")
_MAIN = "solve_rate"


_STAR = "*: the interval excludes 0. Of 20 rows that do not differ, one does so by chance."


def render_comparison(
    totals: pl.DataFrame, *parts: pl.DataFrame, unit: Unit = Unit.QUESTION, every_measure: bool = False
) -> Table:
    """The differences found by `compare`; totals come first.

    Args:
        unit: as it was compared.
        totals: by phase.
        parts: by other keys, shown below the total of their phase and environment with their solve rate.
        every_measure: show all measures of all rows instead.
    """
    table = new_table(
        [""],
        ["runs" if unit is Unit.RUN else "questions", "this", "other", "difference", "95 % interval"],
        compact=True,
    )
    for section in totals.select("phase", "environment").unique(maintain_order=True).iter_rows(named=True):
        table.add_section()
        table.add_row(cell(name_of(section, _keys(totals)), "bold"))
        overall = list(_rows_of(totals, section, None if every_measure else _TOTALS))
        for row in overall:
            _add(table, f"  {row['measure']}", row)
        if all(row["difference"] is None for row in overall):
            continue  # one side lacks the section
        for part in parts:
            rows = list(_rows_of(part, section, None if every_measure else (_MAIN,)))
            keys = [key for key in _keys(part) if key not in _SECTION]
            if rows:
                table.add_row(cell(f"{_MAIN if not every_measure else ''} by {' and '.join(keys)}".strip(), "bold"))
            for row in rows:
                _add(table, f"  {name_of(row, keys)}{f' {row["measure"]}' if every_measure else ''}", row)
    return table


def legend(*frames: pl.DataFrame, unit: Unit = Unit.QUESTION) -> Iterator[str]:
    """How the rows of the table were compared, and what an interval covers, one line each."""
    if unit is Unit.RUN:
        yield "Intervals cover the choice of runs (seeds): each run is one value."
        yield _STAR
        return
    rows = pl.concat([frame.select("paired", "difference") for frame in frames]).drop_nulls("difference")
    if rows["paired"].any():
        yield "Only questions that both sides have are compared, one by one."
    if not rows["paired"].all():
        few = "~ less than half of the questions are shared" if rows["paired"].any() else "No shared questions"
        yield f"{few}: compared as independent runs."
    yield "Intervals cover the choice of questions and samples, not what another seed of a training run changes."
    if unit is Unit.ONE_RUN:
        yield "Training rows of one run against another have none: compare several runs (seeds) on each side."
    yield _STAR


def _rows_of(frame: pl.DataFrame, section: Row, measures: Sequence[str] | None) -> Iterator[Row]:
    rows = frame.filter(**section)
    if measures is not None:
        rows = pl.concat([rows.filter(measure=name) for name in measures])
    for row in rows.iter_rows(named=True):
        if row["value"] is not None or row["other"] is not None:
            yield row


def _add(table: Table, label: str, row: Row) -> None:
    low, high = row["low"], row["high"]
    style = "bold" if row["clear"] else ""
    mark = "" if row["difference"] is None else f"{' ' if row['paired'] else '~'}{'*' if row['clear'] else ' '}"
    questions = row["questions"] if row["questions"] is not None else row["questions_other"]
    table.add_row(
        cell(label),
        str(questions),
        figure(row["value"]),
        figure(row["other"]),
        Text(f"{figure(row['difference'], '+')} {mark}", style=style),
        Text("" if low is None else f"{figure(low, '+')} … {figure(high, '+')}", style=style),
    )
