"""What a run leaves passes; each thing that can be wrong is found, at its place, with what to do about it."""

from __future__ import annotations

import json
import re
import shutil
import tracemalloc
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.dump import Attempt, DumpWriter, FileKind, NotKept, ledger_line, write_manifest
from rg_env.dump.contents import KINDS, MAX_KEPT, Findings, Place
from rg_env.dump.files import RunLock, batch_name, list_files, manifest_name
from rg_env.dump.validate import validate
from rg_env.scoring.types import Status, Violation
from tests.dump.records import RUN_ID, group, manifest, rollout, write_record


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intact")
    write_record(folder, attempts=2)
    return folder


@pytest.fixture
def record(intact, tmp_path):
    return shutil.copytree(intact, tmp_path / "record")


def _file(folder, kind=FileKind.ROLLOUTS, number=0):
    return [file.path for file in list_files(folder) if file.kind is kind][number]


def _found(*paths):
    return [(kind, *place) for kind, place, _ in validate(*paths).findings]


def _change(path, line, change):
    """Change a line as an object."""
    lines = path.read_bytes().splitlines()
    wire = orjson.loads(lines[line - 1])
    change(wire)
    lines[line - 1] = orjson.dumps(wire)
    path.write_bytes(b"\n".join(lines) + b"\n")


def test_what_runs_leave_passes(record):
    result = validate(record)
    assert result.good, result.findings.kept
    assert not result.remarks
    assert (result.runs, result.records[FileKind.LEDGER], result.texts) == (1, 14, 12)
    assert result.records[FileKind.TRAINED] == 8
    assert validate("dumps/sample").good
    assert validate(_file(record), _file(record, FileKind.LEDGER, 1)).good, "each file by itself"


def _rollout(k, **changes):
    return lambda wire: wire["rollouts"][k].update(changes)


@pytest.mark.parametrize(
    "change",
    [
        _rollout(0, base_score=0.5),
        _rollout(0, score=0.5),
        _rollout(0, score=None),
        _rollout(0, raw_score=1.5),
        _rollout(0, raw_score=None),
        _rollout(0, violation=Violation.NO_THINK.value),
        _rollout(0, status=Status.CRASHED.value),
        _rollout(1, repetition=0),
        lambda wire: wire.update(complexity=1.5),
        lambda wire: wire.update(no_signal=True),
        lambda wire: wire.update(outcome="all_failed"),
        lambda wire: wire.update(outcome="all_correct"),
    ],
)
def test_a_line_that_contradicts_itself_is_found(record, change):
    path = _file(record)
    _change(path, 1, change)
    assert ("contradiction", path.name, 1) in _found(record)


@pytest.mark.parametrize(
    ("of_run", "of_group", "is_good"),
    [
        ({}, {}, True),
        ({}, {"solved_at": 0.9}, False),
        (manifest(), {}, False),
        (manifest(solved_at=0.5), {}, True),
        (manifest(), {"solved_at": 0.5}, True),
        (manifest(), {"environment": "gsm8k"}, True),
    ],
)
def test_all_correct_is_held_against_the_threshold_that_was_recorded(tmp_path, of_run, of_group, is_good):
    write_manifest(tmp_path, RUN_ID, Attempt.read({"attempt": 1} | of_run))
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert writer.submit([group(0, [0.6, 0.7], outcome="all_correct", **of_group)]).result(10)
    assert ("contradiction" not in validate(tmp_path).findings.counts) == is_good


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace(b'"no_signal":false', b'"no_signal":0'),
        lambda line: line.replace(b'"rollouts":[{', b'"rollouts":[3,{'),
        lambda line: line.replace(b'"outcome":"mixed"', b'"outcome":"fine"'),
        lambda line: line.replace(b'"group_id":', b'"group_iq":'),
        lambda line: line[:-9] + b"\n",
        lambda line: line[:-1] + line,
        lambda line: b"\0" * len(line) + b"\n" + line,
    ],
)
def test_corrupt_lines_are_found(record, damage):
    path = _file(record)
    first, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(damage(first) + b"".join(others))
    assert _found(record)[0] == ("corrupt_line", path.name, 1)


