"""Statistics of rollouts: scores, solve rate, pass@k, format, lengths, outcomes, trend.

Invariant: rates over rollouts count every rollout once, and rates over groups every group once; train and evaluation
never share a row, nor do two runs unless they are pooled explicitly. Every figure is a count or a mean of recorded
values, except for intervals (see `intervals`) and pass@k (see `pass_at_k`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from rg_env.analysis.by import key_columns, with_keys
from rg_env.analysis.intervals import CONFIDENCE, difference, moments, with_intervals
from rg_env.analysis.pace import COLUMNS as PACE
from rg_env.analysis.pace import pace
from rg_env.analysis.pass_at_k import pass_at_k, pass_hat_k, tries_up_to
from rg_env.analysis.sample import Sample, Source, sample_of
from rg_env.choices import By
from rg_env.dump.read.frames import GROUP_INDEX, ROLLOUT_SCHEMA
from rg_env.dump.schema import Outcome
from rg_env.scoring.types import Status, Violation

SOLVED_AT = 0.99
PERCENTILES = (10, 50, 90)

_SCORES = ("base_score", "raw_score", "tagged_score", "score", "reward")
_NUMBERS = (*_SCORES, "response_tokens")
_FLAGS = ("well_formed", "truncated")
_JUDGED = pl.col("status").is_not_null()
"""Whether the format and the status of a rollout are known: they are not in Atropos' files."""
_STATUSES = [status for status in Status if status.is_counted]
_UNKNOWN = pl.lit("unknown")
UNBOUNDED = ("mean_reward", "mean_response_tokens")
"""Means of values that may lie outside [0, 1]."""
_OF_GROUP = ("run_id", "phase", "task", "complexity", "step", "outcome", "no_signal", "item", "group_id")
_OF_GROUPS = (*(outcome.value for outcome in Outcome), "equal_partial_credit", "no_signal")


def statistics(
    source: Source,
    by: str = By.TASK,
    *,
    where: Sequence[str] = (),
    solved_at: float = SOLVED_AT,
    pool_runs: bool = False,
    confidence: float = CONFIDENCE,
) -> pl.DataFrame:
    """One row for each run, phase and value of `by`.

    Args:
        source: from `open_run`: its ledger or, without one, its texts, with the bias that `Dump.caveat` describes.
            Or rows as in `Dump.ledger_frame`, of whole groups, as a polars frame or a Ray dataset; or a sample.
        by: a value of `By` or several separated by commas: `task`, `category`, `step`, `level` (task and tenth
            of the complexity), `outcome`, `violation` or `phase`.
        where: conditions such as `step>=20`, all of which must hold: see `parse_conditions`.
        solved_at: a rollout is solved when its base score is at least this, in [0, 1].
        pool_runs: combine all runs into one row.
        confidence: of the intervals, between 0 and 1.

    Returns:
        `run_id` (unless pooled), `phase` and the columns of `by`; then the following, those with * followed by their
        confidence interval (`…_low`, `…_high`; clustered by group, see `rg_env.analysis.intervals`):

        - `groups`, `rollouts`, `steps`: counts;
        - `mean_base_score`*, `mean_raw_score`*, `mean_tagged_score`*, `mean_score`* (after the length penalty),
          `mean_reward`*: raw and tagged over the rollouts that were scored;
        - `solve_rate`*; `format_rate`*, the share without a violation; `solve_given_format`, the solve rate there;
        - `pass_at_K`*: the probability that one of K responses to a prompt is solved, `pass_hat_K`*: that all K are;
          K = 1, 2, 4, … and the largest group size, over the groups with at least K rollouts;
        - `mean_response_tokens`*, `tokens_right_pP`, `tokens_wrong_pP`: percentiles 10, 50, 90 of the length of solved
          and unsolved rollouts (linear between two lengths); `truncated`*;
        - `all_correct`*, `all_failed`*, `mixed`*, `no_signal`*: shares of groups; `equal_partial_credit`*: the mixed
          groups in which nothing is solved and all base scores are equal;
        - `penalty_lost`: mean of base score − score; `penalized`: share of rollouts with a lower score; `tagged_wins`:
          share of scored rollouts whose tagged score is higher than the raw one;
        - `scorer_failures`: share of rollouts with status timeout, crashed or error; `rejected`: by the guard;
        - `status_…`, `violation_…`: share of rollouts with each;
        - `solve_rate_first`*, `solve_rate_last`*: over the first and the last quarter of the row's steps (at least one
          each); `solve_rate_change`* between them; null if there are fewer than two steps;
        - `tokens_per_second`: response tokens per second of wall time in which a group of the row was in progress;
          `scoring_share`: of the time that rollouts spent on generation and scoring;
        - `rollout_seconds`: median over the steps of the time from the start of the row's first group to the end of its
          last one; `step_seconds`: of the time between the first groups of a training step and of the next one, which
          includes training and evaluations.

        Rates lie in [0, 1]; unknown values are null: of Atropos' files, which hold only a score, everything about
        violations, status, truncation, time and the length penalty. Statistics of whole groups (shares of groups,
        pass@k, times) are null if only some rollouts of a group are counted: by violation, and with conditions on
        rollouts.

    Raises:
        ConditionError: see `parse_conditions`.
        DumpError: `by` is invalid, or nothing could be read.
    """
    keys = [*(() if pool_runs else ("run_id",)), *key_columns(by)]
    sample = sample_of(source, where)
    found = measure_groups(sample, keys, solved_at)
    table = found.groups.group_by(keys).agg(
        pl.len().alias("groups"),
        pl.col("n").sum().alias("rollouts"),
        pl.col("step").drop_nulls().n_unique().alias("steps"),
        *(moment for name, (total, count) in found.measures.items() for moment in moments(name, total, count)),
    )
    table = with_intervals(table, {name: name not in UNBOUNDED for name in found.measures}, confidence)
    table = table.with_columns(difference("solve_rate_change", "solve_rate_last", "solve_rate_first"))
    table = table.join(_plain(found.rollouts, keys), on=keys, nulls_equal=True)
    table = table.join(pace(found.rollouts, keys), on=keys, how="left", nulls_equal=True)
    unknown = [column for name in found.unknown for column in _with_bounds(name)]
    unknown += PACE if unknown else []
    table = table.with_columns(pl.lit(None, pl.Float64).alias(column) for column in unknown)
    texts = pl.Schema({key: pl.String() for key in keys if key != "step"})
    return table.select(*keys, *_columns(found.tries)).cast(texts).sort(keys)


