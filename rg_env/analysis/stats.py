"""Statistics of rollouts: scores, solve rate, pass@k, format, lengths, outcomes, trend.

Invariant: rates over rollouts count every rollout once, and rates over groups every group once; train and evaluation
never share a row, nor do two environments, nor two runs unless they are pooled explicitly. Every figure is a count or a
mean of recorded values, except for intervals (see `intervals`) and pass@k (see `pass_at_k`). A statistic is one entry
of `STATISTICS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from rg_env.analysis.by import key_columns, with_keys
from rg_env.analysis.intervals import CONFIDENCE, difference, moments, with_intervals
from rg_env.analysis.pass_at_k import pass_at_k, tries_up_to
from rg_env.choices import By
from rg_env.dump.frames import ROLLOUT_SCHEMA, SCHEMA
from rg_env.dump.reader import Dump
from rg_env.dump.schema import RG_DUMP, FileKind, Outcome, Phase
from rg_env.errors import DumpError
from rg_env.scoring.types import UNCOUNTED, Status, Violation

SOLVED_AT = 0.99
PERCENTILES = (10, 50, 90)
GROUP = "group"
"""Column with a number for each group."""

_FORMATTED = pl.col("environment") == RG_DUMP
"""Whether the environment of a rollout has a format."""
_LOST = pl.col("base_score") - pl.col("score")
_SCORED = pl.col("raw_score").is_not_null() & pl.col("tagged_score").is_not_null()


class NoRolloutsError(DumpError):
    """There is nothing to compute statistics from."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """A mean over rollouts or over groups.

    Attributes:
        value: of a rollout, from its columns, `solved` and `well_formed`; of a group if `per_group`, from its columns
            `above_threshold_unsolved` and `partial_credit_only`. Null where it is unknown or does not apply: left out.
        meaning: a few words for the documentation.
        interval: whether it gets a confidence interval, and a row in comparisons.
        bounded: whether values lie in [0, 1].
        header: of its column in the table for a terminal, "" without one; `form` is how a value is shown there.
        rare: show that column only if some row rounds to at least 1 %.
    """

    name: str
    value: pl.Expr
    meaning: str
    per_group: bool = False
    interval: bool = True
    bounded: bool = True
    header: str = ""
    form: str = ".0%"
    rare: bool = False


def _share(name: str, value: pl.Expr, meaning: str, *, header: str = "") -> Statistic:
    """A share of rollouts without an interval."""
    return Statistic(name, value, meaning, interval=False, header=header)


def _of_groups(name: str, value: pl.Expr, meaning: str, *, header: str = "") -> Statistic:
    return Statistic(name, value, meaning, per_group=True, header=header)


STATISTICS = (
    Statistic("mean_base_score", pl.col("base_score"), "the base score", header="base\nscore", form=".3f"),
    Statistic("mean_raw_score", pl.col("raw_score"), "the score of the bare answer, where one was scored"),
    Statistic("mean_tagged_score", pl.col("tagged_score"), "the score of the answer in its tags"),
    Statistic("mean_score", pl.col("score"), "the score, after the length penalty", header="score", form=".3f"),
    Statistic("mean_reward", pl.col("reward"), "the reward", bounded=False),
    Statistic("solve_rate", pl.col("solved"), "share of rollouts with a base score of at least `solved_at`"),
    Statistic("format_rate", pl.col("well_formed"), "share without a violation", header="format"),
    Statistic("mean_response_tokens", pl.col("response_tokens"), "the length of responses", bounded=False),
    Statistic("truncated", pl.col("truncated"), "share that hit the length limit", header="cut\noff", rare=True),
    _share("solve_given_format", pl.col("solved").filter("well_formed"), "solve rate without violations"),
    _share("penalty_lost", _LOST, "mean of base score - score"),
    _share("penalized", _LOST > 0, "share with a lower score than base score"),
    _share(
        "tagged_wins",
        (pl.col("tagged_score") > pl.col("raw_score")).filter(_SCORED),
        "share of scored rollouts whose tagged score is higher than the raw one",
    ),
    _share(
        "scorer_failures",
        pl.col("status").is_in([status.value for status in Status if status.is_scorer_failure]),
        "share whose scorer failed: status timeout, crashed or error",
    ),
    _share("rejected", pl.col("status") == Status.REJECTED.value, "share that the guard rejected"),
    *(
        _share(f"status_{one.value}", pl.col("status") == one.value, f"share with the status {one.value}")
        for one in Status
        if one.is_counted
    ),
    *(
        _share(
            f"violation_{one.value}",
            pl.when(_FORMATTED).then((pl.col("violation") == one.value).fill_null(False)),
            f"share with the violation {one.value}",
        )
        for one in Violation
    ),
    *(
        _of_groups(one.value, pl.col("outcome") == one.value, f"share of groups with the outcome {one.value}")
        for one in Outcome
    ),
    _of_groups(
        "no_signal",
        pl.when(pl.col("phase") == Phase.TRAIN.value).then("no_signal"),
        "share of training groups whose rewards are all equal",
        header="no\nsignal",
    ),
    _of_groups(
        "above_threshold_unsolved",
        pl.col("above_threshold_unsolved"),
        "share of groups with a base score above the threshold in which nothing is solved",
    ),
    _of_groups(
        "partial_credit_only",
        pl.col("partial_credit_only"),
        "share of groups in which nothing is solved and some base score is above 0",
    ),
)
"""The statistics, in the order of the columns."""

UNBOUNDED = frozenset(one.name for one in STATISTICS if not one.bounded)
_BY_GROUP = [one for one in STATISTICS if one.interval and not one.per_group]
"""Of rollouts, with an interval: summed group by group."""
_PLAIN = [one for one in STATISTICS if not one.interval]
_OF_GROUP = ("run_id", "phase", "environment", "task", "complexity", "step", "outcome", "no_signal", "attempt", "text")
_TYPES: dict[str, pl.DataType] = dict.fromkeys(("run_id", "phase", "environment", "task", "text"), pl.Categorical())
_TYPES |= {"outcome": pl.Enum(Outcome), "violation": pl.Enum(["", *Violation]), "status": pl.Enum(Status)}
NEEDED = list(
    dict.fromkeys(
        [
            *_OF_GROUP,
            "violation",
            "solved_at",
            *(column for one in STATISTICS for column in one.value.meta.root_names() if column in SCHEMA),
        ]
    )
)
"""The columns that statistics need, beside `group_id`."""
_FOR_DETAILS = ("raw_score", "tagged_score", "reward")
"""Columns that the tables for a terminal need with `--details` only."""
TO_MATCH = ("item", "group_id")
"""The columns that matching the questions of two runs needs in addition."""


@dataclass(frozen=True)
class Measured:
    """Rollouts and groups, read once for several tables.

    Attributes:
        rollouts: the counted ones: the columns that statistics need, `GROUP`, `solved` and `well_formed`.
        groups: a row for each group: its columns, and for statistics with an interval `NAME:total` and `NAME:count`.
        whole: whether all groups are complete; otherwise pass@k and outcomes are unknown.
        left_out: number of rollouts without a response, or to a question that cannot be made again.
        details: False if what tables for a terminal do not show was not read, and is null.
    """

    rollouts: pl.DataFrame
    groups: pl.DataFrame
    whole: bool = True
    left_out: int = 0
    details: bool = True


def measure(
    rollouts: pl.LazyFrame | pl.DataFrame,
    *,
    solved_at: float = SOLVED_AT,
    whole: bool = True,
    to_match: bool = False,
    details: bool = True,
) -> Measured:
    """Read what statistics are computed from.

    Args:
        rollouts: rows as `Dump.scan` gives them, in any order; of whole groups, unless `whole` is False.
        solved_at: a rollout is solved when its base score is at least this, in [0, 1], unless its group says otherwise.
        whole: `Dump.whole_groups`.
        to_match: also read the columns that `compare` needs.
        details: False leaves out what tables for a terminal do not show; it is then null, and reading is faster.

    Raises:
        DumpError: no rollout can be counted.
        ConditionError: as `Dump.where`.
    """
    columns = [*NEEDED, *(TO_MATCH if to_match else ())]
    read = [
        (pl.col(name) if details or name not in _FOR_DETAILS else pl.lit(None, SCHEMA[name]).alias(name)).cast(
            _TYPES.get(name, SCHEMA[name])
        )
        for name in columns
    ]
    every = rollouts.lazy().select(*read, pl.col("group_id").hash().alias(GROUP)).collect(engine="streaming")
    counted = every.filter(pl.col("status").is_in(UNCOUNTED).fill_null(False).not_()).with_columns(
        solved=(pl.col("base_score") >= pl.col("solved_at").fill_null(solved_at)).fill_null(False),
        well_formed=pl.when(_FORMATTED).then(pl.col("violation") == ""),
    )
    if every.is_empty():
        raise NoRolloutsError("there are no rollouts")
    if counted.is_empty():
        raise DumpError(f"nothing can be counted: all {every.height} rollouts are {' or '.join(UNCOUNTED)}")
    return Measured(counted, _groups(counted), whole, every.height - counted.height, details)


def measure_dump(dump: Dump, *, solved_at: float = SOLVED_AT, to_match: bool = False, details: bool = True) -> Measured:
    """`measure` of a dump, with an error that names its files if there is nothing in them."""
    rows, whole = dump.scan(), dump.whole_groups
    try:
        return measure(rows, solved_at=solved_at, whole=whole, to_match=to_match, details=details)
    except NoRolloutsError:
        names = ", ".join(dict.fromkeys(str(file.path) for file in dump.files_to_read())) or "these files"
        count = len(dump.problems)
        why = f"; the first of {count} problems: {dump.problems[0]}" if count else ""
        raise NoRolloutsError(f"no rollout in {names}{why}") from None


def step_numbers(dump: Dump) -> dict[tuple[str, int], dict[str, float | None]]:
    """The trainer's own numbers of each step, such as loss, KL and gradient norm, by run id and step."""
    return {(record.run_id, record.step): dict(zip(record.name, record.value, strict=True)) for record in dump.steps()}


