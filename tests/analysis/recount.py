"""The figures of `statistics` computed from the records in plain Python, as a reference."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from backports import zstd

from rg_env.analysis.estimates import t_quantile
from rg_env.dump import GroupRecord, Outcome, RolloutRecord
from rg_env.dump.schema import GROUP_FACTS, ROLLOUT_FACTS, answered
from rg_env.scoring.types import Status

Figures = dict[str, float | None]
Member = tuple[GroupRecord, list[RolloutRecord]]
Values = list[list[float]]
"""What is measured, question by question."""

UNBOUNDED = ("reward", "custom_reward", "published_score", "response_tokens")
CATEGORIES = {"chain_sum": "arithmetic", "gcd": "arithmetic", "spell_backward": "algorithmic"}
KEYS = {
    "task": lambda g, r: (g.task,),
    "category": lambda g, r: (CATEGORIES[g.task],),
    "step": lambda g, r: (g.step,),
    "phase": lambda g, r: (),
    "level": lambda g, r: (g.task, tenth(g.complexity)),
    "environment": lambda g, r: (),
}


def tenth(complexity: float | None) -> str | None:
    if complexity is None:
        return None
    ends = [k / 10 for k in range(11)]
    low = max(end for end in ends[:-1] if end <= complexity)
    return f"{low}-{ends[ends.index(low) + 1]}"


def keys_of(by: str, g: GroupRecord, r: RolloutRecord) -> tuple[Any, ...]:
    """Of one value of `By` or several separated by commas, each named once."""
    return tuple(key for one in by.split(",") for key in KEYS[one](g, r))


def read_plainly(*folders: Path) -> list[GroupRecord]:
    """The groups of the ledger in folders, and those of texts that it lacks, read with `json` alone: each id once;
    without the steps that a later attempt took back.
    """
    groups: dict[str, dict[str, Any]] = {}
    for pattern in ("*_ledger_*.jsonl*", "*_rollouts_*.jsonl*"):
        paths = [path for folder in folders for path in folder.glob(pattern)]
        for path in sorted(paths, key=lambda path: (path.name.partition(".")[0], str(path))):
            content = zstd.decompress(path.read_bytes()) if path.suffix == ".zst" else path.read_bytes()
            for line in content.splitlines():
                with suppress(ValueError):
                    group = json.loads(line)
                    groups.setdefault(group["group_id"], group)
    starts: dict[tuple[str, int], int] = {}
    for g in groups.values():
        if g["phase"] == "train":
            attempt = g["run_id"], g["attempt"]
            starts[attempt] = min(g["step"], starts.get(attempt, g["step"]))
    return [_as_record(g) for g in groups.values() if not _was_taken_back(g, starts)]


def _was_taken_back(g: dict[str, Any], starts: dict[tuple[str, int], int]) -> bool:
    return any(
        run_id == g["run_id"] and attempt > g["attempt"] and g["step"] >= step
        for (run_id, attempt), step in starts.items()
    )


def _as_record(line: dict[str, Any]) -> GroupRecord:
    facts = {name: line[name] for name in GROUP_FACTS if name in line}
    if "rollouts" in line:  # a text: the ledger has a list for each name
        line = line | {name: [each[name] for each in line["rollouts"]] for name in ROLLOUT_FACTS}
    names = [name for name in ROLLOUT_FACTS if name in line]
    rollouts = [dict(zip(names, row, strict=True)) for row in zip(*(line[name] for name in names), strict=True)]
    return GroupRecord(
        **facts | {"outcome": Outcome(line["outcome"])},
        rollouts=[RolloutRecord(**r | {"status": Status(r["status"])}, conversation=[]) for r in rollouts],
    )


def recount(groups: Sequence[GroupRecord], by: str) -> dict[tuple[Any, ...], Figures]:
    """The figures of one run's groups: of evaluations those of the last one, unless rows are by step."""
    every: dict[tuple[Any, ...], list[Member]] = defaultdict(list)
    shown: dict[tuple[Any, ...], list[Member]] = defaultdict(list)
    latest = _latest(groups)
    for g in groups:
        parts: dict[tuple[Any, ...], list[RolloutRecord]] = defaultdict(list)
        for r in answered(g.rollouts):
            parts[(g.phase, g.environment, *keys_of(by, g, r))].append(r)
        for key, part in parts.items():
            every[key].append((g, part))
            if "step" in by.split(",") or g.phase == "train" or g.step == latest[g.environment]:
                shown[key].append((g, part))
    largest = max(len(rs) for members in shown.values() for _, rs in members)
    return {key: _figures(members, largest) | _trend(every[key]) for key, members in shown.items()}