def test_a_file_without_its_last_line_feed_is_found(record):
    path = _file(record, FileKind.TRAINED)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    assert _found(record) == [("corrupt_line", path.name, content.count(b"\n"))]


@pytest.mark.parametrize(
    "change",
    [
        {"response_tokens": [8, 8], "stop_reason": ["length", "stop"]},
        {"text": "", "text_reason": "dump_rollouts_off"},
        {"text": ""},
    ],
)
def test_a_ledger_line_that_differs_from_its_text_or_contradicts_itself_is_found(record, change):
    path = _file(record, FileKind.LEDGER)
    _change(path, 1, lambda wire: wire.update(change))
    assert {*_found(record)} == {("contradiction", path.name, 1)}


def test_texts_without_ledger_lines_and_the_other_way_round(record):
    text, ledger = _file(record), _file(record, FileKind.LEDGER)
    content = text.read_bytes().splitlines(keepends=True)
    text.write_bytes(b"".join(content[1:]))
    assert ("no_text", ledger.name, 1) in _found(record)
    text.write_bytes(b"".join(content))
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[1:]))
    found = _found(record)
    assert ("no_ledger_line", text.name, 1) in found
    assert ("unknown_group", _file(record, FileKind.TRAINED).name, 1) in found


@pytest.mark.parametrize("kind", [FileKind.ROLLOUTS, FileKind.LEDGER, FileKind.TRAINED])
def test_a_line_that_is_there_twice_is_found(record, kind):
    path = _file(record, kind)
    first, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first * 2 + b"".join(others))
    assert ("duplicate", path.name, 2) in _found(record)


def test_missing_and_doubled_files_are_found(record):
    _file(record, FileKind.LEDGER, -1).unlink()
    other = _file(record, FileKind.FAILED)
    shutil.copy(other, other.with_name(other.name + ".part"))
    assert {("lines_missing", f"run {RUN_ID}", 0), ("duplicate", f"{other.name}.part", 1)} <= {*_found(record)}


def test_a_corrupt_manifest_is_found_and_a_missing_one_remarked(record):
    path = record / manifest_name(RUN_ID)
    path.write_text("{")
    assert _found(record) == [("manifest", path.name, 0)]
    path.unlink()
    result = validate(record)
    assert result.good
    assert "no manifest" in result.remarks[0]


def test_a_run_that_begins_again_while_it_is_checked_is_one_line(record):
    write_manifest(record, RUN_ID, Attempt(attempt=3))
    lock = RunLock(record, RUN_ID)
    try:
        result = validate(record)
        assert result.good
        assert "being written" in result.remarks[0]
    finally:
        lock.release()


def test_a_run_that_is_being_written_is_not_held_against_itself(record):
    _file(record, FileKind.LEDGER, -1).unlink()
    assert not validate(record).good
    lock = RunLock(record, RUN_ID)
    try:
        result = validate(record)
        assert result.good
        assert "being written" in result.remarks[0]
    finally:
        lock.release()


def test_findings_are_bounded():
    every = Findings()
    for start in (0, MAX_KEPT):
        found = Findings()
        for k in range(MAX_KEPT + 5):
            found.add("no_text", Place("a file", start + k), "")
        every.extend(found)
    assert (every.counts.total(), len(every.kept)) == (2 * MAX_KEPT + 10, MAX_KEPT)
    assert len(every.summary()) == 4
    assert every.summary()[-1].startswith("… and 2,007 more: 2,010 groups have no text")


