"""Statistics as tables for a terminal.

Invariant: tables show only values of their frames; the main one and a comparison fit 80 columns. Columns that would say
nothing are omitted; `render_details` shows everything. Which statistics have a column is said in `STATISTICS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.text import Text

from rg_env.analysis.stats import STATISTICS, Measured, is_pass_at_k, is_rate
from rg_env.base.output import cell, new_table, width_of
from rg_env.base.wording import counted, rate
from rg_env.dump import Dump
from rg_env.dump.schema import RG_DUMP, Phase
from rg_env.scoring.types import Status

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, Any]
"""A row of `statistics`."""
Show = Callable[[Row], str]
_UNKNOWN = "–"
_WIDTH = 80
_SECTION = ("run_id", "phase", "environment")
"""The columns whose values head a section."""
SHOWN = [each.name for each in STATISTICS if each.header] + ["mean_response_tokens"]
"""The statistics that `render_table` needs."""


def headline(measured: Measured, dump: Dump) -> str:
    """Summarize in one line what was read of the dump."""
    groups = measured.groups
    names_of_runs = dump.names
    names = [names_of_runs.get(run, run) for run in groups["run_id"].cast(pl.String).unique()]
    first, last = groups.select(first=pl.col("step").min(), last=pl.col("step").max()).row(0)
    if not dump.has_ledger:
        source = "no ledger: groups whose text was not kept are missing"
    elif dump.has_every_group:
        source = "every group, from the ledger"
    elif dump.findings(texts=False).counts["from_texts"]:
        source = "from the ledger, which has not every group, and from the texts where it lacks one: see below"
    elif dump.has_every_group is False:
        source = "from the ledger, not every group: see below"
    else:  # no manifest says how many groups there were, or an imported run lacks some
        source = "from the ledger"
    if len(names) == 1:
        runs = f"run {names[0]}"
    else:
        runs = f"{len(names)} runs"
    parts = [runs, f"{counted(groups.height, 'group')}, {counted(measured.number_of_rollouts, 'rollout')}"]
    if first is not None:
        parts.append(f"steps {first} to {last}")
    if measured.left_out:
        parts.append(f"{counted(measured.left_out, 'rollout')} left out (no response, or unscored)")
    parts += [source, *dump.never_saved]
    return " · ".join(parts)


def render_table(
    frame: pl.DataFrame,
    *,
    totals: pl.DataFrame | None = None,
    columns: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
) -> Table:
    """Return the rows of `statistics`, with a section for each phase and environment of each run.

    Args:
        totals: `statistics` of the same source by phase, shown in the section headings.
        columns: names of the columns to show; by default the main ones.
        names: of the runs, by run id.
    """
    shown: dict[str, Show]
    if columns:
        shown = {name: partial(_figure, name) for name in columns}
    else:
        shown = _main_columns(frame)
    label = " ".join(_names(frame)).replace("run_id", "run")

    table = new_table([label], shown, compact=True)
    _add_rows(table, frame, totals, list(shown.values()), names or {})
    # One space between columns instead of two only where the table does not fit: it is harder to read.
    if width_of(table) > _WIDTH:
        table.padding = 0
    return table


def render_counts(frame: pl.DataFrame, names: Mapping[str, str]) -> Table | None:
    """Return the violations and the statuses other than ok, from `counts` by phase; None if there are none."""
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
    """Yield all statistics with their confidence intervals, one table per row; `trainer` is from `step_numbers`."""
    for row in frame.iter_rows(named=True):
        # No step has the number -1: rows that are not by step get none of the trainer's numbers.
        numbers: Mapping[str, float | None] = {}
        if row["phase"] == Phase.TRAIN:
            numbers = trainer.get((row["run_id"], row.get("step", -1)), {})
        title = cell(_name_of(row, _keys(frame), names))
        table = new_table([""], ["value", "95% interval"], title=title, title_justify="left")
        # After the keys, each statistic is followed by the ends of its interval, which stand beside it here.
        for name in frame.columns[frame.columns.index("groups") :]:
            is_nothing = row[name] is None or (name.endswith("_left_out") and row[name] == 0)
            if not name.endswith(("_low", "_high")) and not is_nothing:
                low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
                show = partial(_exact, name)
                interval = ""
                if low is not None:
                    interval = f"{show(low)} … {show(high)}"
                table.add_row(name, show(row[name]), interval)
        for name, value in numbers.items():
            shown = _UNKNOWN
            if value is not None:
                shown = f"{value:.4g}"
            table.add_row(cell(name), shown, "")
        yield table


def render_comparison(*frames: pl.DataFrame, measures: Sequence[str] = ()) -> Table:
    """Return the differences found by `compare`.

    Args:
        frames: by phase, and perhaps by other keys, which are shown below the totals of their phase and environment.
        measures: to show in every row; by default the main ones of the totals, and the solve rate of the others.
    """
    table = new_table([""], ["questions", "this", "other", "this − other", "95% interval"], compact=True)
    sections = frames[0].select("phase", "environment").unique(maintain_order=True)
    for section in sections.iter_rows(named=True):
        table.add_section()
        table.add_row(cell(_name_of(section, _keys(frames[0])), "bold"))
        for frame in frames:
            # The first frame is that of the totals, which have no keys but the section's.
            if frame is frames[0]:
                chosen = measures or _TOTALS
                words = ["measure"]
            else:
                keys = _names(frame)
                chosen = measures or ["solve_rate"]
                heading = f"by {' and '.join(keys)}"
                # Rows of one measure do not repeat its name: the heading says it.
                if measures:
                    words = [*keys, "measure"]
                else:
                    words = keys
                    heading = f"solve_rate {heading}"
                table.add_row(cell(heading, "bold"))
            rows = frame.filter(pl.col("measure").is_in(chosen), **section)
            scores = rows.filter(pl.col("measure").is_in(["mean_base_score", "mean_reward"])).select("this", "other")
            if not measures and scores.n_unique() == 1:  # the reward is shown where it differs from the score
                rows = rows.filter(pl.col("measure") != "mean_reward")
            for row in rows.iter_rows(named=True):
                table.add_row(cell(f"  {_name_of(row, words)}"), *_compared(row))
    return table


def _compared(row: Row) -> list[str | Text]:
    """Return the cells of a row of `compare` after its name; a clear difference is bold and has a star."""
    name = row["measure"]
    style, star = ("bold", "*") if row["clear"] else ("", " ")
    unit = " points" if is_rate(name) else ""
    difference = f"{_change(name, row['difference'])}{unit} {star}"
    interval = ""
    if row["low"] is not None:
        interval = f"{_change(name, row['low'])} … {_change(name, row['high'])}"
    means = [value_of(name, row["this"]), value_of(name, row["other"])]
    return [str(row["questions"]), *means, Text(difference, style=style), Text(interval, style=style)]


_TOTALS = ("mean_base_score", "mean_reward", "solve_rate", "format_rate", "mean_response_tokens", "no_signal")
LEGEND = (
    "Intervals cover the choice of questions and samples, not what another seed of a training run changes: rows of the "
    "train phase have none.",
    "*: the interval excludes 0. Of 20 rows that do not differ, one does so by chance.",
)


def figure(value: float | None, sign: str = "") -> str:
    """Return a number for people: whole numbers as they are, others with three digits, or one from 10 on."""
    if value is None:
        return _UNKNOWN
    if isinstance(value, int):
        return f"{value:{sign}d}"
    if abs(value) < 10:
        return f"{value:{sign}.3f}"
    return f"{value:{sign}.1f}"


def value_of(name: str, value: float | None) -> str:
    """Return a figure of `statistics` for people: a share in percent, with a digit more where it would seem to be
    nothing."""
    if value is None or not is_rate(name):
        return figure(value)
    if 0 < abs(value) < 0.01:
        return rate(value, digits=1)
    return rate(value)


def _exact(name: str, value: float | None) -> str:
    """`value_of`, with a digit more for all shares."""
    if value is not None and is_rate(name):
        return rate(value, digits=1)
    return figure(value)


def _change(name: str, value: float) -> str:
    """Return a difference with its sign, of shares in percentage points."""
    if not is_rate(name):
        return figure(value, "+")
    return f"{round(100 * value):+d}"  # no "-0"


# -- rows and columns


def _add_rows(
    table: Table,
    frame: pl.DataFrame,
    totals: pl.DataFrame | None,
    columns: Sequence[Show],
    names_of_runs: Mapping[str, str],
) -> None:
    """Add a line for each row of the frame, below a heading for each section with its totals."""
    names = _names(frame)
    sections = [key for key in _keys(frame) if key in _SECTION and key not in names]
    if not sections:
        for row in frame.iter_rows(named=True):
            table.add_row(cell(_name_of(row, names, names_of_runs)), *(show(row) for show in columns))
        return
    # There is no row for a section without totals.
    total_of: dict[tuple[Any, ...], Row] = {}
    if totals is not None:
        for total in totals.iter_rows(named=True):
            total_of.setdefault(tuple(total[key] for key in sections), total)
    for section, rows in frame.group_by(sections, maintain_order=True):
        table.add_section()
        of_section = dict(zip(sections, section, strict=True))
        # Of rows by step, the totals are those of the last evaluation.
        evaluation = {"evaluation_step": rows["evaluation_step"].max()}
        heading = [cell(_name_of(of_section | evaluation, sections, names_of_runs), "bold")]
        if section in total_of:
            heading += [Text(show(total_of[section]), style="bold") for show in columns]
        table.add_row(*heading)
        for row in rows.iter_rows(named=True):
            table.add_row(cell(f"  {_name_of(row, names)}"), *(show(row) for show in columns))


def _keys(frame: pl.DataFrame) -> list[str]:
    """Return the columns that identify a row, without the run id of a single run, and the environment if all are
    rg_dump."""
    # The first column after the keys: of statistics, of comparisons and of counts.
    end = next(name for name in ("groups", "measure", "kind") if name in frame.columns)
    keys = frame.columns[: frame.columns.index(end)]
    if "run_id" in keys and frame["run_id"].n_unique() == 1:
        keys.remove("run_id")
    if (frame["environment"] == RG_DUMP).all():
        keys.remove("environment")
    return keys


def _names(frame: pl.DataFrame) -> list[str]:
    """Return the columns that name a row within its section; those of the section if there are no others."""
    keys = _keys(frame)
    return [key for key in keys if key not in _SECTION] or keys


def _name_of(row: Row, names: Sequence[str], names_of_runs: Mapping[str, str] | None = None) -> str:
    """Return the values of these columns as words: of a run its name, of an evaluation also when it was."""
    absent = {"complexity": "no level"}
    words = []
    for name in names:
        value = str(row[name])
        if row[name] in (None, ""):
            value = absent.get(name, _UNKNOWN)
        elif name == "run_id":
            value = (names_of_runs or {}).get(value, value)
        words.append(value)
    step = row.get("evaluation_step")
    if "phase" in names and "step" not in names and step is not None:
        words.append(f"after step {step}")
    return " ".join(words)


def _main_columns(frame: pl.DataFrame) -> dict[str, Show]:
    """Return how each column shows its cells, by its header. A column that would say nothing is left out."""
    tries = list(filter(is_pass_at_k, frame.columns))
    columns: dict[str, Show] = {"groups": partial(_figure, "groups")}
    columns["solved"] = _solved
    if frame["solve_rate_first"].count():
        columns["first→\nlast"] = _trend
    if len(tries) > 1 and frame["pass_at_1"].count():
        columns["pass@k"] = partial(_best_pass_at_k, tries)
    for each in STATISTICS:
        if not each.header or not frame[each.name].count():
            continue
        # Where the reward is the score, a second column of it would say nothing.
        if each.name == "mean_reward" and (frame["mean_reward"].round(3) == frame["mean_base_score"].round(3)).all():
            continue
        if not (each.rare and (frame[each.name].fill_null(0) < 0.005).all()):
            columns[each.header] = partial(_figure, each.name)
    if frame["mean_response_tokens"].count():
        columns["tokens\n✓/✗"] = _tokens
    return columns


def _best_pass_at_k(tries: Sequence[str], row: Row) -> str:
    """Return pass@k for the largest k that the row's groups allow, and how many groups have fewer responses."""
    for name in reversed(tries):
        if row[name] is None:
            continue
        left_out = ""
        if row[f"{name}_left_out"]:
            left_out = f" ({row[f'{name}_left_out']} out)"
        return f"{row[name]:.0%} @{name.removeprefix('pass_at_')}{left_out}"
    return _UNKNOWN


def _solved(row: Row) -> str:
    """Return the solve rate with half of its interval, or with the other end of it where all or no rollouts are
    solved."""
    share, low, high = row["solve_rate"], row["solve_rate_low"], row["solve_rate_high"]
    if low is None:
        return rate(share)
    # Half of the interval, in points.
    margin = f"±{50 * (high - low):.0f}"
    if share == 0:
        margin = f"≤{100 * high:.0f}"
    elif share == 1:
        margin = f"≥{100 * low:.0f}"
    return f"{rate(share)} {margin}"


def _trend(row: Row) -> str:
    first, last = row["solve_rate_first"], row["solve_rate_last"]
    if None in (first, last):
        return _UNKNOWN
    return f"{first:.0%}→{last:.0%}"


def _tokens(row: Row) -> str:
    return f"{_whole(row['tokens_right_p50'])}/{_whole(row['tokens_wrong_p50'])}"


def _whole(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    return f"{value:.0f}"


def _figure(name: str, row: Row) -> str:
    return value_of(name, row[name])
