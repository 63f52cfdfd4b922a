"""What token records say about a step: how far engine and trainer differ, and whether the advantages follow from the
recorded rewards.

Invariant: numbers are over the tokens that the step trained on (loss mask 1), unless a name says otherwise. Advantages
are computed again for grpo (with and without the standard deviation), rloo and reinforce++; those of other estimators,
which need more than rewards, are not.

Tolerance: SkyRL computes in float32. An advantage fits if it is within 1e-4 · (1 + |advantage|) of ours, plus the
rounding of the rewards times the factor by which the estimator multiplies it, which is 10⁶ where grpo divides by the
standard deviation of equal rewards. The rounding of a group's mean is 4 units in the last place of its largest reward
(the most that torch 2 is off for groups of up to 256), and nothing where all rewards are equal and have few bits, such
as 1 or 0.5; of discounted returns, 8.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rg_env.dump.write.tokens import METADATA, TokenFile, token_files
from rg_env.errors import DumpError

_UNITS_OF_MEAN = 4
_ROUNDING_OF_RETURNS = 8 * float(np.finfo(np.float32).eps)
_POSITIONS = (0, 1, 10, 100, 1000, 10_000)
_OF_TRAJECTORY = ["group_id", "copy", "repetition"]


@dataclass(frozen=True)
class StepTokens:
    """The tokens of one step.

    Attributes:
        rows, tokens, trained: numbers of rows, of response tokens, and of those with loss mask 1.
        mean, largest: of |log p(trainer) - log p(engine)|; None if one of them was not recorded.
        outside: share of trained tokens whose ratio of both probabilities is outside of the clip range.
        by_position: mean difference of tokens from this position on, to the next one.
        worst: rows with the largest mean difference: `group_id`, `repetition`, `turn`, `mean`, `largest`.
        estimator: of advantages; `recomputed` is False for those that are not covered.
        wrong: rows whose advantages do not follow from the rewards, as `group_id`, `repetition`, `difference`.
    """

    file: TokenFile
    rows: int
    tokens: int
    trained: int
    mean: float | None
    largest: float | None
    outside: float | None
    by_position: dict[int, float]
    worst: list[dict[str, Any]]
    estimator: str
    recomputed: bool
    wrong: list[dict[str, Any]] = field(default_factory=list)

    @property
    def masked(self) -> float:
        """Share of response tokens that are not trained on."""
        return 1 - self.trained / self.tokens if self.tokens else 0.0


def find_tokens(paths: Iterable[Path], steps: range | None = None) -> list[TokenFile]:
    """The token records in folders, of each step those of its last attempt.

    Raises:
        DumpError: there are none.
    """
    files = [file for path in paths for file in token_files(path)]
    last = {(file.run_id, file.step): file for file in files if steps is None or file.step in steps}
    if not last:
        names = ", ".join(map(str, paths))
        raise DumpError(f"no token records in {names}: train with dump_tokens=1..20 or dump_tokens=last:5")
    return [last[key] for key in sorted(last)]


def read_step(file: TokenFile, worst: int = 3) -> StepTokens:
    """Measure one step.

    Raises:
        DumpError: the file cannot be read.
    """
    try:
        facts = json.loads(pl.read_parquet_metadata(file.path)[METADATA.decode()])
        rows = pl.read_parquet(file.path).with_row_index("row")
    except (OSError, pl.exceptions.PolarsError, KeyError, ValueError) as error:
        raise DumpError(f"{file.path.name} cannot be read: {error}") from None
    tokens = rows.select("row", "loss_mask", "logprobs", "rollout_logprobs").with_columns(
        position=pl.int_ranges(pl.col("loss_mask").list.len())
    )
    both = rows["logprobs"].null_count() == rows["rollout_logprobs"].null_count() == 0
    lists = ["loss_mask", "position", *(["logprobs", "rollout_logprobs"] if both else [])]
    each = tokens.filter(pl.col("loss_mask").list.len() > 0).select("row", *lists).explode(lists)
    trained = each.filter(pl.col("loss_mask") > 0)
    mean = largest = outside = None
    by_position: dict[int, float] = {}
    rows_of_worst: list[dict[str, Any]] = []
    if both and trained.height:
        gap = (pl.col("logprobs") - pl.col("rollout_logprobs")).cast(pl.Float64)
        trained = trained.with_columns(gap=gap.abs(), ratio=gap.exp())
        mean, largest = _number(trained["gap"].mean()), _number(trained["gap"].max())
        inside = pl.col("ratio").is_between(1 - facts["eps_clip_low"], 1 + facts["eps_clip_high"])
        outside = _number(trained.select((~inside).mean()).item())
        reached = [pl.when(pl.col("position") >= start).then(start) for start in _POSITIONS]
        of_start = trained.group_by(start=pl.max_horizontal(reached)).agg(pl.col("gap").mean()).sort("start")
        by_position = dict(of_start.iter_rows())
        of_row = trained.group_by("row").agg(mean=pl.col("gap").mean(), largest=pl.col("gap").max())
        names = rows.select("row", *_OF_TRAJECTORY, "turn")
        rows_of_worst = of_row.sort("mean", "row", descending=[True, False]).head(worst).join(
            names, on="row", maintain_order="left"
        ).drop("row").to_dicts()  # fmt: skip
    estimator = str(facts["advantage_estimator"])
    wrong, known = [], estimator in _ESTIMATORS
    if known:
        wrong = list(_wrong(rows, facts))
    count = int(rows["loss_mask"].list.len().sum())
    return StepTokens(
        file,
        rows.height,
        count,
        trained.height,
        mean,
        largest,
        outside,
        by_position,
        rows_of_worst,
        estimator,
        known,
        wrong,
    )


def _number(value: Any) -> float:
    return float(value)


# -- advantages


def _wrong(rows: pl.DataFrame, facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows whose recorded advantages differ from those that their rewards give."""
    right, tolerance = _ESTIMATORS[str(facts["advantage_estimator"])](rows, facts)
    recorded = rows["advantages"].to_list()
    for number, (expected, slack) in enumerate(zip(right, tolerance, strict=True)):
        found = np.asarray(recorded[number], np.float64)
        gap = np.abs(found - expected)
        if not np.all(gap <= 1e-4 * (1 + np.abs(expected)) + slack):
            name = rows.row(number, named=True)
            yield {key: name[key] for key in _OF_TRAJECTORY} | {
                "difference": float(np.nan_to_num(gap, nan=np.inf).max())
            }


