"""Statistics as tables for a terminal.

Invariant: tables show only values of their frames; the main one and a comparison fit 80 columns. Columns that would say
nothing are omitted; `render_details` shows everything. Which statistics have a column is said in `STATISTICS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import batched, product
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.text import Text

from rg_env.analysis.stats import STATISTICS, Measured
from rg_env.dump import Dump
from rg_env.dump.schema import RG_DUMP, Phase
from rg_env.output import cell, counted, new_table
from rg_env.scoring.types import Status

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, Any]
"""A row of `statistics`; empty where there is none."""
Show = Callable[[Row], str]
_UNKNOWN = "–"
_WIDTH = 80
_MOST_COLUMNS = 8
"""More columns than this fit 80 characters only with one space between them."""
_LABEL = 26
"""Width for the names of tasks next to columns of runs."""
_SECTION = ("run_id", "phase", "environment")
"""The columns whose values head a section."""
SHOWN = [each.name for each in STATISTICS if each.header] + ["mean_response_tokens"]
"""The statistics that `render_table` and `render_runs` need."""


def headline(measured: Measured, dump: Dump) -> str:
    """Summarize in one line what was read of the dump."""
    groups = measured.groups
    names = [dump.names.get(run, run) for run in groups["run_id"].cast(pl.String).unique()]
    first, last = groups.select(first=pl.col("step").min(), last=pl.col("step").max()).row(0)
    if not dump.has_ledger:
        source = "no ledger: groups whose text was not kept are missing"
    elif dump.has_every_group:
        source = "every group, from the ledger"
    else:
        source = "from the ledger" + (", not every group: see below" if dump.has_every_group is False else "")
    parts = [
        f"run {names[0]}" if len(names) == 1 else f"{len(names)} runs",
        f"{counted(groups.height, 'group')}, {counted(measured.rollouts.height, 'rollout')}",
        *([f"steps {first} to {last}"] if first is not None else []),
        *(
            [f"{counted(measured.left_out, 'rollout')} left out (no response, or unscored)"]
            if measured.left_out
            else []
        ),
        source,
    ]
    return " · ".join(parts)


def render_table(frame: pl.DataFrame, *, totals: pl.DataFrame | None = None, columns: Sequence[str] = ()) -> Table:
    """`statistics` of one run, with a section for each phase and environment.

    Args:
        totals: `statistics` of the same source by phase, shown in the section headings.
        columns: names of the columns to show; by default the main ones.
    """
    shown = {name: partial(_figure, name) for name in columns} if columns else _main_columns(frame)
    table = new_table([" ".join(_names(frame))], shown, compact=True, tight=len(shown) > _MOST_COLUMNS)
    run = frame["run_id"][0]
    _add_rows(table, frame, totals, [(run, show) for show in shown.values()])
    return table


def render_runs(
    frame: pl.DataFrame,
    totals: pl.DataFrame,
    names: Mapping[str, str],
    width: int,
    columns: Sequence[str] = ("solve_rate",),
) -> Iterator[Table]:
    """Several runs side by side: for each of these columns of `statistics` a table, or more if it is too wide.

    Args:
        totals: as for `render_table`.
        names: of the runs, by run id.
        width: of the terminal, in characters.
    """
    headers = {run: names.get(run, run) for run in totals["run_id"].unique(maintain_order=True)}
    most = max(1, (width - _LABEL) // max(len(header) + 1 for header in (*headers.values(), "100% ±10")))
    for column, runs in product(columns, batched(headers, most)):
        title = None if column == "solve_rate" else column
        table = new_table([" ".join(_names(frame))], compact=True, title=title, title_justify="left")
        for run in runs:
            table.add_column(cell(headers[run]), justify="right", no_wrap=True)
        show = _solved if column == "solve_rate" else partial(_figure, column)
        _add_rows(table, frame, totals, [(run, show) for run in runs])
        yield table


def render_counts(frame: pl.DataFrame, names: Mapping[str, str]) -> Table | None:
    """The violations and the statuses other than ok, from `counts` by phase; None if there are none."""
    table = new_table(["violation or status"], ["rollouts", "share"], compact=True)
    frame = frame.filter(pl.col("value") != Status.OK.value)
    keys = [key for key in _keys(frame) if key in _SECTION]
    for section, rows in frame.group_by(keys, maintain_order=True):
        table.add_section()
        table.add_row(cell(" ".join(names.get(str(word), str(word)) for word in section), "bold"))
        for row in rows.iter_rows(named=True):
            table.add_row(cell(f"  {row['value']}"), str(row["rollouts"]), f"{row['share']:.1%}")
    return table if frame.height else None


def render_details(
    frame: pl.DataFrame,
    names: Mapping[str, str],
    trainer: Mapping[tuple[str, int], Mapping[str, float | None]],
) -> Iterator[Table]:
    """All statistics with their confidence intervals, one table per row; `trainer` is from `step_numbers`."""
    for row in frame.iter_rows(named=True):
        numbers = trainer.get((row["run_id"], row.get("step", -1)), {}) if row["phase"] == Phase.TRAIN else {}
        title = cell(_name_of(row | {"run_id": names.get(row["run_id"], row["run_id"])}, _keys(frame)))
        table = new_table([""], ["value", "95% interval"], title=title, title_justify="left")
        for name in frame.columns[frame.columns.index("groups") :]:
            if not name.endswith(("_low", "_high")) and row[name] is not None:
                low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
                table.add_row(name, figure(row[name]), "" if low is None else f"{figure(low)} … {figure(high)}")
        for name, value in numbers.items():
            table.add_row(cell(name), _UNKNOWN if value is None else f"{value:.4g}", "")
        yield table


def render_comparison(*frames: pl.DataFrame, measures: Sequence[str] = ()) -> Table:
    """The differences found by `compare`.

    Args:
        frames: by phase, and perhaps by other keys, which are shown below the totals of their phase and environment.
        measures: to show in every row; by default the main ones of the totals, and the solve rate of the others.
    """
    table = new_table([""], ["questions", "this", "other", "difference", "95% interval"], compact=True)
    for section in frames[0].select("phase", "environment").unique(maintain_order=True).iter_rows(named=True):
        table.add_section()
        table.add_row(cell(_name_of(section, _keys(frames[0])), "bold"))
        for frame in frames:
            keys = _names(frame) if frame is not frames[0] else []
            chosen = measures or (["solve_rate"] if keys else _TOTALS)
            if keys:
                table.add_row(cell(f"{'' if measures else 'solve_rate '}by {' and '.join(keys)}", "bold"))
            rows = frame.filter(pl.col("measure").is_in(chosen), **section)
            scores = rows.filter(pl.col("measure").is_in(["mean_base_score", "mean_reward"])).select("this", "other")
            if not measures and scores.n_unique() == 1:  # the reward is shown where it differs from the score
                rows = rows.filter(pl.col("measure") != "mean_reward")
            for row in rows.iter_rows(named=True):
                label = _name_of(row, [*keys, *(["measure"] if measures or not keys else [])])
                low, high, style = row["low"], row["high"], "bold" if row["clear"] else ""
                table.add_row(
                    cell(f"  {label}"),
                    str(row["questions"]),
                    figure(row["this"]),
                    figure(row["other"]),
                    Text(f"{figure(row['difference'], '+')} {'*' if row['clear'] else ' '}", style=style),
                    Text("" if low is None else f"{figure(low, '+')} … {figure(high, '+')}", style=style),
                )
    return table


_TOTALS = ("mean_base_score", "mean_reward", "solve_rate", "format_rate", "mean_response_tokens", "no_signal")
LEGEND = (
    "Intervals cover the choice of questions and samples, not what another seed of a training run changes: rows of the "
    "train phase have none.",
    "*: the interval excludes 0. Of 20 rows that do not differ, one does so by chance.",
)


def figure(value: float | None, sign: str = "") -> str:
    """A number for people: whole numbers as they are, others with three digits, or one from 10 on."""
    if value is None:
        return _UNKNOWN
    if isinstance(value, int):
        return f"{value:{sign}d}"
    return f"{value:{sign}.3f}" if abs(value) < 10 else f"{value:{sign}.1f}"


# -- rows and columns


def _add_rows(
    table: Table, frame: pl.DataFrame, totals: pl.DataFrame | None, columns: Sequence[tuple[str, Show]]
) -> None:
    """A line for each value of the keys, below a heading for each section with its totals.

    Args:
        columns: the run, and what to show of its row.
    """

    def add(label: str, rows: pl.DataFrame | None, style: str = "") -> None:
        of_run = {} if rows is None else {row["run_id"]: row for row in rows.iter_rows(named=True)}
        cells = (show(of_run[run]) if run in of_run else _UNKNOWN for run, show in columns if rows is not None)
        table.add_row(cell(label, style), *(Text(text, style=style) for text in cells))

    names = _names(frame)
    sections = [key for key in _keys(frame) if key in _SECTION[1:] and key not in names]
    in_order = frame.sort(*sections, *names, maintain_order=True)
    for section, rows in in_order.group_by(sections, maintain_order=True) if sections else [((), in_order)]:
        if sections:
            table.add_section()
            heads = None if totals is None else totals.filter(**dict(zip(sections, section, strict=True)))
            add(" ".join(map(str, section)), heads, "bold")
        for _, of_name in rows.group_by(names, maintain_order=True) if names else ():
            add("  " * bool(sections) + _name_of(of_name.row(0, named=True), names), of_name)


def _keys(frame: pl.DataFrame) -> list[str]:
    """The columns that identify a row, without the run id of a single run, and the environment if all are rg_dump."""
    end = next(name for name in ("groups", "measure", "kind") if name in frame.columns)
    keys = frame.columns[: frame.columns.index(end)]
    if "run_id" in keys and frame["run_id"].n_unique() == 1:
        keys.remove("run_id")
    if (frame["environment"] == RG_DUMP).all():
        keys.remove("environment")
    return keys


def _names(frame: pl.DataFrame) -> list[str]:
    """The columns that name a row within its section; those of the section if there are no others."""
    keys = _keys(frame)
    return [key for key in keys if key not in _SECTION] or [key for key in keys if key != "run_id"]


def _name_of(row: Row, names: Sequence[str]) -> str:
    absent = {"complexity": "no level"}
    return " ".join(absent.get(name, _UNKNOWN) if row[name] in (None, "") else str(row[name]) for name in names)


def _main_columns(frame: pl.DataFrame) -> dict[str, Show]:
    """Header → the cell. A column that would say nothing is left out."""
    tries = [name for name in frame.columns if name.startswith("pass_at_") and name[8:].isdigit()]
    columns: dict[str, Show] = {"groups": partial(_figure, "groups")}
    columns["solved"] = _solved
    if frame["solve_rate_first"].count():
        columns["first→\nlast"] = _trend
    if len(tries) > 1 and frame["pass_at_1"].count():
        columns["pass@k"] = partial(_best_pass_at_k, tries)
    for each in STATISTICS:
        if not each.header or not frame[each.name].count():
            continue
        if each.name == "mean_reward" and (frame["mean_reward"].round(3) == frame["mean_base_score"].round(3)).all():
            continue
        if not (each.rare and (frame[each.name].fill_null(0) < 0.005).all()):
            columns[each.header] = partial(_figure, each.name, spec=each.spec)
    if frame["mean_response_tokens"].count():
        columns["tokens\n✓/✗"] = _tokens
    return columns


def _best_pass_at_k(tries: Sequence[str], row: Row) -> str:
    """pass@k for the largest k that the row's groups allow."""
    known = [name for name in tries if row[name] is not None]
    return f"{row[known[-1]]:.0%} @{known[-1][8:]}" if known else _UNKNOWN


def _solved(row: Row) -> str:
    """The share with half of its interval, or with the other end of it where all or no rollouts are solved.

    Of several evaluations it is that of the last one: a mean of before and after would say nothing.
    """
    is_series = row["phase"] == Phase.EVAL and row["solve_rate_last"] is not None
    name = "solve_rate_last" if is_series else "solve_rate"
    rate, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if low is None:
        return f"{rate:.0%}"
    margin = f"≤{100 * high:.0f}" if rate == 0 else f"≥{100 * low:.0f}" if rate == 1 else f"±{50 * (high - low):.0f}"
    return f"{rate:.0%} {margin}"


def _trend(row: Row) -> str:
    first, last = row["solve_rate_first"], row["solve_rate_last"]
    return _UNKNOWN if None in (first, last) else f"{first:.0%}→{last:.0%}"


def _tokens(row: Row) -> str:
    right, wrong = row["tokens_right_p50"], row["tokens_wrong_p50"]
    return "/".join(_UNKNOWN if value is None else f"{value:.0f}" for value in (right, wrong))


def _figure(name: str, row: Row, spec: str | None = None) -> str:
    return f"{row[name]:{spec}}" if spec and row[name] is not None else figure(row[name])
