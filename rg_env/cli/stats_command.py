"""`rg-env dumps stats`."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rg_env.base.choices import By, parse_by
from rg_env.base.errors import DumpError, did_you_mean
from rg_env.base.output import cell, console, print_error, print_json, print_line
from rg_env.base.wording import counted
from rg_env.cli.options import JsonFlag, Selection, SolvedAt, print_remarks, reading

if TYPE_CHECKING:
    import polars as pl

    from rg_env.dump import Dump

_FLIPS_SHOWN, _SETS_SHOWN = 5, 5


def _check_keys(text: str) -> str:
    parse_by(text)
    return text


_SHOWN = 12
"""Columns that an error names."""


@dataclass(frozen=True, kw_only=True)
class StatsOptions(Selection):
    """Options of one side and of a comparison."""

    by: Annotated[
        str,
        typer.Option(
            parser=_check_keys,
            metavar="KEY",
            help=f"Group rows by {', '.join(By)}, or several separated by commas.",
            autocompletion=lambda: list(By),
        ),
    ] = By.TASK.value
    columns: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Only these statistics, separated by commas, such as solve_rate,mean_raw_score. Also with --json "
            "and --against.",
        ),
    ] = ""
    solved_at: SolvedAt = None
    details: Annotated[bool, typer.Option("--details", help="Show all statistics with their confidence intervals.")] = (
        False
    )
    as_json: JsonFlag = False

    @property
    def names(self) -> list[str]:
        """Names given with `--columns`."""
        return [name.strip() for name in self.columns.split(",") if name.strip()]

    def check_names(self, known: Sequence[str], others: Iterable[str] = ()) -> None:
        """Refuse a name in `--columns` that is not known. What is known depends on the dump: pass@k has its own k.

        Args:
            others: what would be known if it was asked for.
        """
        for name in self.names:
            if name not in known:
                there_are = dict.fromkeys((*known, *others))
                choices = [column for column in there_are if not column.endswith(("_low", "_high"))]
                every = f"use {', '.join(choices[:_SHOWN])}, … (all in docs/reading.md)"
                raise DumpError(f"--columns: there is no {name}{did_you_mean(name, choices, every)}")


def stats(
    options: StatsOptions,
    against: Annotated[
        list[Path] | None,
        typer.Option(metavar="DUMP", help="Subtract this dump: differences with confidence intervals. Repeatable."),
    ] = None,
) -> None:
    """Show solve rate, pass@k, score, format and lengths, by task or step.

    Eval rows show the last evaluation of a run; --by step shows each. With --against, the first dump minus the other is
    shown, over the questions that both have, one by one. `rg-env dumps report` shows several runs side by side.

    Columns: solved ± half of its 95% interval · first→last quarter of the training steps, or evaluation · pass@k: one
    of k responses is solved (groups with fewer are left out) · score before, reward after penalties · format: without a
    violation · no signal: all rewards of a group are equal · cut off at the length limit · tokens ✓/✗: median length of
    solved and unsolved responses.

    Examples:
      rg-env dumps stats runs/quickstart/dumps
      rg-env dumps stats dumps/sample --by step --where "phase = 'train'"
      rg-env dumps stats runs/a/dumps --against runs/b/dumps
    """
    dump = options.open()
    if against:
        selected = Selection(paths=against, where=options.where)
        if {dump.resolve() for dump in selected.dumps} == {path.resolve() for path in options.dumps}:
            print_error("both sides are the same dump: name another one after --against")
        other = selected.open()
        _compare(dump, other, options, against)
        print_remarks(dump, other, texts=False)
    else:
        _describe(dump, options)
        print_remarks(dump, texts=False)


def _describe(dump: "Dump", options: StatsOptions) -> None:
    from rg_env.analysis.stats import STATISTICS, counts, measure, statistics, step_numbers
    from rg_env.analysis.tables import SHOWN, headline, render_counts, render_details, render_table

    names, by, runs = options.names, options.by, dump.names
    is_table = not (options.as_json or options.details)
    # Only what is shown is computed. An empty list stands for every statistic.
    wanted = list(SHOWN) if is_table else []
    for name in names:
        wanted.append(name.removesuffix("_low").removesuffix("_high"))
    with reading():
        measured = measure(dump, solved_at=options.solved_at, names=wanted or None)
    frame = statistics(measured, by)
    # The columns are run_id and the keys of the rows, then `groups` and all other statistics.
    number_of_keys = frame.columns.index("groups")
    keys, known = frame.columns[:number_of_keys], frame.columns[number_of_keys:]
    options.check_names(known, (each.name for each in STATISTICS))
    trainer = step_numbers(dump) if "step" in keys and not is_table else {}
    if options.as_json:
        run_names = frame["run_id"].replace(runs).alias("run")
        rows = frame.select("run_id", run_names, *keys[1:], *(names or known))
        occurring = None if names else counts(measured, by)
        print_json(_json_rows(rows, keys, occurring, trainer))
        return
    screen = console()
    screen.print(cell(headline(measured, dump)), soft_wrap=not screen.is_terminal)
    totals = statistics(measured, By.PHASE)
    if options.details:
        parts: list[Any] = list(render_details(frame, runs, trainer))
    else:
        parts = [render_table(frame, totals=totals, columns=names, names=runs)]
    # A user who names columns wants those alone, without the counts and symptoms that belong to the whole.
    table_of_counts = None if names else render_counts(counts(measured), runs)
    if table_of_counts:
        parts += ["", table_of_counts]
    console().print(*parts)
    if not names:
        print_symptoms(dump)


def print_symptoms(dump: "Dump") -> None:
    """Print a line for each sign that the training is going wrong."""
    from rg_env.rollouts.symptoms import read_symptoms

    for symptom in read_symptoms(dump):
        print_line(symptom)


def _json_rows(
    frame: "pl.DataFrame", keys: Sequence[str], counts: "pl.DataFrame | None", trainer: dict[Any, Any]
) -> list[dict[str, Any]]:
    """Add to each row its counts of violations and statuses, and the trainer's numbers of its step."""
    rows: list[dict[str, Any]] = json.loads(frame.write_json())  # by polars: NaN, which JSON lacks, becomes null
    if trainer:
        for row in rows:
            row["trainer"] = {}
            # An evaluation has a step, too, but the trainer's numbers are those of the training step.
            if row["phase"] == "train":
                row["trainer"] = trainer.get((row["run_id"], row["step"]), {})
    if counts is not None:
        key_of = itemgetter(*keys)
        row_of_key = {}
        for row in rows:
            row |= {"violation_counts": {}, "status_counts": {}}
            row_of_key[key_of(row)] = row
        for count in counts.iter_rows(named=True):
            row = row_of_key[key_of(count)]
            row[f"{count['kind']}_counts"][count["value"]] = count["rollouts"]
    return rows


