"""A table that was exported is read as the dump that it was exported from."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from rg_env.analysis.export import export_table
from rg_env.analysis.stats import counts, measure, statistics
from rg_env.base.errors import DumpError
from rg_env.cli import app
from rg_env.dump import Attempt, open_run, write_manifest
from rg_env.dump.schema import ROLLOUT_FACTS
from tests.analysis.samples import write_ledger
from tests.dump import records
from tests.dump.records import RUN_ID, manifest

SAMPLE = "dumps/sample"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "sample.parquet"
    export_table(open_run(SAMPLE), path)
    return path


@pytest.mark.parametrize("condition", [(), ("phase = 'train'", "base_score > 0.5")])
def test_its_figures_are_those_of_the_dump(table, condition, monkeypatch):
    monkeypatch.setattr("rg_env.dump.table._ROWS", 5)  # groups of 8 go on in the next frame
    dump, exported = open_run(SAMPLE).where(condition), open_run(table).where(condition)
    this, that = measure(dump), measure(exported)
    for by in ("task", "phase", "step"):
        assert_frame_equal(statistics(this, by), statistics(that, by), rel_tol=1e-10)
        assert_frame_equal(counts(this, by), counts(that, by))
    assert_frame_equal(dump.ledger_frame().drop("solved_at"), exported.ledger_frame().drop("solved_at"))


def test_its_groups_are_those_of_the_ledger(table):
    for line, group in zip(open_run(SAMPLE).ledger(), open_run(table).ledger(), strict=True):
        assert line.group_id == group.group_id and line.outcome is group.outcome
        for name in ROLLOUT_FACTS:
            assert line.column(name) == group.column(name)


def test_texts_are_those_of_the_files_beside_it(table, tmp_path):
    alone = open_run(table)
    run_id, group_id = next((group.run_id, group.group_id) for group in open_run(SAMPLE).groups())
    assert alone.text(run_id, group_id) is None and not list(alone.groups()) and not alone.settings
    beside = tmp_path / "dump"
    for file in open_run(SAMPLE).runs[0].files[0].path.parent.iterdir():
        if file.is_file():
            beside.mkdir(exist_ok=True)
            (beside / file.name).write_bytes(file.read_bytes())
    (beside / table.name).write_bytes(table.read_bytes())
    whole = open_run(beside / table.name)
    assert whole.text(run_id, group_id) == open_run(SAMPLE).text(run_id, group_id)
    assert list(whole.groups()) == list(open_run(SAMPLE).groups())
    assert whole.settings == open_run(SAMPLE).settings
    part = open_run(SAMPLE).where(["task = 'gcd' OR base_score = 1"])
    export_table(part, beside / "part.parquet")
    exported = open_run(beside / "part.parquet")
    assert list(exported.groups()) == list(part.groups()) and not exported.findings().kept
    # Of parts of groups neither has pass@k.
    assert_frame_equal(statistics(part), statistics(exported), rel_tol=1e-10)
    (finding,) = alone.findings()
    assert "the text of 32 groups is not beside it" in str(finding)


def test_alone_it_knows_what_solved_meant(tmp_path):
    write_ledger(tmp_path / "dump", [records.group(0, [0.6, 0.8])])
    write_manifest(tmp_path / "dump", RUN_ID, Attempt.read(manifest(solved_at=0.7)))
    export_table(open_run(tmp_path / "dump"), tmp_path / "table.parquet")
    for solved_at, rate in ((None, 0.5), (0.6, 1.0)):
        for path in ("dump", "table.parquet"):
            assert statistics(open_run(tmp_path / path), solved_at=solved_at)["solve_rate"].to_list() == [rate]


def test_commands_read_it(table, tmp_path):
    run = CliRunner().invoke
    shown = run(app, ["dumps", "stats", str(table)])
    assert not shown.exit_code and "pass@k" in shown.output
    assert "is not a file of a dump" in str(run(app, ["dumps", "validate", str(table)]).exception)
    report = run(app, ["dumps", "report", str(table), "--out", str(tmp_path / "report.html")])
    assert not report.exit_code, report.output


def broken(path, table):
    path.write_bytes(table.read_bytes()[:-100])


def other(path, table):
    pl.DataFrame({"run_id": ["a"]}).write_parquet(path)


def empty(path, table):
    pl.read_parquet(table).clear().write_parquet(path)


def shuffled(path, table):
    pl.read_parquet(table).sort("repetition", "group_id").write_parquet(path)


@pytest.mark.parametrize(
    ("damage", "words"),
    [(broken, "cannot be read"), (other, "lacks the column"), (empty, "no rollouts"), (shuffled, "not together")],
)
def test_a_table_that_is_none_of_ours_is_refused(table, tmp_path, damage, words):
    path = tmp_path / "table.parquet"
    damage(path, table)
    with pytest.raises(DumpError, match=words):
        measure(open_run(path))
    with pytest.raises(DumpError, match="cannot be read"):
        open_run(tmp_path / "absent.parquet")
    with pytest.raises(DumpError, match="read alone"):
        open_run(path, SAMPLE)
