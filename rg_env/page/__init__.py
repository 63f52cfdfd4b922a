"""A dump as one HTML file: statistics, charts and a browser of groups.

Invariant: the file is self-contained (it opens from disk, without network), the same dump gives the same bytes, and
model output is never treated as markup or code: texts are compressed data that the page inserts as text nodes. The page
is about the rollouts that the dump's conditions leave: title, runs, menus and charts name no others. The file is
written completely or not at all, and replaces another one only with `force`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rg_env.analysis.stats import Measured, measure, step_numbers
from rg_env.base.atomic import check_output, new_file
from rg_env.base.wording import counted, visible, yes_or_no
from rg_env.configuration.config import PREFIX
from rg_env.dump import Dump, Outcome, Run
from rg_env.dump.manifest import Manifest, nested_value
from rg_env.dump.run_files import run_names
from rg_env.page.figures import sections, trainer_numbers
from rg_env.page.page import page
from rg_env.page.report_groups import MAX_TEXT, Group, groups_to_show
from rg_env.page.side_by_side import alike, as_text, differing_settings, settings_of, side_by_side, unequal_questions
from rg_env.rollouts.symptoms import read_symptoms
from rg_env.scoring.types import MEANINGS

MAX_GROUPS = 5_000
"""Default maximum number of groups in the browser."""
_TASKS_SHOWN = 8
STATISTICS = (
    *("mean_base_score", "mean_score", "mean_reward", "penalized", "solve_rate", "format_rate", "solve_given_format"),
    *("mean_response_tokens", "truncated", *Outcome, "no_signal"),
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
    "complexity": f"{PREFIX}.complexity",
    "reward": f"{PREFIX}.reward",
    "length penalty": f"{PREFIX}.length_penalty.kind",
    "seed": "trainer.seed",
    "seed of the questions": f"{PREFIX}.seed",
}
"""The settings of a run that the page shows, where the manifest has them."""


def build_report(dump: Dump, *, max_groups: int = MAX_GROUPS, solved_at: float | None = None) -> str:
    """Return the report as HTML; the same dump gives the same text.

    Args:
        dump: from `open_run`, or a part of it. Statistics come from its ledger or, without one, from its texts, without
            the groups whose text was not kept.
        max_groups: maximum number of groups in the browser; if there are more, a sample evenly spread over the steps.
        solved_at: as for `measure`.
    """
    measured = measure(dump, solved_at=solved_at, names=STATISTICS, to_match=True)
    # The figures first: made while the groups are in memory, they would need the most.
    summary = summarize(dump, measured, step_numbers(dump))
    groups, stride = groups_to_show(dump, measured, max_groups, solved_at=solved_at)
    summary["notes"] += _notes_on_groups(groups, stride, measured.groups.height)
    return page(summary, groups)


def summarize(
    dump: Dump, measured: Measured, numbers: Mapping[tuple[str, int], Mapping[str, float | None]], *, texts: bool = True
) -> dict[str, Any]:
    """Return what the page shows, without the groups.

    Args:
        measured: of the dump, with the statistics `STATISTICS`, and to match.
        numbers: the trainer's own, of `step_numbers`.
        texts: whether the notes are also about the files with texts, all of which are then read.
    """
    ids = measured.groups["run_id"].unique().sort().cast(str).to_list()  # in the order of reading
    runs = {run.run_id: run for run in dump.runs if run.run_id in ids}  # not all: lines may name another run than files
    names = {run_id: visible(run_id, one_line=True) for run_id in ids} | run_names(runs.values())
    settings = {run_id: settings_of(runs.get(run_id)) for run_id in ids}
    of_seeds = dict(zip(ids, alike(settings), strict=True))
    figures = {"sections": sections(measured, of_seeds), "trainer": trainer_numbers(measured, numbers, of_seeds)}
    compared: dict[str, Any] = {"comparisons": [], "differing_settings": []}
    unequal: Iterable[str] = ()
    if len(runs) > 1:  # not those that only lines name: nothing is known of them
        compared["comparisons"] = side_by_side(measured, list(runs), runs.values())
        compared["differing_settings"] = differing_settings(settings)
        unequal = unequal_questions(measured, list(runs), runs.values(), names)
    title = f"{len(ids)} runs"
    if len(ids) == 1:
        title = f"Run {names[ids[0]]}"
    return {
        "title": title,
        "notes": [*_notes(dump, measured, texts), *unequal],
        "runs": [
            {"run_id": run_id, "name": names[run_id], "alike": number, **_facts(runs.get(run_id))}
            for run_id, number in of_seeds.items()
        ],
        "violations": MEANINGS,
        **figures,
        **compared,
    }


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
    """Return what the page says of a run, without host and paths, because reports are shared."""
    if run is None:
        return {"settings": []}
    noted = run.noted
    settings = list(_settings(noted))
    return {"model": run.model, "started": noted.started, "attempt": noted.attempt, "settings": settings}


def _settings(noted: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the settings that the page shows, each with what it calls it."""
    mix = noted.task_mix
    if isinstance(mix, Mapping) and mix:
        tasks = [str(task) for task in mix]
        others = ""
        if len(tasks) > _TASKS_SHOWN:
            others = f" and {len(tasks) - _TASKS_SHOWN} more"
        yield "tasks", ", ".join(tasks[:_TASKS_SHOWN]) + others
    for name, path in _SETTINGS.items():
        value = nested_value(noted.settings, path)
        if value is True or value is False:
            yield name, yes_or_no(value)
        elif value is not None and not isinstance(value, Mapping):
            yield name, as_text(value)