def _compare(dump: "Dump", other: "Dump", options: StatsOptions, against: Sequence[Path]) -> None:
    import polars as pl

    from rg_env.analysis.comparison import (
        compare,
        differing_left_out,
        differing_tasks,
        flips,
        question_sets,
        shared_elsewhere,
    )
    from rg_env.analysis.stats import evaluation_steps, key_columns, measure
    from rg_env.analysis.tables import LEGEND, render_comparison

    with reading():
        this = measure(dump, solved_at=options.solved_at, to_match=True)
        that = measure(other, solved_at=options.solved_at, to_match=True)
    # A task whose options differ asks other questions under the same ids: it cannot be compared item by item.
    unmatched = differing_tasks(*dump.runs, *other.runs)
    sets = question_sets(this, that, unmatched=unmatched)
    questions, questions_other, shared = sets.select("this", "other", "shared").sum().row(0)
    remarks = []
    if unmatched:
        remarks = [f"not compared, because the options of the task or of its file differ: {', '.join(unmatched)}"]
    if not shared:
        raise DumpError("; ".join([*_why_none(shared_elsewhere(this, that, unmatched=unmatched)), *remarks]))
    left_out = differing_left_out(*dump.runs, *other.runs)
    remarks += _words_on_sets(sets, left_out)
    # All questions of a phase first, then the rows that --by asks for; with `--by phase` these are the same rows.
    levels = {tuple(key_columns(level)): level for level in (By.PHASE, options.by)}
    frames = [compare(this, that, level, unmatched=unmatched) for level in levels.values()]
    measures = frames[0]["measure"].unique(maintain_order=True).to_list()
    options.check_names(measures)
    if options.names:
        frames = [frame.filter(pl.col("measure").is_in(options.names)) for frame in frames]
    flipped = flips(this, that, unmatched=unmatched).rows(named=True)
    evaluations, evaluations_other = (evaluation_steps(side).rows(named=True) for side in (this, that))
    title, title_other = _title(dump, evaluations), _title(other, evaluations_other)
    # Equal models in folders of equal names: what somebody typed tells them apart.
    if title == title_other:
        title = f"{title}, in {', '.join(map(str, options.paths))}"
        title_other = f"{title_other}, in {', '.join(map(str, against))}"
    if options.as_json:
        facts: dict[str, Any] = {
            "this": title,
            "other": title_other,
            "evaluations_this": evaluations,
            "evaluations_other": evaluations_other,
            "questions_this": questions,
            "questions_other": questions_other,
            "questions_shared": shared,
            "unmatched_tasks": unmatched,
        }
        facts |= {"questions_by_task": sets.rows(named=True), "tasks_with_other_rows_left_out": left_out}
        rows: list[dict[str, Any]] = []
        for frame in frames:
            rows += frame.rows(named=True)
        print_json(facts | {"rows": rows, "flips": flipped})
    else:
        print_line(f"this:  {title}")
        print_line(f"other: {title_other}")
        print_line(
            f"{shared:,} questions are in both, of {questions:,} and {questions_other:,}: only these are compared"
        )
        shown, most_flips = options.names, _FLIPS_SHOWN
        if options.details:
            shown, most_flips = shown or measures, len(flipped)
        # Without names, the comparison chooses its measures itself.
        console().print(render_comparison(*frames, measures=shown))
        for line in LEGEND:
            print_line(line)
        _print_flips(flipped, most_flips)
    for remark in remarks:
        print_error(remark)