def _latest(groups: Sequence[GroupRecord]) -> dict[str, int | None]:
    """The step of the last evaluation in each environment; None if none has a step."""
    steps: dict[str, set[int | None]] = defaultdict(set)
    for g in groups:
        if g.phase == "eval" and answered(g.rollouts):
            steps[g.environment].add(g.step)
    return {environment: max(found - {None}, default=None) for environment, found in steps.items()}


def recount_kinds(groups: Sequence[GroupRecord]) -> dict[tuple[str, str, str, str], int]:
    """The number of rollouts of each phase and environment with each violation and each status."""
    found: dict[tuple[str, str, str, str], int] = defaultdict(int)
    latest = _latest(groups)
    for g in groups:
        if g.phase == "eval" and g.step != latest.get(g.environment):
            continue
        for r in answered(g.rollouts):
            found[g.phase, g.environment, "status", r.status.value] += 1
            if r.violation:
                found[g.phase, g.environment, "violation", r.violation] += 1
    return found


def _figures(members: list[Member], largest: int) -> Figures:
    every = [r for _, rs in members for r in rs]
    evaluated = [g.step for g, _ in members if g.phase == "eval" and g.step is not None]
    found: Figures = {"groups": len(members), "rollouts": len(every), "evaluation_step": max(evaluated, default=None)}

    def clustered(name: str, of: Callable[[GroupRecord, list[RolloutRecord]], list[Any]], bounded: bool = True) -> None:
        found.update(_with_interval(name, _of_questions(members, of), bounded))

    def of_scored(g: GroupRecord, rs: list[RolloutRecord]) -> list[bool]:
        return [r.tagged_score > r.raw_score for r in rs if r.raw_score is not None and r.tagged_score is not None]

    for name in ("base_score", "raw_score", "tagged_score", "score", *UNBOUNDED):
        known = partial(_known, name)
        clustered(f"mean_{name}", known, name not in UNBOUNDED)
    clustered("solve_rate", _all_solved)
    clustered("format_rate", lambda g, rs: [not r.violation for r in rs if _own(g)])
    clustered("truncated", lambda g, rs: [r.truncated for r in rs if _own(g) or r.stop_reason])
    for outcome in Outcome:
        clustered(outcome.value, lambda g, rs, outcome=outcome: [g.outcome is outcome])
    clustered("no_signal", lambda g, rs: [g.no_signal] if g.phase == "train" else [])
    clustered("partial_credit_only", lambda g, rs: [0 < max(r.base_score for r in rs) < 0.99])
    clustered("solve_given_format", lambda g, rs: [_solved(r) for r in rs if _own(g) and not r.violation])
    failed = ("timeout", "crashed", "error")
    clustered("scorer_failures", lambda g, rs: [r.status.value in failed for r in rs if _own(g)])
    clustered("rejected", lambda g, rs: [r.status.value == "rejected" for r in rs if _own(g)])
    clustered("penalized", lambda g, rs: [r.score < r.base_score for r in rs if _own(g)])
    clustered("tagged_wins", of_scored)
    for k in {1, 2, 4, 8, largest} & set(range(1, largest + 1)):
        clustered(f"pass_at_{k}", partial(_pass_at, k))
        left_out = sum(len(rs) < k for _, rs in members)
        found[f"pass_at_{k}_left_out"] = left_out
        if left_out / len(members) > 0.1 + 1e-12:
            found |= dict.fromkeys((f"pass_at_{k}", f"pass_at_{k}_low", f"pass_at_{k}_high"))
    for name, right in (("right", True), ("wrong", False)):
        tokens = [r.response_tokens for r in every if _solved(r) is right and r.response_tokens is not None]
        for p in (10, 50, 90):
            found[f"tokens_{name}_p{p}"] = _percentile(tokens, p)
    return found


