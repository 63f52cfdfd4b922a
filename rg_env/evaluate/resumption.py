"""Which run of a folder an evaluation or collection continues, and whether it may.

Invariant: a run is continued with the same plan only, and no folder gets a second one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rg_env.base.errors import ConfigError
from rg_env.configuration.config import RGDumpConfig
from rg_env.configuration.settings import Difference, differences
from rg_env.dump import Manifest, new_run_id
from rg_env.dump.files import list_files, runs_with_manifest
from rg_env.dump.manifest import nested_value, read_manifest
from rg_env.evaluate.outcome import Answers

_TYPED_AS = {
    "command": "the command",
    "groups": "the number of questions",
    "model": "--model",
    "samples": "--samples",
    "sampling.max_tokens": "--max-tokens",
    "sampling.temperature": "--temperature",
    "sampling.top_p": "--top-p",
    "questions.suite.left_out": "the number of questions that the audit of the answers left out",
}
"""What decides an entry of a plan, in the words of the command line."""


class Claim(NamedTuple):
    """The run of a folder that this process is to write.

    Attributes:
        attempt: its number, from 1.
        answers: what the ledger has of the run. A killed attempt may have left more, which opening the dump completes.
    """

    run_id: str
    attempt: int
    answers: Answers


class _PlannedRun(NamedTuple):
    """A run of `eval` or `collect` in a folder, with its number of attempts."""

    run_id: str
    attempts: int
    plan: dict[str, Any]
    answers: Answers

    @property
    def is_complete(self) -> bool:
        return len(self.answers.complete) >= int(self.plan["groups"])


def claim(folder: Path, plan: Mapping[str, Any], *, resume: bool) -> Claim:
    """Return the run to continue in `folder`, or a new one.

    Raises:
        ConfigError: without `resume`, there is a run in the folder; with it, none that can be continued with this plan.
    """
    runs = list(_planned_runs(folder))
    if not runs or not resume:
        _need_unused(folder, runs)
        return Claim(new_run_id(), 1, Answers())
    # The newest that is not finished. If all of them are, the newest: nothing will be asked.
    unfinished = [run for run in runs if not run.is_complete]
    run = (unfinished or runs)[-1]
    if changes := list(_changes(run.plan, plan)):
        raise ConfigError(
            f"--resume with other settings than the run in {folder}: {'; '.join(changes[:3])}; "
            "use the same settings, or another folder"
        )
    return Claim(run.run_id, run.attempts + 1, run.answers)


def _need_unused(folder: Path, runs: Sequence[_PlannedRun]) -> None:
    """Refuse a folder that has a dump: readers would take both runs for one result."""
    for run in reversed(runs):
        if not run.is_complete:
            raise ConfigError(
                f"{folder} has an unfinished run ({len(run.answers.complete)} of {run.plan['groups']} groups): "
                "continue it with --resume, or choose another folder"
            )
    if runs_with_manifest(folder) or list_files(folder):
        raise ConfigError(f"{folder} has the dump of a finished run: choose another folder")


def _planned_runs(folder: Path) -> Iterator[_PlannedRun]:
    """Yield the runs in a folder that have a plan, oldest first."""
    for run_id in runs_with_manifest(folder):
        noted = read_manifest(folder, run_id) or Manifest()
        if noted.plan and isinstance(noted.plan.get("groups"), int) and noted.attempt is not None:
            yield _PlannedRun(run_id, noted.attempt, noted.plan, Answers.of_run(folder, run_id))


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield how two plans differ, in the words of the command line. What only one of the two programs has is no
    difference."""
    changed = False
    for name, words in _TYPED_AS.items():
        old, new = nested_value(before, name), nested_value(now, name)
        if old is not None and new is not None and old != new:
            changed = True
            yield str(Difference(words, old, new))
    old_request, new_request = nested_value(before, "sampling.request"), nested_value(now, "sampling.request")
    if isinstance(old_request, Mapping) and old_request != new_request:
        for name in sorted({**old_request, **new_request}):
            if old_request.get(name) != new_request.get(name):
                changed = True
                yield str(Difference(name, old_request.get(name), new_request.get(name)))
    for difference in differences(RGDumpConfig(), before.get("config"), now["config"]):
        changed = True
        yield str(difference)
    # Only if nothing else says why they are others.
    if not changed and before.get("questions") != now["questions"]:
        yield "the questions are others: those of another suite, task mix, seed or file"
