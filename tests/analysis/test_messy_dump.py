"""Every output with conditions on every part of a messy dump: no traceback, and the figures of a plain recount.

Two runs, attempts that went back, a run that was resumed in another folder, two environments, several kinds of text
files, evaluations. Files are missing first, in the middle and last; there are copies, twins and `.part` leftovers.
"""

from __future__ import annotations

import json
import math
import shutil
from itertools import product
from pathlib import Path

import pytest
from backports import zstd
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, DumpWriter, FileKind, open_run, write_manifest
from rg_env.dump.conditions import ConditionError
from rg_env.dump.files import list_files
from tests.analysis.recount import read_plainly, recount
from tests.dump.records import group, rollout, violating

RUNS = ("20261121-053012-aaaa", "20261122-053012-bbbb")
TASKS = ("chain_sum", "gcd")


def _attempt(folder: Path, run_id: str, attempt: int, steps: range) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, run_id, Attempt(attempt=attempt, model=run_id[-4:]))
    made = []
    for step in steps:
        for k in range(4):
            scores = [(step + k) % 3 / 2, 1.0, 0.0, float(k % 2)]
            rollouts = [rollout(score, number) for number, score in enumerate(scores)]
            if k == 3:
                rollouts[2] = violating(2)
            environment = "gsm8k" if run_id == RUNS[1] and k == 2 else "rg_dump"
            phase = "eval" if k == 1 and step % 2 else "train"
            facts = {"attempt": attempt, "run_id": run_id, "task": TASKS[k % 2], "phase": phase}
            made.append(group(f"{step}-{k}", rollouts, step=step, environment=environment, **facts))
    with DumpWriter(folder, run_id, attempt, RGDumpConfig(groups_per_file=3, dump_eval_rollouts=True)) as writer:
        assert writer.submit(made).result(10)


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("messy")
    _attempt(folder / "a", RUNS[0], 1, range(1, 5))
    _attempt(folder / "a", RUNS[0], 2, range(3, 6))
    _attempt(folder / "b", RUNS[0], 3, range(5, 8))
    _attempt(folder / "a", RUNS[1], 1, range(1, 4))
    return folder


def _ledgers(folder, run_id=RUNS[0]):
    return [file.path for file in list_files(folder, run_id) if file.kind is FileKind.LEDGER]


def _files(folder, kind):
    return [file.path for file in list_files(folder, RUNS[0]) if file.kind is kind]


def whole(folder):
    return True


def without_first(folder):
    _ledgers(folder / "a")[0].unlink()


def without_middle(folder):
    _ledgers(folder / "a")[2].unlink()


def without_last(folder):
    _ledgers(folder / "b")[-1].unlink()


def without_texts(folder):
    for path in (_files(folder / "a", FileKind.ROLLOUTS)[-1], _files(folder / "b", FileKind.EVAL)[0]):
        path.unlink()
    return True


def with_copies(folder):
    shutil.copytree(folder / "a", folder / "c")
    for path in _ledgers(folder / "a")[::2]:
        path.with_name(path.name + ".zst").write_bytes(zstd.compress(path.read_bytes()))
    return True


def with_leftovers(folder):
    for path in _ledgers(folder / "a")[1::2]:
        path.with_name(path.name + ".part").write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    return True


def with_damage_that_a_copy_fixes(folder):
    shutil.copytree(folder / "a", folder / "c")
    path = _ledgers(folder / "a")[1]
    path.write_bytes(path.read_bytes()[:-20])
    return True


SUBSETS = (whole, without_first, without_middle, without_last, without_texts)
SUBSETS += (with_copies, with_leftovers, with_damage_that_a_copy_fixes)
OUTPUTS = (["stats"], ["stats", "--details"], ["stats", "--columns", "solve_rate"], ["stats", "--by", "step", "--json"])
OUTPUTS += (["stats", "--by", "level", "--details", "--columns", "mean_reward"], ["show", "--limit", "2"], ["validate"])
OUTPUTS += (["show", "--sort", "spread", "--limit", "2"], ["signs"], ["report", "--out", "OUT.html"])
OUTPUTS += (["export", "sft", "--out", "OUT.jsonl"], ["stats", "--against", "a"])
CONDITIONS = ("", "phase = 'eval'", "base_score < 0.99", "step BETWEEN 3 AND 5", "environment = 'gsm8k'", "task = 'no'")


@pytest.fixture
def dump(messy, tmp_path, request):
    folder = shutil.copytree(messy, tmp_path / "dump")
    is_whole = bool(request.param(folder))
    return sorted(path for path in folder.iterdir()), is_whole


@pytest.mark.parametrize("dump", SUBSETS, indirect=True, ids=lambda make: make.__name__)
def test_every_output_takes_every_condition(dump, tmp_path, request):
    """Every pair of output and condition, each on one part of the dump, and every part with several of both."""
    folders, _ = dump
    part = SUBSETS.index(request.node.callspec.params["dump"])
    for number, (output, condition) in enumerate(product(OUTPUTS, CONDITIONS)):
        if number % len(SUBSETS) != part:
            continue
        args = [arg.replace("OUT", str(tmp_path / str(number))) for arg in output]
        at = 2 if output[0] == "export" else 1
        where = ["--where", condition] if condition and output[0] != "validate" else []
        if "--against" in args:
            args[-1] = str(folders[0])
        done = CliRunner().invoke(app, ["dumps", *args[:at], *map(str, folders), *args[at:], *where])
        if where == ["--where", "task = 'no'"]:
            with pytest.raises(ConditionError, match="no rollout matches task = 'no'; the tasks are chain_sum, gcd"):
                raise done.exception
            continue
        has_findings = output == ["validate"] and part != SUBSETS.index(whole)
        has_no_example = output[0] == "export" and condition in ("phase = 'eval'", "base_score < 0.99")
        assert done.exception is None or isinstance(done.exception, SystemExit), (args, where)
        assert done.exit_code == (1 if has_findings or has_no_example else 0), (args, where, done.output)


@pytest.mark.parametrize("dump", SUBSETS, indirect=True, ids=lambda make: make.__name__)
def test_figures_are_those_of_what_is_there_in_any_order_of_folders(dump):
    folders, is_whole = dump
    groups = read_plainly(*folders)
    expected = {run_id: recount([g for g in groups if g.run_id == run_id], "step") for run_id in RUNS}
    for order in (folders, folders[::-1]):
        done = CliRunner().invoke(app, ["dumps", "stats", *map(str, order), "--by", "step", "--json"])
        rows = {(row["run_id"], row["phase"], row["environment"], row["step"]): row for row in json.loads(done.stdout)}
        assert set(rows) == {(run_id, *key) for run_id, of_run in expected.items() for key in of_run}
        for run_id, of_run in expected.items():
            for key, figures in of_run.items():
                for name, value in figures.items():
                    got = rows[run_id, *key].get(name)
                    if value is None or got is None:
                        assert value == got, (key, name)
                    else:
                        assert math.isclose(got, value, abs_tol=1e-9), (key, name)
        assert open_run(*order).has_every_group is is_whole
        headline = CliRunner().invoke(app, ["dumps", "stats", *map(str, order)]).stdout
        assert ("every group, from the ledger" in headline) is is_whole