def above_threshold_unsolved(found: Measured) -> int:
    """Number of groups that are above the threshold by partial credit alone."""
    return int(found.groups["above_threshold_unsolved"].sum())


def statistics(
    rollouts: pl.LazyFrame | pl.DataFrame | Measured,
    by: str = By.TASK,
    *,
    solved_at: float = SOLVED_AT,
    whole: bool = True,
    pool_runs: bool = False,
    confidence: float = CONFIDENCE,
) -> pl.DataFrame:
    """One row for each run, phase, environment and value of `by`.

    Args:
        rollouts: as for `measure`: `Dump.scan()`, perhaps of `Dump.where(…)`. Or what `measure` returned.
        by: a value of `By` or several separated by commas: `task`, `category`, `step`, `level` (task and tenth
            of the complexity), `outcome`, `violation`, `status`, or `phase` or `environment`, which rows always have.
        solved_at, whole: as for `measure`.
        pool_runs: combine all runs into one row.
        confidence: of the intervals, between 0 and 1.

    Returns:
        `run_id` (unless pooled), `phase`, `environment` and the columns of `by`; then the following, those with *
        followed by their confidence interval (`…_low`, `…_high`; clustered by group, see `rg_env.analysis.intervals`):

        - `groups`, `rollouts`, `steps`: counts;
        - every entry of `STATISTICS`, which says what it is; * with the attribute `interval`;
        - `pass_at_K`*: the probability that one of K responses to a prompt is solved;
          K = 1, 2, 4, … and the largest group size, over the groups with at least K rollouts;
        - `solve_rate_first`*, `solve_rate_last`*: over the first and the last quarter of the row's steps (at least one
          each); `solve_rate_change`* between them; null if there are fewer than two steps;
        - `tokens_right_pP`, `tokens_wrong_pP`: percentiles 10, 50, 90 of the length of solved and unsolved rollouts
          (linear between two lengths).

        Rates lie in [0, 1]; unknown values are null: of other environments everything about
        violations, status, truncation and the length penalty. Statistics of whole groups (shares of groups,
        pass@k) are null if only some rollouts of a group are counted: by violation or status, or not `whole`.

    Raises:
        DumpError: `by` is invalid, or as `measure`.
    """
    keys = [*(() if pool_runs else ("run_id",)), *key_columns(by)]
    found = rollouts if isinstance(rollouts, Measured) else measure(rollouts, solved_at=solved_at, whole=whole)
    rows, groups, tries, split = by_keys(found, keys)
    names = [one.name for one in STATISTICS if one.interval] + tries + ["solve_rate_first", "solve_rate_last"]
    table = groups.group_by(keys).agg(
        pl.len().alias("groups"),
        pl.col("solve_rate:count").sum().cast(pl.Int64).alias("rollouts"),
        pl.col("step").drop_nulls().n_unique().alias("steps"),
        *(moment for name in names for moment in moments(name)),
    )
    table = with_intervals(table, {name: name not in UNBOUNDED for name in names}, confidence)
    table = table.with_columns(difference("solve_rate_change", "solve_rate_last", "solve_rate_first"))
    tokens = pl.col("response_tokens").cast(pl.Float64)
    percentiles = [
        tokens.filter(chosen).quantile(p / 100, "linear").alias(f"tokens_{name}_p{p}")
        for name, chosen in (("right", pl.col("solved")), ("wrong", ~pl.col("solved")))
        for p in PERCENTILES
    ]
    means = ((one.value.mean() if found.details else pl.lit(None, pl.Float64)).alias(one.name) for one in _PLAIN)
    plain = rows.lazy().group_by(keys).agg(*means, *percentiles).collect(engine="streaming")
    table = table.join(plain, on=keys, nulls_equal=True)
    wrong = [*tries, *(one.name for one in STATISTICS if one.per_group)] if split else []
    table = table.with_columns(
        pl.lit(None, pl.Float64).alias(column) for name in wrong for column in _with_bounds(name) if column in table
    )
    order = [
        *("groups", "rollouts", "steps"),
        *(column for one in STATISTICS for column in (_with_bounds(one.name) if one.interval else [one.name])),
        *(column for name in (*tries, *names[-2:], "solve_rate_change") for column in _with_bounds(name)),
        *(f"tokens_{which}_p{p}" for which in ("right", "wrong") for p in PERCENTILES),
    ]
    texts = pl.Schema({key: pl.String() for key in keys if key != "step"})
    return table.select(*keys, *order).cast(texts).sort(keys)


