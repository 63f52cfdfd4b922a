"""Several runs next to each other in the report: their figures, the differences between them, and between their settings.

Invariant: rates and their intervals are those of `statistics`, differences those of `compare`: of the first run minus
another, over the questions that both have. Evaluations are compared one by one, the last with the last. Training rows
have no differences, because another seed changes more than their intervals cover.
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from rg_env.analysis.comparison import compare, differing_tasks, question_sets
from rg_env.analysis.stats import Measured, statistics
from rg_env.base.choices import By
from rg_env.base.wording import visible
from rg_env.configuration.config import PREFIX
from rg_env.dump import Phase, Run

_MEASURES = {
    Phase.EVAL: ("solve_rate", "mean_base_score", "format_rate", "mean_response_tokens"),
    Phase.TRAIN: ("solve_rate_last", "mean_reward", "format_rate", "no_signal", "mean_response_tokens"),
}
"""The statistics of the summary; the first of them is that of each task."""
_NAMES_AND_PLACES = ("path", "dir", "folder", "run_name", "project_name", "url", "urls")
"""How the names of settings end that differ between any two runs, or that would tell paths of a machine."""
_SEEDS = ("trainer.seed", "seed")
_LONGEST_VALUE = 80

Values = list[dict[str, float | None] | None]
"""For each run a value with its interval (`value`, `low`, `high`), None if it is unknown."""


@dataclass(frozen=True)
class _Part:
    """What is compared: a phase of an environment, and which steps of it.

    Attributes:
        moment: `first` or `last` of the evaluations of each run; "" in training.
        of_run: what was measured of each run, in the order of the report; runs without this phase are left out.
    """

    phase: str
    environment: str
    moment: str
    of_run: dict[str, Measured]


def side_by_side(measured: Measured, run_ids: Sequence[str], runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Return a comparison of runs for each phase and environment that at least two of them have, evaluations first.

    Args:
        measured: of all runs, with the columns that matching needs.
        run_ids: in the order of the report.
        runs: those that have files; tasks whose options differ between any two are not compared.

    Returns:
        for each: `phase`, `environment`, `moment`, `run_ids`, `steps` (of each run the step of the evaluation), and
        `totals` and `tasks`, rows with the `measure` or the `task`, `values` for each run, and `differences` for each
        run, of the first one minus it, with `questions` and `clear` (whether the interval excludes 0).
    """
    unmatched = differing_tasks(*runs)
    return [_comparison(part, unmatched) for part in _parts(measured, run_ids) if len(part.of_run) > 1]


def unequal_questions(
    measured: Measured, run_ids: Sequence[str], runs: Iterable[Run], names: Mapping[str, str]
) -> Iterator[str]:
    """Yield a sentence for each run whose last evaluation has other questions than that of the first run, and one about
    the tasks that are not compared.

    Args:
        measured, run_ids, runs: as of `side_by_side`.
        names: of the runs, by run id.
    """
    unmatched = differing_tasks(*runs)
    evaluated = measured.groups.filter(pl.col("phase") == Phase.EVAL.value)["task"].unique()
    if left_out := sorted(set(unmatched) & set(evaluated)):
        tasks = visible(", ".join(left_out), one_line=True)
        yield f"Not compared, because the options of the task or of its file differ: {tasks}."
    for part in _parts(measured, run_ids):
        if part.moment != "last":
            continue
        (first_id, first), *others = part.of_run.items()
        for run_id, other in others:
            sets = question_sets(first, other, unmatched=unmatched)
            this, that, shared = sets.select("this", "other", "shared").sum().row(0)
            if this + that > 2 * shared:
                yield (
                    f"{names[first_id]} and {names[run_id]} were asked different questions: {shared:,} are in both, of "
                    f"{this:,} and {that:,}. Rates are over all questions of a run, differences over those in both."
                )


def _parts(measured: Measured, run_ids: Sequence[str]) -> Iterator[_Part]:
    sections = measured.groups.select(pl.col("phase", "environment").cast(pl.String)).unique().sort("environment")
    for environment in sections.filter(phase=Phase.EVAL.value)["environment"]:
        evaluated = _parts_of(measured, run_ids, Phase.EVAL, environment)
        last = {run_id: _at_step(part, part.groups["step"].max()) for run_id, part in evaluated.items()}
        yield _Part(Phase.EVAL.value, environment, "last", last)
        first = {run_id: _at_step(part, part.groups["step"].min()) for run_id, part in evaluated.items()}
        # Where every run has a single evaluation, the first is the last.
        if any(first[run_id].groups.height < part.groups.height for run_id, part in evaluated.items()):
            yield _Part(Phase.EVAL.value, environment, "first", first)
    for environment in sections.filter(phase=Phase.TRAIN.value)["environment"]:
        trained = _parts_of(measured, run_ids, Phase.TRAIN, environment)
        yield _Part(Phase.TRAIN.value, environment, "", trained)


def _parts_of(measured: Measured, run_ids: Sequence[str], phase: Phase, environment: str) -> dict[str, Measured]:
    """Return what each run has of a phase and environment, without the runs that have nothing of it."""
    parts = {}
    for run_id in run_ids:
        wanted = (pl.col("run_id") == run_id, pl.col("phase") == phase.value, pl.col("environment") == environment)
        groups = measured.groups.filter(wanted)
        if not groups.is_empty():
            parts[run_id] = replace(measured, groups=groups)
    return parts


