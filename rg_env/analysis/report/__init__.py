"""A dump as one HTML file: statistics, charts and a browser of groups.

Invariant: the file is self-contained (it opens from disk, without network), the same dump gives the same bytes, and
model output is never treated as markup or code: texts are compressed data that the page inserts as text nodes. The page
is about the rollouts that the dump's conditions leave: title, runs, menus and charts name no others. The file is
written completely or not at all, and replaces another one only with `force`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rg_env.analysis.report.figures import sections, trainer_numbers
from rg_env.analysis.report.groups import MAX_TEXT, Group, groups_to_show
from rg_env.analysis.report.page import page
from rg_env.analysis.stats import Measured, above_threshold_unsolved, measure, step_numbers
from rg_env.atomic import check_output, new_file
from rg_env.dump import Dump, Outcome, Run
from rg_env.dump.runs import run_names
from rg_env.output import counted, visible
from rg_env.scoring.types import MEANINGS

MAX_GROUPS = 5_000
"""Default maximum number of groups in the browser."""
_SHOWN_PROBLEMS = 20
_STATISTICS = (
    *("mean_base_score", "mean_score", "mean_reward", "penalized", "solve_rate", "format_rate", "solve_given_format"),
    *("mean_response_tokens", "truncated", *Outcome, "no_signal", "above_threshold_unsolved"),
)
"""The statistics that the page shows: fewer take less memory."""
_SETTINGS = {
    "algorithm": "trainer.algorithm.advantage_estimator",
    "learning rate": "trainer.policy.optimizer_config.lr",
    "prompts per step": "trainer.train_batch_size",
    "rollouts per prompt": "generator.n_samples_per_prompt",
    "mini-batch": "trainer.policy_mini_batch_size",
    "KL loss": "trainer.algorithm.use_kl_loss",
    "temperature": "generator.sampling_params.temperature",
    "longest response": "generator.sampling_params.max_generate_length",
    "length penalty": "environment.skyrl_gym.rg_dump.length_penalty.kind",
    "seed": "trainer.seed",
    "seed of the questions": "environment.skyrl_gym.rg_dump.seed",
}
"""The settings of a run that the page shows, where the manifest has them."""


def build_report(dump: Dump, *, max_groups: int = MAX_GROUPS, solved_at: float | None = None) -> str:
    """The report as HTML; the same dump gives the same text.

    Args:
        dump: from `open_run`, or a part of it. Statistics come from its ledger or, without one, from its texts, with
            the bias that `Dump.caveat` describes.
        max_groups: maximum number of groups in the browser; if there are more, a sample evenly spread over the steps.
        solved_at: as for `measure`.
    """
    measured = measure(dump, solved_at=solved_at, names=_STATISTICS)
    ids = measured.groups["run_id"].unique().sort().cast(str).to_list()  # in the order of reading
    runs = {run.run_id: run for run in dump.runs if run.run_id in ids}  # not all: lines may name another run than files
    names = {run_id: visible(run_id, one_line=True) for run_id in ids} | run_names(runs.values())
    # the figures first: made while the groups are in memory, they would need the most
    figures = {"sections": sections(measured), "trainer": trainer_numbers(measured, step_numbers(dump))}
    groups, stride = groups_to_show(dump, measured, max_groups, solved_at=solved_at)
    problems = [f"Skipped: {problem}." for problem in dump.problems]
    if (count := len(problems) - _SHOWN_PROBLEMS) > 0:
        problems[_SHOWN_PROBLEMS:] = [f"… and {count:,} more skipped lines."]
    summary = {
        "notes": [*_notes(dump, measured), *_notes_on_groups(groups, stride, measured.groups.height), *problems],
        "runs": [{"run_id": run_id, "name": names[run_id], **_facts(runs.get(run_id))} for run_id in ids],
        "violations": MEANINGS,
        **figures,
    }
    return page(f"Run {names[ids[0]]}" if len(ids) == 1 else f"{len(ids)} runs", summary, groups)


def write_report(dump: Dump, out: str | Path, *, force: bool = False, **options: Any) -> Path:
    """Write the report, with the options of `build_report`, to a file.

    Raises:
        ConfigError: there cannot be such a file. DumpError: there is nothing to report.
    """
    out = check_output(out, ".html", force=force)
    text = build_report(dump, **options)
    with new_file(out) as draft:
        draft.write_text(text, "utf-8")
    return out


def _facts(run: Run | None) -> dict[str, Any]:
    """What the page says of a run, without host and paths, because reports are shared."""
    if run is None:
        return {"settings": []}
    manifest = run.manifest or {}
    settings = []
    for name, path in _SETTINGS.items():
        value = manifest.get("settings")
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None and not isinstance(value, (Mapping, list)):
            settings.append((name, ("yes" if value else "no") if isinstance(value, bool) else str(value)))
    start = {key: manifest.get(key) for key in ("started", "attempt")}
    return {"model": run.model, **start, "settings": settings}


def _notes(dump: Dump, measured: Measured) -> Iterator[str]:
    """How the statistics were computed, and what they lack."""
    if dump.conditions:
        yield f"Only rollouts with {' AND '.join(condition.text for condition in dump.conditions)}."
    if dump.caveat:
        yield f"{dump.caveat[0].upper()}{dump.caveat[1:]}."
    else:
        yield from (f"Missing: {what}." for what in dump.missing)
        whole = {True: ", which has every group", False: ", which has not every group", None: ""}
        yield f"Statistics and charts come from the ledger{whole[dump.has_every_group]}."
    yield "Brackets and bands are 95 % confidence intervals, clustered by group."
    lacking = {
        "steps (no curves, no heat map)": "step",
        "token counts (no lengths)": "response_tokens",
    }
    if absent := [name for name, column in lacking.items() if not measured.rollouts[column].count()]:
        yield f"Not in this dump: {'; '.join(absent)}."
    if measured.left_out:
        yield f"{counted(measured.left_out, 'rollout')} left out of all figures: no response, or unscored."
    if count := above_threshold_unsolved(measured):
        yield f"{counted(count, 'group')} above the threshold, none solved: by partial credit alone."


def _notes_on_groups(groups: list[Group], stride: int, total: int) -> Iterator[str]:
    """What the browser of groups lacks."""
    with_text = sum("prompt" in group for group in groups)
    note = f"The browser has all {total:,} groups"
    if len(groups) < total:
        note = f"The browser has {len(groups):,} of {total:,} groups, sampled evenly over the steps"
    yield f"{note}{f', {with_text:,} of them with their text' if with_text < len(groups) else ''}."
    if stride > 1:
        yield f"To keep this file small, only one in {stride} groups in the browser has its text."
    if shortened := sum(isinstance(rollout.get("text"), tuple) for group in groups for rollout in group["rollouts"]):
        yield f"The middle of texts of more than {MAX_TEXT:,} characters is omitted ({shortened:,} of them)."