def by_keys(found: Measured, keys: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame, list[str], bool]:
    """What a table by these keys is computed from.

    Returns:
        rollouts and groups with the keys, the groups with pass@k and the solve rate of the first and the last quarter
        of the steps; the names of pass@k; and whether only some rollouts of a group may be counted.
    """
    rows = with_keys(found.rollouts, keys)
    if "violation" in keys:
        rows = rows.with_columns(pl.col("violation").cast(pl.String))
    apart = [key for key in keys if key in ROLLOUT_SCHEMA]
    groups = with_keys(_groups(rows, apart) if apart else found.groups, keys)
    groups, tries = _with_tries(_with_quarters(groups, keys))
    return rows, groups, tries, bool(apart) or not found.whole


def _groups(rollouts: pl.DataFrame, apart: Sequence[str] = ()) -> pl.DataFrame:
    """One row per group, and per value of the columns `apart`."""
    firsts = [name for name in (*_OF_GROUP, *TO_MATCH) if name in rollouts.columns and name not in apart]
    scores = pl.col("base_score")
    each = rollouts.lazy().group_by(GROUP, *apart)
    groups = each.agg(
        pl.col(*firsts).first(),
        *(one.value.sum().alias(f"{one.name}:total") for one in _BY_GROUP),
        *(one.value.count().alias(f"{one.name}:count") for one in _BY_GROUP),
        partial_credit_only=(~pl.col("solved").any() & (scores.max() > 0)).fill_null(False),
    ).collect(engine="streaming")  # needs less memory than the engine for frames
    is_above = (pl.col("text") == FileKind.ROLLOUTS.value).fill_null(False)
    groups = groups.with_columns(above_threshold_unsolved=pl.col("partial_credit_only") & is_above)
    per_group = [one for one in STATISTICS if one.per_group]
    return groups.with_columns(
        *(one.value.cast(pl.Float64).fill_null(0).alias(f"{one.name}:total") for one in per_group),
        *(one.value.is_not_null().alias(f"{one.name}:count") for one in per_group),
    )