def _at_step(part: Measured, step: Any) -> Measured:
    # The step of an evaluation of a model is null, which equals nothing in an ordinary comparison.
    is_at_step = pl.col("step").eq_missing(step)
    return replace(part, groups=part.groups.filter(is_at_step))


def _comparison(part: _Part, unmatched: Sequence[str]) -> dict[str, Any]:
    measures = _MEASURES[Phase(part.phase)]
    if part.moment == "first":  # only where the runs began
        measures = measures[:1]
    totals = {run_id: statistics(measured, By.PHASE).row(0, named=True) for run_id, measured in part.of_run.items()}
    if all(row.get(measures[0]) is None for row in totals.values()):  # training without steps has no end
        measures = ("solve_rate", *measures[1:])
    by_task: dict[str, dict[str, Mapping[str, Any]]] = {}
    for run_id, measured in part.of_run.items():
        for row in statistics(measured, By.TASK).iter_rows(named=True):
            by_task.setdefault(row["task"], {})[run_id] = row
    differences = _differences(part, unmatched)

    # A row for each measure that some run has.
    rows_of_totals = []
    for measure in measures:
        values = [_value(totals[run_id], measure) for run_id in part.of_run]
        if any(values):
            between = [differences[run_id].get(("", measure)) for run_id in part.of_run]
            rows_of_totals.append({"measure": measure, "values": values, "differences": between})
    # A row for each task that some run has; another run has no value there.
    rows_of_tasks = []
    for task in sorted(by_task):
        values = [_value(by_task[task].get(run_id, {}), measures[0]) for run_id in part.of_run]
        between = [differences[run_id].get((task, measures[0])) for run_id in part.of_run]
        rows_of_tasks.append({"task": task, "values": values, "differences": between})

    steps: list[Any] = [None] * len(part.of_run)
    if part.phase == Phase.EVAL:
        steps = [measured.groups["step"].max() for measured in part.of_run.values()]
    about = {"phase": part.phase, "environment": part.environment, "moment": part.moment}
    tables = {"totals": rows_of_totals, "tasks": rows_of_tasks}
    return about | {"run_ids": list(part.of_run), "steps": steps} | tables


def _value(row: Mapping[str, Any], measure: str) -> dict[str, float | None] | None:
    value = row.get(measure)
    if value is None:
        return None
    return {"value": value, "low": row[f"{measure}_low"], "high": row[f"{measure}_high"]}


def _differences(part: _Part, unmatched: Sequence[str]) -> dict[str, dict[tuple[str, str], dict[str, Any]]]:
    """Return the differences by run, of the first run minus it, then by task and measure; "" is for all tasks
    together."""
    (first_id, first), *others = part.of_run.items()
    differences: dict[str, dict[tuple[str, str], dict[str, Any]]] = {run_id: {} for run_id in part.of_run}
    # Another seed changes more than the intervals would cover: see the module's docstring.
    if part.phase == Phase.TRAIN:
        return differences
    for run_id, other in others:
        for by in (By.PHASE, By.TASK):
            for row in compare(first, other, by, unmatched=unmatched).iter_rows(named=True):
                kept = {name: row[name] for name in ("difference", "low", "high", "questions", "clear")}
                differences[run_id][row.get("task", ""), row["measure"]] = kept
    assert not differences[first_id]
    return differences


# -- settings


def differing_settings(settings: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return the settings that are not equal in all runs that have any: rows with a `name` and `values` for each run.

    Args:
        settings: of each run, as `settings_of` gives them.
    """
    known = [of_run for of_run in settings.values() if of_run]
    names: dict[str, None] = {}  # each once, in the order of the manifests
    for of_run in known:
        names |= dict.fromkeys(of_run)
    rows = []
    for name in names:
        if len({of_run.get(name) for of_run in known}) > 1:
            values = [of_run.get(name) for of_run in settings.values()]
            rows.append({"name": name, "values": values})
    return rows


def alike(settings: Mapping[str, Mapping[str, str]]) -> list[int]:
    """Return a number for each run, which those have in common whose settings differ in seeds alone. A run whose
    settings are unknown is alike to none. Arguments as of `differing_settings`."""
    numbers: dict[tuple[Any, ...], int] = {}
    result = []
    for run_id, of_run in settings.items():
        kept = [(name, value) for name, value in of_run.items() if name not in _SEEDS]
        key = tuple(sorted(kept)) if of_run else (run_id,)
        result.append(numbers.setdefault(key, len(numbers)))
    return result


def settings_of(run: Run | None) -> dict[str, str]:
    """Return the settings of a run by their short names, as text; none if they are unknown.

    Names, paths and addresses are left out: they always differ, and reports are shared.
    """
    if run is None or not run.manifest:
        return {}
    settings = {"model": run.model}
    for name, value in _flat(run.manifest.settings, ""):
        # Reports are shared, and a path tells the names of a machine's users.
        is_place = name.endswith(_NAMES_AND_PLACES) or (isinstance(value, str) and value.startswith("/"))
        if not is_place:
            settings[name.removeprefix(f"{PREFIX}.")] = as_text(value)
    return settings


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the values in nested mappings, each with its keys joined by dots."""
    if not isinstance(value, Mapping) or not value:
        if name:
            yield name, value
        return
    before = f"{name}." if name else ""
    for key, child in value.items():
        yield from _flat(child, f"{before}{key}")


def as_text(value: Any) -> str:
    """Return a setting as a person would type it, shortened."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[: _LONGEST_VALUE - 1]}…"