def _why_none(elsewhere: Sequence[tuple[str, str, int]]) -> list[str]:
    """Say why no question is compared, and as what the two sides have the same ones, which `shared_elsewhere` found."""
    if not elsewhere:
        return ["no question is in both dumps, so there is nothing to compare"]
    words = ["no question is in both dumps in the same phase and environment, so there is nothing to compare"]
    for place, place_other, number in elsewhere[:_SETS_SHOWN]:
        words.append(f"{counted(number, 'question')} as {place} on this side and as {place_other} on the other")
    return words


def _words_on_sets(sets: "pl.DataFrame", left_out: Sequence[str]) -> list[str]:
    """Say of which tasks the two sides have other questions, those with the most first, and why if it is known."""
    unequal = []
    for task, this, other, shared in sets.iter_rows():
        if this + other > 2 * shared:
            counts = f"{shared:,} shared, of {this:,} and {other:,}"
            unequal.append((2 * shared - this - other, task, counts))
    if not unequal:
        return []
    unequal.sort()
    named, audited = [], []
    for _, task, counts in unequal:
        named.append(f"{task} ({counts})")
        if task in left_out:
            audited.append(task)
    if len(named) > _SETS_SHOWN:
        named[_SETS_SHOWN:] = [f"{len(named) - _SETS_SHOWN} more tasks"]
    words = [f"the two sides were asked different questions from {', '.join(named)}"]
    if audited:
        words.append(f"the audit of the answers left out different rows of {', '.join(audited)}")
    return words


def _title(side: "Dump", evaluations: Sequence[dict[str, Any]]) -> str:
    """Name a side of a comparison by its runs, each with its evaluation that is compared, and by its conditions."""
    words = []
    for run_id, name in side.names.items():
        words.append(name)
        # Each once: several environments are mostly evaluated at the same step.
        steps = {str(row["step"]): None for row in evaluations if row["run_id"] == run_id and row["step"] is not None}
        if steps:
            words.append(f"evaluation after step {' and '.join(steps)}")
    conditions = [condition.text for condition in side.conditions]
    return ", ".join([*words, *conditions])


def _print_flips(flipped: Sequence[dict[str, Any]], limit: int) -> None:
    """Print the questions that only one side solves, at most `limit` for each side."""
    only = "solves in at least half of its tries, and"
    only_this, only_other = [], []
    # A question is in `flipped` only if the sides differ, so that one of them solves more.
    for row in flipped:
        if row["this"] > row["other"]:
            only_this.append(row)
        else:
            only_other.append(row)
    _print_flips_of(f"this side {only} the other does not", only_this, limit)
    _print_flips_of(f"the other side {only} this one does not", only_other, limit)


def _print_flips_of(title: str, rows: Sequence[dict[str, Any]], limit: int) -> None:
    if not rows:
        return
    print_line("")
    print_line(f"{counted(len(rows), 'question')} that {title} (--where \"group_id = 'ID'\" shows one):")
    for row in rows[:limit]:
        print_line(f"  {row['item']} ({row['phase']}): {row['this']:.0%} against {row['other']:.0%}")
        print_line(f"    {row['group_this']}")
        print_line(f"    {row['group_other']}")
    if len(rows) > limit:
        print_line(f"  … and {len(rows) - limit} more; --details or --json shows all")