def _with_quarters(groups: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Add the solve rate over the first and over the last quarter of their row's steps."""
    on = list(dict.fromkeys([*keys, "step"]))
    steps = groups.select(on).drop_nulls("step").unique()
    rank = pl.col("step").rank("dense").over(keys)  # 1 … number of distinct steps
    last = rank.max().over(keys)
    quarter = (last // 4).clip(lower_bound=1)
    steps = steps.select(
        *on,
        first=(rank <= quarter) & (last >= 2),
        last=(rank > last - quarter) & (last >= 2),
    )
    return groups.join(steps, on=on, how="left", nulls_equal=True).with_columns(
        pl.when(name).then(f"solve_rate:{part}").otherwise(0).alias(f"solve_rate_{name}:{part}")
        for name in ("first", "last")
        for part in ("total", "count")
    )


def _with_tries(groups: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Add pass@k, counted in groups with at least k rollouts; also returns their names."""
    n, c = "solve_rate:count", "solve_rate:total"
    pairs = groups.select(n, c).unique()
    largest = max(pairs[n].to_list(), default=0)
    names = []
    for k in tries_up_to(largest):
        values = [
            pass_at_k(tried, solved, k) if k <= tried else 0.0 for tried, solved in pairs.select(n, c).iter_rows()
        ]
        names.append(f"pass_at_{k}")
        pairs = pairs.with_columns(
            pl.Series(f"pass_at_{k}:total", values, pl.Float64), (pl.col(n) >= k).alias(f"pass_at_{k}:count")
        )
    return groups.join(pairs, on=[n, c], how="left"), names


def _with_bounds(name: str) -> list[str]:
    return [name, f"{name}_low", f"{name}_high"]
