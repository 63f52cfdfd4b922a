"""What a policy learnt, from the ledger: scores, solve rate, format rate, outcomes, trend.

Invariant: rates over rollouts count every rollout once and rates over groups every group once; train and evaluation
never share a row, nor do two runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rg_env.dump.reader import Dump
from rg_env.dump.schema import Outcome
from rg_env.errors import DumpError
from rg_env.scoring.types import Status, Violation

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

BY = ("task", "step", "phase", "outcome")
SOLVED_AT = 0.99


def statistics(dump: Dump, by: str = "task", *, solved_at: float = SOLVED_AT) -> pl.DataFrame:
    """One row for each run, phase and value of `by`.

    Args:
        dump: from `open_run`. From its ledger; where there is none, from texts, with the bias that `Dump.caveat` names.
        by: `task`, `step`, `outcome`, or `phase` for one row per phase.
        solved_at: a rollout is solved when its base score is at least this, in [0, 1].

    Returns:
        `run_id`, `phase` and the column `by`; then

        - `groups`, `rollouts`, `steps`: counts;
        - `mean_base_score`, `mean_score`, `mean_reward`;
        - `solve_rate`; `format_rate`, the share without a violation; `solve_given_format`, the solve rate among those;
        - `mean_response_tokens`, `truncated`;
        - `all_correct`, `all_failed`, `mixed`, `no_signal`: shares of groups;
        - `scorer_failures`: share of rollouts with status timeout, crashed or error; `rejected`: by the guard;
        - `violation_…`: share of rollouts with each violation;
        - `solve_rate_first`, `solve_rate_last`: over the first and the last quarter of the row's steps (at least one
          each); null where there are fewer than two steps.

        Rates lie in [0, 1]; null where nothing is known.

    Raises:
        DumpError: `by` is none of the above, or a file cannot be read.
    """
    import polars as pl

    if by not in BY:
        raise DumpError(f"statistics by {by!r}: use one of {', '.join(BY)}")
    rollouts = dump.ledger_frame().with_columns(
        solved=pl.col("base_score") >= solved_at,
        well_formed=pl.col("violation").is_null(),
    )
    keys = list(dict.fromkeys(("run_id", "phase", by)))
    table = rollouts.group_by(keys).agg(
        groups=pl.col("group_id").n_unique(),
        rollouts=pl.len(),
        steps=pl.col("step").drop_nulls().n_unique(),
        mean_base_score=pl.col("base_score").mean(),
        mean_score=pl.col("score").mean(),
        mean_reward=pl.col("reward").mean(),
        solve_rate=pl.col("solved").mean(),
        format_rate=pl.col("well_formed").mean(),
        solve_given_format=pl.col("solved").filter("well_formed").mean(),
        mean_response_tokens=pl.col("response_tokens").mean(),
        truncated=pl.col("truncated").mean(),
        scorer_failures=pl.col("status").is_in([s.value for s in Status if s.is_scorer_failure]).mean(),
        rejected=(pl.col("status") == Status.REJECTED.value).mean(),
        **{f"violation_{v.value}": (pl.col("violation") == v.value).fill_null(False).mean() for v in Violation},
    )
    groups = (
        rollouts.unique("group_id")
        .group_by(keys)
        .agg(
            **{outcome.value: (pl.col("outcome") == outcome.value).mean() for outcome in Outcome},
            no_signal=pl.col("no_signal").mean(),
        )
    )
    table = table.join(groups, on=keys, nulls_equal=True).join(_trend(rollouts, keys), on=keys, nulls_equal=True)
    return table.select(*keys, *_COLUMNS, pl.col("^violation_.*$"), "solve_rate_first", "solve_rate_last").sort(keys)


_COLUMNS = (
    "groups",
    "rollouts",
    "steps",
    "mean_base_score",
    "mean_score",
    "mean_reward",
    "solve_rate",
    "format_rate",
    "solve_given_format",
    "mean_response_tokens",
    "truncated",
    *(outcome.value for outcome in Outcome),
    "no_signal",
    "scorer_failures",
    "rejected",
)


def _trend(rollouts: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Solve rate over the first and the last quarter of the distinct steps of each row."""
    import polars as pl

    rank = pl.col("step").rank("dense").over(keys)  # 1 … number of distinct steps; null outside of steps
    last_rank = rank.max().over(keys)
    quarter = (last_rank // 4).clip(lower_bound=1)
    several = last_rank >= 2
    return (
        rollouts.with_columns(first=(rank <= quarter) & several, last=(rank > last_rank - quarter) & several)
        .group_by(keys)
        .agg(
            solve_rate_first=pl.col("solved").filter("first").mean(),
            solve_rate_last=pl.col("solved").filter("last").mean(),
        )
    )


_SHOWN = {
    "groups": "groups",
    "mean_base_score": "base\nscore",
    "mean_score": "score",
    "solve_rate": "solved",
    "solve_rate_first": "first\n¼",
    "solve_rate_last": "last\n¼",
    "format_rate": "format",
    "solve_given_format": "given\nformat",
    "mean_response_tokens": "tokens",
    "truncated": "cut\noff",
    "all_correct": "all\nright",
    "all_failed": "all\nfailed",
}


def render_table(frame: pl.DataFrame, title: str | None = None) -> Table:
    """The main columns of `statistics` for a terminal, in a section for each run and phase.

    What would say the same in every row is left out: the score where no penalty applied, truncation where there was
    none, the trend (solved over the first and the last quarter of the steps) where there are no steps.

    Args:
        frame: from `statistics`.
        title: printed above the table.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    by = frame.columns[frame.columns.index("groups") - 1]
    section_keys = [key for key in ("run_id", "phase") if key != by]
    if frame["run_id"].n_unique() < 2:
        section_keys.remove("run_id")
    same = {
        "mean_score": frame["mean_score"].equals(frame["mean_base_score"]),
        "truncated": not frame["truncated"].sum(),
        "solve_rate_first": not frame["solve_rate_first"].count(),
        "solve_rate_last": not frame["solve_rate_last"].count(),
    }
    shown = {name: header for name, header in _SHOWN.items() if not same.get(name)}
    table = Table(title=title, box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column(by, overflow="fold", min_width=9)
    for header in shown.values():
        table.add_column(header, justify="right", no_wrap=True)
    section = ""
    for row in frame.iter_rows(named=True):
        if section != (section := " ".join(row[key] for key in section_keys)):
            table.add_section()
            table.add_row(Text(section, style="bold"))
        name = "–" if row[by] is None else str(row[by])
        table.add_row(Text(name), *(_cell(column, row[column]) for column in shown))
    return table


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if name in ("groups", "mean_response_tokens"):
        return f"{value:.0f}"
    return f"{value:.3f}" if name.startswith("mean_") else f"{value:.0%}"