def _notes(dump: Dump, measured: Measured, texts: bool) -> Iterator[str]:
    """Yield how the statistics were computed, and what they lack."""
    if dump.conditions:
        yield f"Only rollouts with {' AND '.join(condition.text for condition in dump.conditions)}."
    for remark in dump.findings(texts=texts).summary():
        yield f"{remark}."
    if dump.has_ledger:
        whole = {True: ", which has every group", False: ", which has not every group", None: ""}[dump.has_every_group]
        if dump.findings(texts=False).counts["from_texts"]:
            whole = ", which has not every group, and from the texts where it lacks one"
        yield f"Statistics and charts come from the ledger{whole}."
    for sentence in dump.never_saved:
        yield f"{sentence}."
    for run in dump.runs:
        suite = run.noted.suite
        if suite and suite.get("left_out"):
            asked, left_out = suite.get("questions"), suite["left_out"]
            yield f"{run.model}: {asked} of {asked + left_out} questions; the answers of the others failed the audit."
    for symptom in read_symptoms(dump):
        # Of several runs each begins with the run's name, which stays as it is.
        if len(dump.runs) == 1:
            symptom = f"{symptom[0].upper()}{symptom[1:]}"
        yield f"{symptom}."
    yield "Brackets and bands are 95% confidence intervals, clustered by question."
    lacking = {
        "steps (no curves, no heat map)": measured.groups["step"],
        "token counts (no lengths)": measured.rollouts["response_tokens"],
    }
    if absent := [name for name, column in lacking.items() if not column.count()]:
        yield f"Not in this dump: {'; '.join(absent)}."
    if measured.left_out:
        yield f"{counted(measured.left_out, 'rollout')} left out of all figures: no response, or unscored."


def _notes_on_groups(groups: list[Group], stride: int, total: int) -> Iterator[str]:
    """Yield what the browser of groups lacks."""
    with_text = sum("prompt" in group for group in groups)
    note = f"The browser has all {total:,} groups"
    if len(groups) < total:
        note = f"The browser has {len(groups):,} of {total:,} groups, sampled evenly over the steps"
    if with_text < len(groups):
        note = f"{note}, {with_text:,} of them with their text"
    yield f"{note}."
    if stride > 1:
        yield f"To keep this file small, only one in {stride} groups in the browser has its text."
    shortened = 0
    for group in groups:
        for rollout in group["rollouts"]:
            if isinstance(rollout.get("text"), tuple):
                shortened += 1
    if shortened:
        yield f"The middle of texts of more than {MAX_TEXT:,} characters is omitted ({shortened:,} of them)."