@pytest.mark.parametrize("kind", KINDS)
def test_many_findings_of_any_kind_are_summed_up_in_words(kind):
    """Four runs that were killed are the ordinary comparison of seeds."""
    found = Findings()
    for number in range(4):
        found.add(kind, Place(f"run {number}"), "has no regular end: it was killed")
    assert found.summary()[:3] == [f"run {number}: has no regular end: it was killed" for number in range(3)]
    assert re.fullmatch(r"… and 1 more: 4 \w[\w ,;]+; `rg-env dumps validate` lists them", found.summary()[3])


def test_of_a_single_file_it_is_said_that_it_was_compared_with_nothing(record):
    """Its texts need not be in the ledger, nor all of them be there."""
    path = _file(record, FileKind.ROLLOUTS)
    done = CliRunner().invoke(app, ["dumps", "validate", str(path)])
    advice = f"only this file was checked: name its folder, {record}, to compare it with all files of the run"
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, advice)
    assert done.stdout.endswith("no problems found within 1 file\n")
    facts = json.loads(CliRunner().invoke(app, ["dumps", "validate", str(path), "--json"]).stdout)
    assert (facts["good"], facts["compared"], facts["remarks"]) == (True, False, [advice])
    assert validate(record).compared


def test_a_file_of_another_run_beside_a_folder_is_checked_by_itself(record, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(Path(__file__).parents[2] / "dumps" / "sample", other)
    (ledger,) = sorted(other.glob("*_ledger_*"))[:1]
    result = validate(record, ledger)
    assert result.good, [str(finding) for finding in result.findings.kept]
    assert any(f"only this file was checked: name its folder, {other}" in remark for remark in result.remarks)


def test_memory_does_not_grow_with_the_texts(tmp_path):
    long = [rollout(conversation=[{"role": "assistant", "content": "x" * 50_000}])]
    peaks = []
    for count in (20, 220):
        folder = tmp_path / str(count)
        with DumpWriter(folder, RUN_ID, 1) as writer:
            assert writer.submit([group(k, long) for k in range(count)]).result(10)
        tracemalloc.start()
        assert validate(folder).good
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 200 * 1000  # bytes; the texts are 10 MB more


def test_groups_that_were_never_written_and_an_irregular_end_are_found(tmp_path):
    """Whatever words the id of the run has."""
    run_id = "weekend"
    line = ledger_line(group(run_id=run_id), None, NotKept.ROLLOUTS_OFF)
    (tmp_path / batch_name(FileKind.LEDGER, run_id, 0)).write_bytes(line)
    write_manifest(tmp_path, run_id, Attempt(missing_groups=3, ended="2026-11-23"))
    assert validate(tmp_path).findings.counts == {"groups_missing": 1}
    assert CliRunner().invoke(app, ["dumps", "validate", str(tmp_path)]).exit_code == 3
    write_manifest(tmp_path, run_id, Attempt(attempt=2))
    assert validate(tmp_path).findings.counts == {"groups_missing": 1, "no_regular_end": 1}


def test_a_run_in_several_folders_is_checked_as_one(tmp_path):
    """A full disk tells people to use another folder; each folder has a manifest of its own."""
    for attempt, name in ((1, "a"), (2, "b")):
        (tmp_path / name).mkdir()
        write_manifest(tmp_path / name, RUN_ID, Attempt(attempt=attempt))
        with DumpWriter(tmp_path / name, RUN_ID, attempt) as writer:
            assert writer.submit([group(attempt, attempt=attempt, step=attempt)]).result(10)
    assert validate(tmp_path / "a", tmp_path / "b").good
    assert validate(tmp_path / "b", tmp_path / "a").good


def test_lines_that_differ_under_one_id_are_found(record):
    copy = shutil.copytree(record, record.parent / "copy")
    _change(_file(copy, FileKind.LEDGER), 2, lambda wire: wire.update(step=99))
    found = validate(record, copy).findings
    assert found.counts["differs"] == 1
    ((_, place, text),) = (finding for finding in found if finding.kind == "differs")
    assert place.line == 2 and text.endswith("which differs")
