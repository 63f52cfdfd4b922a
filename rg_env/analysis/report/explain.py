"""The notes at the top of the page: how the statistics were computed, and what is missing or was skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from rg_env.analysis.report.sample import MAX_TEXT, Sample

if TYPE_CHECKING:
    from rg_env.dump import Dump

_SHOWN_PROBLEMS = 20


def notes(dump: Dump, rollouts: pl.DataFrame, sample: Sample) -> list[str]:
    """How the statistics were computed, what is missing, what was skipped; one line each."""
    return [*_source(dump), *_missing(rollouts, sample), *_sampling(sample), *_problems(dump)]


def _source(dump: Dump) -> list[str]:
    if dump.caveat:
        return [f"{dump.caveat[0].upper()}{dump.caveat[1:]}."]
    return [
        "Statistics and charts count every group and every rollout; they come from the ledger and are unbiased.",
        "Brackets and bands are 95 % confidence intervals, clustered by group.",
    ]


def _missing(rollouts: pl.DataFrame, sample: Sample) -> list[str]:
    lacking = {
        "steps (no curves, no heat map)": not rollouts["step"].count(),
        "token counts (lengths are in characters, of the groups in the browser)": not rollouts[
            "response_tokens"
        ].count(),
        "raw and tagged scores": not rollouts["raw_score"].count(),
        "violations, scoring failures and truncation": not any(group["schema_version"] for group in sample.groups),
    }
    absent = [name for name, is_absent in lacking.items() if is_absent]
    return [f"Not in this dump: {'; '.join(absent)}."] if absent else []


def _sampling(sample: Sample) -> list[str]:
    shown = len(sample.groups)
    parts = [
        f"The browser has all {shown:,} groups"
        if shown == sample.total
        else f"The browser has {shown:,} of {sample.total:,} groups, sampled evenly over the steps"
    ]
    if sample.with_text < shown:
        parts.append(f"{sample.with_text:,} of them with their text (the dump settings decide which texts are kept)")
    result = [", ".join(parts) + "."]
    if sample.thinned > 1:
        result.append(f"To keep this file small, only one in {sample.thinned} groups in the browser has its text.")
    if sample.shortened:
        result.append(
            f"The middle of texts of more than {MAX_TEXT:,} characters is omitted ({sample.shortened:,} of them)."
        )
    return result


def _problems(dump: Dump) -> list[str]:
    problems = [f"Skipped: {problem}." for problem in dump.problems]
    more = len(problems) - _SHOWN_PROBLEMS
    return problems if more <= 0 else [*problems[:_SHOWN_PROBLEMS], f"… and {more:,} more skipped lines."]
