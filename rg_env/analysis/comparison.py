"""Comparison of two sides: which statistics differ by more than chance.

Invariant: only questions that both sides have are compared, one by one, so that their difficulty cancels out. All
groups and rollouts of a question on one side are one value. A difference is taken only between rollouts of the same
phase and environment; of evaluations, between the last one of each run, unless rows are by step. It is this side minus
the other, in every command and in the report.

Method. A mean is the ratio of totals over Q questions; question q moves it by e = Q·(S − m·N)/ΣN. The variance of the
difference of two means over the same questions is Σ(e − e')²/(Q(Q − 1)); intervals have Student's t. For means in
[0, 1], half a difference of +1, half of −1 and one of 0 are added first, so that an interval neither collapses nor is
too narrow where all questions agree (Agresti and Min, Statistics in Medicine 24, 2005).

An interval covers the choice of questions and samples. Training runs with the same settings and other seeds differ by
more than that, so training rows have none. Not covered: that among many rows some differ by chance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

import polars as pl

from rg_env.analysis.estimates import t_quantiles
from rg_env.analysis.stats import Measured, are_enough, by_keys, is_pass_at_k, key_columns, measure
from rg_env.base.choices import By, Split
from rg_env.dump import Phase, Run
from rg_env.tasks.question_file import QuestionFile

Side = pl.LazyFrame | pl.DataFrame | Measured
"""Rows as `Dump.scan` gives them, or what `measure` made of them with `to_match`."""

_PLACES = ("path", "eval_path", "hub")
"""Where a file is: ids carry a hash of what is in it."""
_SOLVED_QUESTION = 0.5
"""A question counts as solved on one side if at least this share of its rollouts is."""


def compare(
    this: Side,
    other: Side,
    by: str = By.TASK,
    *,
    unmatched: Collection[str] = (),
) -> pl.DataFrame:
    """Differences between two sides over the questions that both have. All runs of a side are pooled.

    Args:
        by: as for `statistics`.
        unmatched: tasks whose questions differ although their ids may be equal: they are left out.

    Returns:
        one row for each phase, environment, value of `by` and measure (a statistic or pass@k): `phase`, `environment`,
        the columns of `by`, `measure`, `questions`, `this` and `other` (the means), `difference` = this − other with
        `low` and `high`, its 95% interval (null for a single question, and in the train phase), and `clear`: whether
        the interval excludes 0. There is no row of pass@k where fewer than nine tenths of the questions have k tries.

    Raises:
        DumpError: as `statistics`.
    """
    keys = key_columns(by)
    pairs, measures = _pairs(this, other, keys, unmatched)
    of_measure = [*keys, "measure"]
    n = pl.len()
    means, moves = {}, {}
    for side in ("this", "other"):
        total, count = pl.col(f"total_{side}"), pl.col(f"count_{side}")
        means[side] = total.sum() / count.sum()
        # How far each question moves the mean: the e of the method.
        moves[side] = n * (total - means[side] * count) / count.sum()
    squared_moves = ((moves["this"] - moves["other"]) ** 2).sum()
    # A question without a value on one side says nothing about the difference.
    of_both = pairs.filter(pl.min_horizontal("count_this", "count_other") > 0)
    # Both sides of a row have the same environment, but only one may show that its scores leave [0, 1].
    bounded = pl.all_horizontal("bounded_this", "bounded_other").all()
    questions = n.cast(pl.Int64)
    rows = of_both.group_by(of_measure).agg(questions=questions, **means, squares=squared_moves, bounded=bounded)
    # The solve rate is known of every question, so it has the most.
    stands_for_all = are_enough(pl.col("questions"), pl.max("questions").over(keys))
    tries = list(filter(is_pass_at_k, measures))
    rows = rows.filter(stands_for_all | ~pl.col("measure").is_in(tries))
    rows = rows.with_columns(difference=pl.col("this") - pl.col("other"))

    # Means in [0, 1] get differences that weigh as much as two questions: half of +1, half of -1, and one of 0.
    questions, change = pl.col("questions"), pl.col("difference")
    weight = questions + pl.when("bounded").then(2).otherwise(0)
    center = questions * change / weight
    of_added = 1 + questions * (change - center) ** 2 + 2 * center**2
    squares = pl.col("squares") + pl.when("bounded").then(of_added).otherwise(0)
    variance = squares / (weight * (weight - 1))
    degrees = [number - 1 for number in rows["questions"].unique()]
    half = t_quantiles(questions - 1, degrees) * variance.sqrt()

    # Training rows have no interval: see the module's docstring.
    limit = pl.when("bounded").then(1.0).otherwise(float("inf"))
    known = half.is_not_null() & (pl.col("phase") != Phase.TRAIN.value)
    low = pl.when(known).then(pl.max_horizontal(center - half, -limit))
    high = pl.when(known).then(pl.min_horizontal(center + half, limit))
    rows = rows.with_columns(low=low, high=high)
    rows = rows.with_columns(clear=((pl.col("low") > 0) | (pl.col("high") < 0)).fill_null(False))
    # An Enum sorts by the order of its categories: the measures stay in that of `STATISTICS`.
    rows = rows.sort(*keys, pl.col("measure").cast(pl.Enum(measures)))
    return rows.select(*of_measure, "questions", "this", "other", "difference", "low", "high", "clear")


def flips(this: Side, other: Side, *, unmatched: Collection[str] = ()) -> pl.DataFrame:
    """Return the questions that one side solves in at least half of its tries, and the other does not.

    Args:
        unmatched: as for `compare`.

    Returns:
        `phase`, `environment`, `task`, `item`, `this` and `other` (shares of solved rollouts), and `group_this` and
        `group_other`, the id of a group of each side. The largest differences come first.
    """
    keys = ["phase", "environment", "task"]
    pairs, _ = _pairs(this, other, keys, unmatched)
    shares = {side: pl.col(f"total_{side}") / pl.col(f"count_{side}") for side in ("this", "other")}
    solve_rates = pairs.filter(pl.col("measure") == "solve_rate")
    rows = solve_rates.select(*keys, "item", **shares, group_this="group_id_this", group_other="group_id_other")
    is_flip = (pl.col("this") >= _SOLVED_QUESTION) != (pl.col("other") >= _SOLVED_QUESTION)
    size = (pl.col("this") - pl.col("other")).abs()
    return rows.filter(is_flip).sort(-size, *keys, "item")


def question_sets(this: Side, other: Side, *, unmatched: Collection[str] = ()) -> pl.DataFrame:
    """Return how many questions of each task a side has, the other has, and both have.

    Args:
        unmatched: as for `compare`.

    Returns:
        `task`, `this`, `other`, `shared`, sorted by task. A question in two phases counts twice.
    """
    on = ["phase", "environment", "task", "item"]
    of_this, _ = _questions(this, on[:-1], unmatched)
    of_other, _ = _questions(other, on[:-1], unmatched)
    first = of_this.select(on, in_this=pl.lit(True)).unique()
    second = of_other.select(on, in_other=pl.lit(True)).unique()
    every = first.join(second, on=on, how="full", coalesce=True).fill_null(False)
    in_this, in_other = pl.col("in_this"), pl.col("in_other")
    counts = {"this": in_this.sum(), "other": in_other.sum(), "shared": (in_this & in_other).sum()}
    return every.group_by("task").agg(**counts).cast(pl.Schema({name: pl.Int64() for name in counts})).sort("task")


def shared_elsewhere(this: Side, other: Side, *, unmatched: Collection[str] = ()) -> list[tuple[str, str, int]]:
    """Return how many questions both sides have in whatever phases and environments: the phase and environment on this
    side and on the other, and the number, the largest first.

    Args:
        unmatched: as for `compare`.
    """
    on, place = ["task", "item"], pl.format("{} {}", "phase", "environment")
    sides = []
    for side in (this, other):
        found, _ = _questions(side, ["phase", "environment", "task"], unmatched)
        sides.append(found.select(*on, place=place).unique())
    places = sides[0].join(sides[1], on=on, suffix="_other").group_by("place", "place_other").len()
    return places.sort(pl.col("len").cast(pl.Int64).neg(), "place", "place_other").rows()


def differing_tasks(*runs: Run) -> list[str]:
    """Return the tasks whose options, or of a file whose question, answer or scorer, differ between any two of the
    runs, sorted: equal ids may be different questions, or right for different answers."""
    options: dict[str, Any] = {}
    differing = set()
    for run in runs:
        mix = run.noted.task_mix
        if not isinstance(mix, Mapping):  # without a manifest, or with one that has no mix
            continue
        for task, chosen in mix.items():
            of_run = _options(chosen)
            if options.setdefault(task, of_run) != of_run:
                differing.add(str(task))
    return sorted(differing)


def differing_left_out(*runs: Run) -> list[str]:
    """Return the tasks of whose questions for evaluation the audit left out different rows in any two runs, sorted."""
    left_out: list[set[tuple[str, str]]] = []
    for run in runs:
        noted = run.noted.questions_left_out
        if noted is not None:  # nothing is known of the others
            left_out.append({(str(task), str(rows.get(Split.EVAL.value))) for task, rows in noted.items()})
    differing = set[str]()
    for rows in left_out:
        # Those of one of the two alone, or with other numbers. That nothing was left out is not noted.
        for task, numbers in rows ^ left_out[0]:
            if numbers != "None":
                differing.add(task)
    return sorted(differing)


def _options(chosen: Any) -> Any:
    """Return what determines the questions of a task and their right answers, beside the content of its file."""
    if not isinstance(chosen, Mapping):
        return None
    file = chosen.get("file")
    if file is None:
        return chosen.get("config")
    options = {field.name: field.default for field in fields(QuestionFile)}
    if isinstance(file, Mapping):  # otherwise it is the path alone
        options |= file
    for place in _PLACES:
        options.pop(place, None)
    return options


def _pairs(this: Side, other: Side, keys: Sequence[str], unmatched: Collection[str]) -> tuple[pl.DataFrame, list[str]]:
    """Return a row per measure and shared question with sums and counts of both; and the measures, in order."""
    left, of_this = _questions(this, keys, unmatched)
    right, of_other = _questions(other, keys, unmatched)
    left, right = _renamed(left, "this"), _renamed(right, "other")
    on = list(dict.fromkeys([*keys, "task", "item", "measure"]))
    # pass@k has more values of k on a side with larger groups.
    return left.join(right, on=on, nulls_equal=True), list(dict.fromkeys([*of_this, *of_other]))


def _renamed(questions: pl.DataFrame, side: str) -> pl.DataFrame:
    """Return the questions with the side in the names of the columns that differ between the two."""
    return questions.rename({name: f"{name}_{side}" for name in ("group_id", "total", "count", "bounded")})


def _questions(side: Side, keys: Sequence[str], unmatched: Collection[str]) -> tuple[pl.DataFrame, list[str]]:
    """Return a row per measure and question: the sum and the number of values, whether they lie in [0, 1], and a
    group's id; and as `_pairs`."""
    measured = side if isinstance(side, Measured) else measure(side, to_match=True)
    groups, bounded = by_keys(measured, keys)
    on = list(dict.fromkeys([*keys, "task", "item"]))
    # Keys become texts, so that those of both sides have one type; steps have it already.
    groups = groups.cast(pl.Schema({key: pl.String() for key in on if key != "step"}))
    matched = groups.filter(pl.col("item") != "", ~pl.col("task").is_in(list(unmatched)))
    sums = []
    for name in bounded:
        for column in (f"{name}:total", f"{name}:count"):
            sums.append(pl.col(column).cast(pl.Float64).sum())
    questions = matched.group_by(on).agg(pl.col("group_id").first(), *sums)
    tables = []
    for name, is_bounded in bounded.items():
        values = {part: pl.col(f"{name}:{part}") for part in ("total", "count")}
        tables.append(questions.select(*on, "group_id", measure=pl.lit(name), **values, bounded=is_bounded))
    return pl.concat(tables), list(bounded)