_Expected = tuple[list[Any], list[float]]


def _outcome_advantages(rows: pl.DataFrame, facts: dict[str, Any]) -> _Expected:
    """grpo and rloo: one number for each trajectory, from the reward of its last row."""
    by_std = bool(facts["grpo_norm_by_std"])
    is_rloo = facts["advantage_estimator"] == "rloo"
    scores: dict[tuple[Any, ...], np.float32] = {}
    addends: dict[tuple[Any, ...], int] = {}
    for *trajectory, rewards in rows.sort("turn").select(*_OF_TRAJECTORY, "rewards").iter_rows():
        scores[tuple(trajectory)] = np.sum(np.asarray(rewards, np.float32), dtype=np.float32)
        addends[tuple(trajectory)] = int(np.count_nonzero(rewards))
    groups: dict[tuple[Any, ...], list[np.float32]] = {}
    for (group, copy, _), found in scores.items():
        groups.setdefault((group, copy), []).append(found)
    expected, tolerance = [], []
    for group, copy, repetition in rows.select(_OF_TRAJECTORY).iter_rows():
        of_group = np.asarray(groups[group, copy], np.float64)
        score = float(scores[group, copy, repetition])
        if len(of_group) == 1:
            value, factor = (0.0 if is_rloo else score / (1 + 1e-6) if by_std else score), 1.0
        elif is_rloo:
            factor = len(of_group) / (len(of_group) - 1)
            value = (score - float(of_group.mean())) * factor
        else:
            factor = 1 / (float(of_group.std(ddof=1)) + 1e-6) if by_std else 1.0
            value = (score - float(of_group.mean())) * factor
        expected.append(value)
        units = _units_of_mean(of_group) + max(0, addends[group, copy, repetition] - 1)
        tolerance.append(units * float(np.spacing(np.float32(np.abs(of_group).max()))) * factor)
    return expected, tolerance


def _units_of_mean(rewards: np.ndarray) -> int:
    """By how many units in the last place the float32 mean of a group may be off."""
    sums = rewards[0] * np.arange(1, len(rewards) + 1)
    is_exact = np.all(rewards == rewards[0]) and np.all(sums == sums.astype(np.float32))
    return 0 if is_exact else _UNITS_OF_MEAN


def _discounted_advantages(rows: pl.DataFrame, facts: dict[str, Any]) -> _Expected:
    """reinforce++: discounted rewards, whitened over all tokens of the batch; padded rows repeat the first one."""
    returns = []
    for rewards in rows["rewards"]:
        running, found = 0.0, np.zeros(len(rewards), np.float64)
        for place in range(len(rewards) - 1, -1, -1):
            running = float(rewards[place]) + facts["gamma"] * running
            found[place] = running
        returns.append(found)
    every = np.concatenate([*returns, *[returns[0]] * facts["padded"]]) if returns else np.zeros(0)
    factor = 1 / np.sqrt(every.var(ddof=1) + 1e-8) if every.size > 1 else 1.0
    slack = _ROUNDING_OF_RETURNS * float(np.abs(every).max(initial=0.0)) * factor
    return [(found - every.mean()) * factor for found in returns], [slack] * len(returns)


_ESTIMATORS = {
    "grpo": _outcome_advantages,
    "rloo": _outcome_advantages,
    "reinforce++": _discounted_advantages,
}
