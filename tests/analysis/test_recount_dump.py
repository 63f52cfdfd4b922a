"""`stats --json` of dumps equals a recount in plain Python: of the sample, of what crashes and copies leave, of several
evaluations of repeated questions, and of an import."""

from __future__ import annotations

import json
import math
import shutil

import pytest
from backports import zstd
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, DumpWriter, write_manifest
from tests.analysis.recount import read_plainly, recount
from tests.dump.records import RUN_ID, group

SAMPLE = "dumps/sample"


def _write(folder, groups, attempt=1):
    with DumpWriter(folder, RUN_ID, attempt, RGDumpConfig(groups_per_file=4)) as writer:
        assert writer.submit(groups).result(5)


def _groups(steps, attempt=1):
    tasks = ("chain_sum", "gcd")
    scores = [[k % 3 / 2, 1.0, 0.0, float(k % 2)] for k in range(4)]
    return [
        group(f"{step}-{k}", scores[(step + k) % 4], attempt=attempt, step=step, task=tasks[k % 2])
        for step in steps
        for k in range(4)
    ]


def sample(folder):
    shutil.copytree(SAMPLE, folder)


def resumed(folder):
    _write(folder, _groups((1, 2, 3)))
    _write(folder, _groups((3, 4), attempt=2), attempt=2)


def killed(folder):
    """The file being filled has no final name and a torn last line."""
    _write(folder, _groups((1, 2)))
    last = sorted(folder.glob("*_ledger_*"))[-1]
    part = last.rename(last.with_name(last.name + ".part"))
    part.write_bytes(part.read_bytes()[:-20])


def repeated_rsync(folder):
    """The `.part` files of an earlier copy lie beside the finished ones, and a compressed one beside half of it."""
    _write(folder, _groups((1, 2, 3)))
    first, second, *_ = sorted(folder.glob("*_ledger_*"))
    first.with_name(first.name + ".part").write_bytes(b"".join(first.read_bytes().splitlines(keepends=True)[:2]))
    second.with_name(second.name + ".zst").write_bytes(zstd.compress(second.read_bytes()))
    second.write_bytes(second.read_bytes()[:-100])


def two_copies(folder):
    _write(folder / "a", _groups((1, 2)))
    shutil.copytree(folder / "a", folder / "b")
    corrupt = sorted((folder / "a").glob("*_ledger_*"))[0]
    corrupt.write_bytes(corrupt.read_bytes()[:-5])


def missing_file(folder):
    folder.mkdir()
    write_manifest(folder, RUN_ID, Attempt(attempt=1))
    _write(folder, _groups((1, 2, 3)))
    sorted(folder.glob("*_ledger_*"))[1].unlink()


def one_corrupt_file(folder):
    missing_file(folder)
    sorted(folder.glob("*_ledger_*"))[0].write_text("garbage\n")


def only_corrupt_files(folder):
    """Two attempts, of which the second replaces a step of the first."""
    resumed(folder)
    for path in folder.glob("*_ledger_*"):
        path.write_bytes(b"\0" * 100)


def evaluated(folder):
    """Questions stand in the data set once or several times, and of some responses are missing."""
    members = []
    for step in (0, 4, 8):
        for k in range(24):
            scores = [float((k + step + n) % 3 == 0) for n in range(8 - (k % 12 == 0))]
            for phase in ("train", "eval"):
                members.append(group(f"{step}-{k}", scores, item=f"q{k % 7}", step=step, phase=phase, task="gcd"))
    _write(folder, members)


def imported(folder):
    """SkyRL's evaluations: lists of rewards, prompts of one, two and four responses, a score that is unknown."""
    source = folder.parent / "dumped_evals"
    for step in (5, 10):
        rows = []
        for k in range(12):
            for n in range(1 + k % 2 + 2 * (k % 4 == 0)):
                score = [0.0, float((k + n + step) % 2)] if k != 3 else None
                rows.append({"input_prompt": f"What is {k}?", "output_response": f"{n}", "score": score} | _SKYRL)
        path = source / f"global_step_{step}_evals" / "gsm8k.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = CliRunner().invoke(app, ["dumps", "import", "skyrl", str(source), "--out", str(folder)])
    assert done.exit_code == 0


_SKYRL = {"stop_reason": "stop", "env_class": "gsm8k", "env_extras": {}, "data_source": "gsm8k"}
INCOMPLETE = (killed, missing_file, one_corrupt_file, only_corrupt_files)
MADE = [sample, resumed, repeated_rsync, two_copies, evaluated, imported, *INCOMPLETE]


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("by", ["task", "step"])
def test_statistics_equal_a_plain_recount(make, by, tmp_path):
    folder = tmp_path / "dump"
    make(folder)
    folders = sorted(path for path in folder.iterdir() if path.is_dir()) or [folder]
    done = CliRunner().invoke(app, ["dumps", "stats", *map(str, folders), "--by", by, "--json"])
    expected = recount(read_plainly(*folders), by)
    rows = {(row["phase"], row["environment"], row[by]): row for row in json.loads(done.stdout)}
    assert set(rows) == set(expected)
    for key, figures in expected.items():
        for name, value in figures.items():
            if value is None:
                assert rows[key][name] is None, name
            else:
                assert math.isclose(rows[key][name], value, abs_tol=1e-9), name
    said = done.stderr.replace("\n", " ")
    assert ("4 of 12 ledger lines of attempt 1 are missing" in said) == (make is missing_file)
    assert ("the ledger has corrupt or missing lines: " in said) == (make in INCOMPLETE)
    assert ("again, first in" in said) == (make in (repeated_rsync, two_copies))