@dataclass(frozen=True)
class Measured:
    """What the statistics are computed from.

    Attributes:
        rollouts: the sample's, with `solved`, `well_formed` and the keys.
        groups: one row per group and value of the keys: sums and counts.
        measures: the statistics with an interval: each group's total, and the number of values in it.
        tries: names of pass@k and pass^k.
        unknown: measures that are wrong because only some rollouts of a group are counted.
    """

    rollouts: pl.DataFrame
    groups: pl.DataFrame
    measures: dict[str, tuple[pl.Expr, pl.Expr]]
    tries: list[str]
    unknown: list[str]


def measure_groups(sample: Sample, keys: list[str], solved_at: float) -> Measured:
    """Sums and counts of all statistics, group by group."""
    rollouts = with_keys(sample.rollouts, keys).with_columns(
        solved=(pl.col("base_score") >= solved_at).fill_null(False),
        well_formed=pl.when(_JUDGED).then(pl.col("violation").is_null()),
    )
    if "violation" in keys:
        rollouts = rollouts.with_columns(pl.when(_JUDGED).then(pl.col("violation").cast(pl.String)).otherwise(_UNKNOWN))
    apart = [key for key in keys if key in ROLLOUT_SCHEMA]
    groups = _groups(rollouts, apart) if apart else sample.once(("groups", solved_at), lambda: _groups(rollouts))
    groups, tries = _with_tries(_with_quarters(with_keys(groups, keys), keys))
    unknown = [] if sample.whole and not apart else [*tries, *_OF_GROUPS]
    return Measured(rollouts, groups, _measures(tries), tries, unknown)


def _groups(rollouts: pl.DataFrame, apart: Sequence[str] = ()) -> pl.DataFrame:
    """One row per group, and per value of the columns `apart`: sums and counts."""
    return rollouts.group_by(GROUP_INDEX, *apart).agg(
        pl.col(*(name for name in _OF_GROUP if name in rollouts.columns and name not in apart)).first(),
        pl.len().alias("n"),
        pl.col("solved", *_FLAGS, *_NUMBERS).sum(),
        pl.col(*_FLAGS, *_NUMBERS).count().name.suffix("_n"),
        equal_partial_credit=(
            ~pl.col("solved").any() & (pl.col("base_score").min() > 0) & (pl.col("base_score").n_unique() == 1)
        ).fill_null(False),
    )


