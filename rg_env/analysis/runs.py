"""The runs below a folder: what each one is, how far it got, how it ended, and its last evaluation.

Invariant: a run is listed whatever state its files are in; what cannot be read is its `problem`. Name, kind, length and
end come from the manifest, the figures from the ledger.

Not covered: runs whose dump is deeper than `dump_folders` looks, and settings of runs without a manifest.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from rg_env.analysis.stats import measure, statistics
from rg_env.base.errors import DumpError, one_line
from rg_env.dump import Phase, Run, open_run
from rg_env.dump.files import list_files, manifest_name, runs_with_manifest
from rg_env.dump.manifest import Attempt, Manifest, read_manifest, state_of
from rg_env.dump.run_files import dump_folders, folder_name


@dataclass(frozen=True)
class Evaluation:
    """The largest set of questions of a run's last evaluation; the interval covers 95%."""

    step: int | None
    environment: str
    groups: int
    solve_rate: float
    solve_rate_low: float | None
    solve_rate_high: float | None


@dataclass(frozen=True)
class Figures:
    """What the ledger of a run says.

    Attributes:
        tasks: sorted.
        step: the last one, None if groups have no steps.
        problem: the first line that cannot be read, or that lines are missing; "" if nothing is.
    """

    tasks: list[str] = field(default_factory=list)
    groups: int = 0
    step: int | None = None
    evaluation: Evaluation | None = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """A run.

    Attributes:
        dump: the folder of its files.
        kind: `train`, `eval`, `collect` or `import`; "" if the manifest does not say.
        started: of the first attempt, in this machine's time zone; `ended`: of the last one, None if it has no end.
        state: `ended`, `running`, `killed`, `unknown`, `no manifest` or `corrupt manifest`.
        end: `finished`, `stopped by SIGTERM`, `killed`, `failed: …`; "" if nobody could note it.
        total_steps: the number of training steps that the run was started for, None if unknown.
        never_saved: what the program of an imported run keeps out of its files; "" if that is nothing.
    """

    dump: Path
    run_id: str
    name: str
    kind: str
    model: str
    started: str | None
    ended: str | None
    attempts: int
    state: str
    end: str
    total_steps: int | None
    missing_groups: int
    never_saved: str
    figures: Figures

    def as_dict(self) -> dict[str, Any]:
        """Return all facts in one level, as `rg-env runs --json` prints them."""
        facts = asdict(self)
        facts |= facts.pop("figures") | {"dump": str(self.dump)}
        return facts


def list_runs(folder: Path) -> list[ListedRun]:
    """Return the runs in the dumps below a folder, itself included, the newest first.

    Raises:
        DumpError: there is no such folder.
    """
    if not os.path.isdir(folder):
        problem = "is a file" if os.path.exists(folder) else "does not exist"
        raise DumpError(f"{folder} {problem}: name the folder of your runs, `rg-env runs FOLDER`")
    runs = []
    for dump in dump_folders(folder):
        runs += [_list_run(dump, run_id) for run_id in _run_ids(dump)]
    return sorted(runs, key=lambda run: (run.started or "", run.run_id), reverse=True)


def _run_ids(dump: Path) -> list[str]:
    """Return the runs that have a manifest or another file in a dump folder."""
    from_files = {file.run_id for file in list_files(dump)}
    return sorted(from_files.union(runs_with_manifest(dump)))


def _list_run(dump: Path, run_id: str) -> ListedRun:
    """Return a row of the list: what the manifest says of a run, and the figures of its files."""
    manifest = read_manifest(dump, run_id)
    noted = manifest or Manifest()
    files = list_files(dump, run_id)
    # Without a manifest there is an attempt of which nothing is known, so that the run is listed all the same.
    attempts = noted.attempts or [Attempt()]
    state: str = state_of([dump], run_id, manifest)
    if not state:
        state = "corrupt manifest" if os.path.exists(dump / manifest_name(run_id)) else "no manifest"
        if manifest:  # the lock cannot be asked, as on a read-only mount
            state = "unknown"
    first, last = attempts[0], attempts[-1]
    run = Run(run_id, (), manifest)
    # The first part of a run's id is the time at which it began, which helps where the manifest lacks it.
    began = run_id[:15].replace("-", "T")
    started = _local_time(first.started) or _local_time(f"{began}Z")
    return ListedRun(
        dump=dump,
        run_id=run_id,
        name=noted.name or folder_name(dump),
        kind=noted.kind,
        model=run.model,
        started=started,
        ended=_local_time(last.ended),
        attempts=len(attempts),
        state=state,
        end=one_line(last.end),
        total_steps=noted.planned_steps,
        missing_groups=noted.missing_in_all,
        never_saved=run.never_saved,
        figures=_figures([file.path for file in files]),
    )


def _local_time(value: object) -> str | None:
    """Return a time of a manifest, or of a run's id, in this machine's time zone."""
    try:
        return datetime.fromisoformat(str(value)).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return None


def _figures(files: list[Path]) -> Figures:
    """Return the figures of a run's files; a dump that cannot be read is a problem of its row, not of the whole
    list."""
    if not files:
        return Figures()
    try:
        dump = open_run(*files)
        measured = measure(dump)
    except DumpError as error:
        return Figures(problem=one_line(error))
    table = statistics(measured, "step")
    steps = measured.groups["step"].drop_nulls().to_list()
    # Missing groups have a column of their own.
    kinds = ("corrupt_line", "lines_missing")
    problems = [str(finding) for finding in dump.findings(texts=False) if finding.kind in kinds]
    return Figures(
        tasks=sorted(map(str, measured.groups["task"].unique())),
        groups=measured.groups.height,
        step=max(steps, default=None),
        evaluation=_last_evaluation(table),
        problem=problems[0] if problems else "",
    )


def _last_evaluation(by_step: pl.DataFrame) -> Evaluation | None:
    """Return the evaluation at the last step; of several tables of that step, the one with the most groups."""
    evaluations = by_step.filter(phase=Phase.EVAL.value)
    last = evaluations.filter(pl.col("step").eq_missing(pl.col("step").max()))
    if last.is_empty():
        return None
    # An evaluation may be of several environments, each with a row.
    largest = last.sort("groups").row(-1, named=True)
    return Evaluation(**{name: largest[name] for name in Evaluation.__dataclass_fields__})
