"""What a run without training is going to do, and which run in a folder it continues.

Invariant: a run is only continued under the plan that it was started with, so all its groups are comparable. Which
questions are done is read from the ledger, the commit record of each group; the manifest only has the plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.dump.files import list_files, manifest_name
from rg_env.dump.manifest import read_manifest
from rg_env.dump.read.dump import open_run
from rg_env.dump.run_id import new_run_id
from rg_env.errors import ConfigError, as_typed

_FREE = {"dump_dir", "dump_fsync", "debug_logging", "suppress_base_env_logs"}
_FREE_OF_SCORER = {"workers"}
"""Settings that change nothing in the groups, so that a run may be continued with other values."""


@dataclass(frozen=True)
class Plan:
    """What determines the groups of a run.

    Attributes:
        command: `collect` or `eval`.
        model: its name on the server, or its folder.
        samples: rollouts per question.
        sampling: sampling parameters.
        questions: `Questions.facts`.
        groups: number of questions.
    """

    command: str
    model: str
    groups: int
    samples: int
    sampling: Mapping[str, Any]
    questions: Mapping[str, Any]
    config: RGDumpConfig

    def facts(self) -> dict[str, Any]:
        """The plan as JSON, for the manifest."""
        settings = {name: value for name, value in asdict(self.config).items() if name not in _FREE}
        settings["scorer"] = {name: value for name, value in settings["scorer"].items() if name not in _FREE_OF_SCORER}
        plain = {**asdict(self), "config": settings}
        return dict(json.loads(json.dumps(plain, default=str)))


@dataclass(frozen=True)
class Claim:
    """The run that a command writes.

    Attributes:
        attempt: 1 for a new run.
        done: numbers of the questions whose group is in the ledger.
    """

    run_id: str
    attempt: int
    done: frozenset[int]


def claim(folder: Path, plan: Plan, *, resume: bool) -> Claim:
    """Find the run in `folder` to continue, or start a new one.

    Raises:
        ConfigError: there is an unfinished run and `resume` is not set, or the run to continue had another plan.
    """
    runs = list(_planned_runs(folder))
    unfinished = [run for run in runs if len(run[1].done) < run[0]["groups"]]
    if not resume:
        if unfinished:
            facts, run = unfinished[-1]
            raise ConfigError(
                f"{folder} has an unfinished run ({len(run.done)} of {facts['groups']} groups): "
                "continue it with --resume, or choose another folder"
            )
        return Claim(new_run_id(), 1, frozenset())
    if not runs:
        return Claim(new_run_id(), 1, frozenset())
    facts, run = (unfinished or runs)[-1]
    if differences := list(_differences(facts, plan.facts())):
        raise ConfigError(
            f"--resume with other settings than the run in {folder}: {'; '.join(differences[:3])}; "
            "use the same settings, or another folder"
        )
    return run


def _planned_runs(folder: Path) -> Iterator[tuple[dict[str, Any], Claim]]:
    """Plan and state of the runs in a folder that have a plan, oldest first."""
    before, _, after = manifest_name("*").partition("*")
    for path in sorted(folder.glob(manifest_name("*"))) if folder.is_dir() else ():
        run_id = path.name.removeprefix(before).removesuffix(after)
        manifest = read_manifest(folder, run_id) or {}
        plan, attempt = manifest.get("plan"), manifest.get("attempt")
        if isinstance(plan, dict) and isinstance(plan.get("groups"), int) and isinstance(attempt, int):
            yield plan, Claim(run_id, attempt + 1, done_questions(folder, run_id))


def evaluation_folder(configured: str) -> Path:
    """A new folder next to the configured one."""
    return Path(configured).parent / f"eval-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def done_questions(folder: Path, run_id: str) -> frozenset[int]:
    """The numbers of the questions whose group is in the run's ledger: a question's number is that of its call."""
    files = [file.path for file in list_files(folder, run_id)]
    return frozenset(group.call for group in open_run(*files).ledger(all_attempts=True)) if files else frozenset()


def _differences(old: Any, new: Any, name: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
    elif old != new:
        yield f"{name} was {as_typed(old):.60}, is now {as_typed(new):.60}"