def _with_quarters(groups: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Mark the groups in the first and in the last quarter of their row's steps."""
    rank = pl.col("step").rank("dense").over(keys)  # 1 … number of distinct steps; null without a step
    last = rank.max().over(keys)
    quarter = (last // 4).clip(lower_bound=1)
    return groups.with_columns(
        first_quarter=((rank <= quarter) & (last >= 2)).fill_null(False),
        last_quarter=((rank > last - quarter) & (last >= 2)).fill_null(False),
    )


def _with_tries(groups: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Add pass@k and pass^k, null for groups with fewer than k rollouts; also returns the names of these columns."""
    largest = groups["n"].max() if groups.height else 0
    assert isinstance(largest, int)
    pairs = groups.select("n", "solved").unique()
    names = []
    for rule, prefix in ((pass_at_k, "pass_at"), (pass_hat_k, "pass_hat")):
        for k in tries_up_to(largest):
            values = [rule(n, c, k) if k <= n else None for n, c in pairs.select("n", "solved").iter_rows()]
            names.append(f"{prefix}_{k}")
            pairs = pairs.with_columns(pl.Series(names[-1], values, pl.Float64))
    return groups.join(pairs, on=["n", "solved"], how="left"), names


def _measures(tries: Sequence[str]) -> dict[str, tuple[pl.Expr, pl.Expr]]:
    """The statistics with an interval: each group's total, and the number of values in it."""
    n, one = pl.col("n"), pl.col("n") > 0
    found = {f"mean_{name}": (pl.col(name), pl.col(f"{name}_n")) for name in _NUMBERS}
    found |= {
        "solve_rate": (pl.col("solved"), n),
        "format_rate": (pl.col("well_formed"), pl.col("well_formed_n")),
        "truncated": (pl.col("truncated"), pl.col("truncated_n")),
    }
    for name in ("first", "last"):
        inside = pl.col(f"{name}_quarter").cast(pl.Int64)
        found[f"solve_rate_{name}"] = (pl.col("solved") * inside, n * inside)
    for name in tries:
        found[name] = (pl.col(name).fill_null(0), pl.col(name).is_not_null())
    for outcome in Outcome:
        found[outcome.value] = ((pl.col("outcome") == outcome.value).cast(pl.Float64), one)
    for name in ("equal_partial_credit", "no_signal"):
        found[name] = (pl.col(name).cast(pl.Float64), one)
    return found


def _plain(rollouts: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The statistics without an interval."""
    tokens = pl.col("response_tokens").cast(pl.Float64)
    lost = pl.when(_JUDGED).then(pl.col("base_score") - pl.col("score"))
    scored = pl.col("raw_score").is_not_null() & pl.col("tagged_score").is_not_null()
    failures = [status.value for status in Status if status.is_scorer_failure]
    return rollouts.group_by(keys).agg(
        pl.col("solved").filter("well_formed").mean().alias("solve_given_format"),
        *(
            tokens.filter(chosen).quantile(p / 100, "linear").alias(f"tokens_{name}_p{p}")
            for name, chosen in (("right", pl.col("solved")), ("wrong", ~pl.col("solved")))
            for p in PERCENTILES
        ),
        lost.mean().alias("penalty_lost"),
        (lost > 0).mean().alias("penalized"),
        (pl.col("tagged_score") > pl.col("raw_score")).filter(scored).mean().alias("tagged_wins"),
        pl.col("status").is_in(failures).mean().alias("scorer_failures"),
        (pl.col("status") == Status.REJECTED.value).mean().alias("rejected"),
        *((pl.col("status") == s.value).mean().alias(f"status_{s.value}") for s in _STATUSES),
        *(
            pl.when(_JUDGED)
            .then((pl.col("violation") == v.value).fill_null(False))
            .mean()
            .alias(f"violation_{v.value}")
            for v in Violation
        ),
    )


def _columns(tries: Sequence[str]) -> list[str]:
    """All columns except the keys, in the order of the docstring of `statistics`."""
    names = ["groups", "rollouts", "steps"]
    for name in (*(f"mean_{score}" for score in _SCORES), "solve_rate", "format_rate"):
        names += _with_bounds(name)
    names.append("solve_given_format")
    for name in (*tries, "mean_response_tokens"):
        names += _with_bounds(name)
    names += [f"tokens_{which}_p{p}" for which in ("right", "wrong") for p in PERCENTILES]
    for name in ("truncated", *_OF_GROUPS):
        names += _with_bounds(name)
    names += ["penalty_lost", "penalized", "tagged_wins", "scorer_failures", "rejected"]
    names += [f"status_{status.value}" for status in _STATUSES] + [f"violation_{v.value}" for v in Violation]
    for name in ("solve_rate_first", "solve_rate_last", "solve_rate_change"):
        names += _with_bounds(name)
    return [*names, *PACE]


def _with_bounds(name: str) -> list[str]:
    return [name, f"{name}_low", f"{name}_high"]