def _trend(members: list[Member]) -> Figures:
    """Over all evaluations, and all steps of training."""
    steps = sorted({g.step for g, _ in members if g.step is not None})
    is_evaluation = any(g.phase == "eval" for g, _ in members)
    quarter = 1 if is_evaluation else max(1, len(steps) // 4)
    found: Figures = {"steps": len(steps)}
    for name, of_steps in (("first", steps[:quarter]), ("last", steps[-quarter:])):
        of_quarter = [(g, rs) for g, rs in members if g.step in of_steps and len(steps) >= 2]
        found |= _with_interval(f"solve_rate_{name}", _of_questions(of_quarter, _all_solved))
    return found


def _of_questions(members: list[Member], of: Callable[[GroupRecord, list[RolloutRecord]], list[Any]]) -> Values:
    """What is measured of the groups, question by question: the same question in several groups is one."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for g, rs in members:
        values[g.task, g.item or g.uid or g.group_id] += of(g, rs)
    return list(values.values())


def _known(name: str, g: GroupRecord, rs: list[RolloutRecord]) -> list[float]:
    return [x for r in rs if (x := getattr(r, name)) is not None]


def _all_solved(g: GroupRecord, rs: list[RolloutRecord]) -> list[bool]:
    return [_solved(r) for r in rs]


def _pass_at(k: int, g: GroupRecord, rs: list[RolloutRecord]) -> list[float]:
    """The share of all draws of k responses in which one is solved; nothing of a group with fewer."""
    draws = [any(draw) for draw in combinations([_solved(r) for r in rs], k)]
    return [sum(draws) / len(draws)] if draws else []


def _own(g: GroupRecord) -> bool:
    """Whether Reasoning Gym's fields of the group are known."""
    return g.environment == "rg_dump"


def _solved(r: RolloutRecord) -> bool:
    return r.base_score >= 0.99


def _percentile(values: Sequence[float], p: int) -> float | None:
    if not values:
        return None
    position = p / 100 * (len(values) - 1)
    low, high = sorted(values)[math.floor(position)], sorted(values)[math.ceil(position)]
    return low + (high - low) * (position - math.floor(position))


def _with_interval(name: str, values: Values, bounded: bool = True) -> Figures:
    clusters = [cluster for cluster in values if cluster]
    count = sum(map(len, clusters))
    if not count:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    mean = sum(map(sum, clusters)) / count
    if len(clusters) < 2:
        return {name: mean, f"{name}_low": None, f"{name}_high": None}
    of_clusters = sum(sum(x - mean for x in cluster) ** 2 for cluster in clusters)
    variance = of_clusters * len(clusters) / (len(clusters) - 1) / count**2
    t = t_quantile(len(clusters) - 1)
    if not bounded:
        return {name: mean, f"{name}_low": mean - t * variance**0.5, f"{name}_high": mean + t * variance**0.5}
    spread = mean * (1 - mean)
    n = min(spread / variance, count) if variance > 1e-20 and spread > 1e-20 else len(clusters)
    # Wilson's bounds are the p for which |mean - p| = t √(p(1-p)/n): a quadratic equation.
    a, b, c = 1 + t**2 / n, -(2 * mean + t**2 / n), mean**2
    root = math.sqrt(max(0.0, b**2 - 4 * a * c))
    low, high = ((-b - root) / (2 * a), (-b + root) / (2 * a))
    return {name: mean, f"{name}_low": max(0.0, low), f"{name}_high": min(1.0, high)}
