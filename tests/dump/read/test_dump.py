from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tracemalloc

import polars as pl
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from rg_env.analysis import statistics
from rg_env.base.errors import DumpError
from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import (
    Attempt,
    Dump,
    DumpWriter,
    FileKind,
    NewerSchemaError,
    TrainedRecord,
    open_run,
    to_line,
    write_manifest,
)
from rg_env.dump.files import batch_name, manifest_name
from rg_env.dump.frames import SCHEMA
from rg_env.dump.manifest import end_manifest, read_manifest
from rg_env.dump.schema import GROUP_FACTS, ROLLOUT_FACTS, ledger_line
from tests.analysis.samples import write_ledger
from tests.dump.records import RUN_ID, group, manifest, rollout, violating


def _write(folder, groups, attempt=1, **settings):
    with DumpWriter(folder, RUN_ID, attempt, RGDumpConfig(**settings)) as writer:
        assert writer.submit(groups).result(5)


def test_what_was_written_is_read(tmp_path):
    groups = [group(k, [1.0, violating(1)] if k % 2 else [0.0, 0.0], level="", step=None) for k in range(7)]
    evaluation = [group(k, phase="eval") for k in range(3)]
    _write(tmp_path, [*groups, *evaluation], groups_per_file=2)
    write_manifest(tmp_path, RUN_ID, Attempt(model="nano"))
    dump = open_run(tmp_path)
    (run,) = dump.runs
    assert (run.run_id, run.has_ledger, run.manifest.model) == (RUN_ID, True, "nano")
    assert list(dump.groups()) == [*groups[1::2], *groups[::2], *evaluation]
    assert list(dump.where(["text = 'FAILED_rollouts'"]).groups()) == groups[::2]
    assert list(dump.where(["phase = 'eval'"]).groups()) == evaluation
    assert [record.group_id for record in dump.ledger()] == [g.group_id for g in [*groups, *evaluation]]
    assert [(g.uid, r.repetition) for g, r in dump.rollouts()][:3] == [("1", 0), ("1", 1), ("3", 0)]
    assert not dump.findings().counts["corrupt_line"]


def test_a_batch_under_way_is_read_up_to_its_last_whole_line(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        writer.submit([group(0)]).result(5)
        (part,) = tmp_path.glob("*_rollouts_*.part")
        with part.open("ab") as file:
            file.write(to_line(group(1))[:50])
        dump = open_run(tmp_path)
        assert [g.uid for g in dump.groups()] == ["0"]
        problem, end = _texts(dump)[::-1]
        assert end.endswith("is being written now")
        assert problem.startswith(f"{part.name}, line 2: ")


DAMAGE = {
    "torn": lambda line: line[: len(line) // 2] + b"\n",
    "NUL": lambda line: b"\0" * (len(line) - 1) + b"\n",
    "glued": lambda line: line[:-1] + line,
    "torn and glued": lambda line: line[:30] + line,
    "other JSON": lambda line: b'{"some": "thing"}\n',
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_corrupt_line_costs_itself_only_and_is_named(tmp_path, damage):
    _write(tmp_path, [group(k) for k in range(5)])
    for path in tmp_path.glob("*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        lines[2] = DAMAGE[damage](lines[2])
        path.write_bytes(b"".join(lines))
    for kind, read in (("ledger", Dump.ledger), ("rollouts", Dump.groups)):
        dump = open_run(tmp_path).all_attempts()
        for _ in range(2):  # named once, however often it is met
            assert [record.uid for record in read(dump)] == ["0", "1", "3", "4"]
            corrupt = [str(each) for each in dump.findings() if each.kind == "corrupt_line"]
            assert sum(re.search(f"_{kind}_.* line 3: .*; skipped$", problem) is not None for problem in corrupt) == 1
    dump = open_run(tmp_path)
    assert dump.ledger_frame()["uid"].unique(maintain_order=True).to_list() == ["0", "1", "3", "4"]
    (problem,) = _texts(dump, texts=False)
    assert "_ledger_" in problem
    assert "line 3: " in problem


def test_what_an_attempt_took_back_does_not_count(tmp_path):
    def step(number, attempt, phase="train"):
        return group(f"{phase}{number}", attempt=attempt, step=number, phase=phase)

    _write(
        tmp_path, [step(1, 1), step(1, 1, "eval"), step(2, 1), step(3, 1), step(4, 1), step(2, 1, "eval")], attempt=1
    )
    _write(tmp_path, [step(2, 2), step(3, 2), step(None, 2)], attempt=2)
    _write(tmp_path, [step(3, 3), step(None, 3)], attempt=3)
    write_manifest(tmp_path, RUN_ID, Attempt(attempt=1))  # which is not asked
    dump = open_run(tmp_path)
    # Steps 2 to 4 of the first attempt, with their evaluation, led nowhere: the second went back to step 2. Without
    # steps, the third asked the same question again.
    kept = {("train", 1, 1), ("eval", 1, 1), ("train", 2, 2), ("train", 3, 3), ("train", None, 3)}
    assert {(g.phase, g.step, g.attempt) for g in dump.groups()} == kept
    assert {(g.phase, g.step, g.attempt) for g in dump.ledger()} == kept
    assert set(dump.ledger_frame().select("phase", "step", "attempt").rows()) == kept
    assert sum(1 for _ in dump.all_attempts().ledger()) == sum(1 for _ in dump.all_attempts().groups()) == 11
    assert dump.all_attempts().ledger_frame()["group_id"].n_unique() == 11


def test_a_newer_schema_is_refused_with_file_and_line(tmp_path):
    _write(tmp_path, [group(0)])
    for path in tmp_path.glob("*.jsonl"):
        path.write_bytes(path.read_bytes().replace(b'"schema_version":', b'"schema_version":9'))
    dump = open_run(tmp_path)
    for read in (dump.ledger_frame, lambda: list(dump.groups()), lambda: list(dump.ledger())):
        with pytest.raises(NewerSchemaError, match=r"0000\.jsonl, line 1: written with schema version 9"):
            read()


MUTATIONS = [3, -1, 2.5, 1e400, 2**63, True, None, "ok", "mixed", "", "x", [], [1, 2], {}, {"a": 1}]


def _change(draw, value):
    """The value with one part of it, chosen at random, replaced or removed."""
    if isinstance(value, (dict, list)) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        if not draw(st.integers(0, 5)):
            return {k: v for k, v in value.items() if k != key} if isinstance(value, dict) else value[:key]
        changed = _change(draw, value[key])
        return {**value, key: changed} if isinstance(value, dict) else [*value[:key], changed, *value[key + 1 :]]
    return draw(st.sampled_from(MUTATIONS))


@st.composite
def corrupt_lines(draw, line):
    """A line of a dump as it may be after damage to its bytes or to its values."""
    how = draw(
        st.sampled_from(["intact", "intact", "values", "values", "bytes", "cut", "glued", "NUL", "blank", "escape"])
    )
    if how == "values":
        return json.dumps(_change(draw, json.loads(line))).encode() + b"\n"
    if how == "bytes":
        place = draw(st.integers(0, len(line) - 2))
        return line[:place] + draw(st.binary(max_size=3)) + line[place + draw(st.integers(0, 3)) :]
    changed = {
        "intact": line,
        "cut": line[: draw(st.integers(0, len(line)))],
        "glued": line[:-1] + line,
        "NUL": b"\0" * 40 + b"\n",
        "blank": b" \n",
        "escape": line.replace(
            b"chain_sum", draw(st.sampled_from([b"\\ud800", b"\\ufffe", b"\xff", b"\\u0000", b"\\/"]))
        ),
    }
    return changed[how]


@settings(max_examples=150)
@given(data=st.data(), kind=st.sampled_from([FileKind.ROLLOUTS, FileKind.LEDGER]), ends=st.booleans())
def test_objects_and_frames_agree_on_every_line_however_it_is_corrupt(tmp_path_factory, data, kind, ends):
    members = [group(k, [1.0, violating(1), rollout(0.5, 2)]) for k in range(3)]
    intact = [to_line(member) if kind.holds_text else ledger_line(member, FileKind.ROLLOUTS) for member in members]
    content = b"".join(data.draw(corrupt_lines(line)) for line in intact) + b"\n" * ends
    folder = tmp_path_factory.mktemp("corrupt")
    path = folder / f"reasoning_gym_environment_{kind}_r_0000.jsonl"
    path.write_bytes(content)
    # a corrupt attempt number would replace the other lines
    dump, again = open_run(folder).all_attempts(), open_run(folder).all_attempts()
    records = list(again.groups() if kind.holds_text else again.ledger())
    expected = [
        [None if value != value else value for value in (*(getattr(r, n) for n in ROLLOUT_FACTS), *_facts(record))]
        for record in records
        for r in record.rollouts
    ]
    frame = dump.scan(texts=kind.holds_text).select(*ROLLOUT_FACTS, *GROUP_FACTS).collect()
    assert [list(row) for row in frame.iter_rows()] == expected
    assert dump.findings().kept == again.findings().kept
    lines = sum(bool(line.strip()) for line in content.split(b"\n"))
    counts = dump.findings().counts
    assert len(records) + counts["corrupt_line"] + counts["duplicate"] + counts["differs"] == lines


def _facts(record):
    return [getattr(record, name) for name in GROUP_FACTS]


def test_texts_of_many_runs_need_two_descriptors(tmp_path):
    runs = [f"{RUN_ID}{number}" for number in range(5)]
    for run in runs:
        with DumpWriter(tmp_path, run, 1) as writer:
            assert writer.submit([group(0)]).result(5)
    dump = open_run(tmp_path)
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208
    for run in runs:
        assert dump.text(run, group(0).group_id) is not None
    assert len(os.listdir("/dev/fd")) == before + 2  # noqa: PTH208


@pytest.mark.parametrize("spaces", [False, True])
def test_a_text_is_found_by_its_id(tmp_path, spaces):
    """Whichever program wrote the lines."""
    _write(tmp_path, [group(k) for k in range(50)], groups_per_file=20)
    for path in tmp_path.glob("*.jsonl") if spaces else ():
        path.write_text("".join(json.dumps(json.loads(line)) + "\n" for line in path.read_text().splitlines()))
    dump = open_run(tmp_path)
    assert [dump.text(RUN_ID, group(k).group_id).uid for k in (7, 31, 3)] == ["7", "31", "3"]
    assert dump.text(RUN_ID, "nothing") is None
    assert dump.text("nothing", group(7).group_id) is None
    assert list(dump.only_texts()) == []


def test_a_lazy_frame_reads_what_the_query_asks_for(tmp_path):
    _write(tmp_path, [group(k, [1.0, 0.5], step=k) for k in range(30)], groups_per_file=4)
    dump = open_run(tmp_path)
    lazy = dump.scan()
    assert lazy.collect_schema().names() == list(SCHEMA)
    assert lazy.collect().equals(dump.ledger_frame())
    assert lazy.filter(pl.col("step") > 27).select("score").collect()["score"].to_list() == [1.0, 0.5] * 2
    assert lazy.head(3).collect()["uid"].to_list() == ["0", "0", "1"]
    assert lazy.select(pl.col("score").sum()).collect(engine="streaming").item() == 45.0
    texts = dump.scan(texts=True).filter(pl.col("uid") == "3").select("conversation", "answer").collect()
    assert texts["answer"].to_list() == ["1.0", "0.5"]
    assert texts["conversation"][0].to_list() == group(3).rollouts[0].conversation


def test_what_was_trained_on_is_read(tmp_path):
    records = [TrainedRecord(RUN_ID, attempt, step, f"g{k}", 8) for k, (attempt, step) in enumerate([(1, 1), (1, 2)])]
    path = tmp_path / f"reasoning_gym_environment_trained_{RUN_ID}_0000.jsonl"
    path.write_bytes(b"".join(map(to_line, records)) + b"torn")
    dump = open_run(tmp_path)
    assert list(dump.trained()) == records
    assert dump.trained_frame().select("step", "group_id", "rollouts").rows() == [(1, "g0", 8), (2, "g1", 8)]
    assert dump.findings().counts == {"no_ledger": 1, "corrupt_line": 1}
    assert open_run(tmp_path).findings(texts=False).counts == {"no_ledger": 1}
    assert dump.ledger_frame().is_empty()


def test_a_ledger_alone_is_read_and_a_file_of_another_name_refused(tmp_path):
    _write(tmp_path, [group(0)])
    (path,) = tmp_path.glob("*_ledger_*")
    dump = open_run(path)
    assert [record.uid for record in dump.ledger()] == ["0"]
    assert dump.has_ledger
    with pytest.raises(DumpError, match=r"mine.jsonl is not a file of a dump"):
        open_run(path.rename(tmp_path / "mine.jsonl"))


def test_wrong_paths_are_said_in_one_line(tmp_path):
    with pytest.raises(DumpError, match="no dump in"):
        open_run(tmp_path)
    with pytest.raises(DumpError, match="No such file"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(DumpError, match="no dump folder"):
        open_run()
    (tmp_path / "begun").mkdir()
    write_manifest(tmp_path / "begun", RUN_ID, Attempt(attempt=1))
    with pytest.raises(DumpError, match=r"the run in .* has recorded nothing$"):
        open_run(tmp_path / "begun")


def test_groups_are_read_in_constant_memory(tmp_path):
    long = [rollout(conversation=[{"role": "assistant", "content": "x" * 100_000}])]
    path = tmp_path / batch_name(FileKind.ROLLOUTS, RUN_ID, 0)
    path.write_bytes(b"".join(to_line(group(k, long)) for k in range(300)))  # 30 MB
    dump = open_run(path)
    next(dump.groups())  # what reading imports is not counted
    tracemalloc.start()
    try:
        assert sum(1 for _ in dump.groups()) == 300
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_the_representation_has_three_safe_lines(tmp_path):
    for run_id in ("\x1b[2J", "one", "two", "three"):
        (tmp_path / f"reasoning_gym_environment_rollouts_{run_id}_0000.jsonl").write_bytes(to_line(group(1)))
    first, files, advice = repr(open_run(tmp_path)).split("\n")
    assert first == "Dump of 4 runs: ␛[2J, one, three, …"
    assert files.startswith("4 files: 4 rollouts; runs with a ledger: 0")
    assert "groups()" in advice


def test_a_folder_given_twice_and_a_copy_count_once(tmp_path):
    _write(tmp_path / "dump", [group(k) for k in range(5)], groups_per_file=2)
    (tmp_path / "link").symlink_to(tmp_path / "dump")
    twice = open_run(tmp_path / "dump", tmp_path / "link", *(tmp_path / "dump").glob("*_ledger_*"))
    assert [record.uid for record in twice.ledger()] == list("01234")
    assert not twice.findings().counts
    shutil.copytree(tmp_path / "dump", tmp_path / "copy")
    for path in sorted((tmp_path / "copy").glob("*.jsonl"))[::2]:  # parts of both are torn
        path.write_bytes(path.read_bytes()[:-9])
    for path in sorted((tmp_path / "dump").glob("*.jsonl"))[1::2]:
        path.write_bytes(path.read_bytes()[9:])
    for order in (("dump", "copy"), ("copy", "dump")):
        dump = open_run(*(tmp_path / name for name in order))
        assert sorted(record.uid for record in dump.ledger()) == sorted(g.uid for g in dump.groups()) == list("01234")
        assert dump.ledger_frame()["group_id"].n_unique() == 5 == dump.ledger_frame().height / 2
        assert dump.findings().counts == {"corrupt_line": 6, "duplicate": 4}


def test_several_forms_of_a_file_count_once_and_none_is_deleted(tmp_path):
    """`rsync` of a running dump, repeated, leaves `.part` files; an interrupted `zstd -d` half a file."""
    _write(tmp_path, [group(k) for k in range(4)])
    ledger, text = (next(tmp_path.glob(f"*_{kind}_*.jsonl")) for kind in ("ledger", "environment_rollouts"))
    ledger.with_name(ledger.name + ".part").write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:3]))
    text.with_name(text.name + ".zst").write_bytes(zstd.compress(text.read_bytes()))
    text.write_bytes(text.read_bytes()[:-100])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    dump = open_run(tmp_path)
    assert [record.uid for record in dump.ledger()] == [g.uid for g in dump.groups()] == list("0123")
    assert dump.ledger_frame()["group_id"].n_unique() == 4 == dump.ledger_frame().height / 2
    assert dump.findings(texts=False).counts == {"duplicate": 3}
    done = CliRunner().invoke(app, ["dumps", "stats", str(tmp_path)])
    assert done.exit_code == 0
    assert f"{ledger.name}.part, line 1: group {group(0).group_id} again" in done.stderr.replace("\n", " ")
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_of_lines_that_differ_the_first_counts_whatever_the_order_of_arguments(tmp_path):
    _write(tmp_path / "a", [group(0, [1.0])])
    _write(tmp_path / "b", [group(0, [0.0])])
    for order in (("a", "b"), ("b", "a")):
        dump = open_run(*(tmp_path / name for name in order))
        assert [g.outcome for g in dump.ledger()] == ["all_correct"]
        assert dump.findings(texts=False).counts == {"differs": 1}


def test_what_a_running_writer_adds_is_not_read_twice_as_long(tmp_path):
    """All readers of one dump see the same groups, and a run that grows is not said to lack any."""
    write_manifest(tmp_path, RUN_ID, Attempt(attempt=1))
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert writer.submit([group(k) for k in range(3)]).result(5)
        dump = open_run(tmp_path)
        assert sum(1 for _ in dump.ledger()) == 3
        assert writer.submit([group(k) for k in range(3, 8)]).result(5)
        assert sum(1 for _ in dump.ledger()) == 3
        assert sum(1 for _ in dump.groups()) == 8
        assert dump.findings().counts == {"running": 1}
        assert sum(1 for _ in open_run(tmp_path).ledger()) == 8


def test_a_lock_that_cannot_be_asked_says_nothing(tmp_path, monkeypatch):
    """As on a read-only mount, where a running run is not killed."""
    write_manifest(tmp_path, RUN_ID, Attempt(attempt=1))
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert writer.submit([group(0)]).result(5)

        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

        with monkeypatch.context() as patched:
            patched.setattr("filelock.FileLock.acquire", refuse)
            dump = open_run(tmp_path)
            assert not dump.findings().counts
            assert dump.has_every_group is None


def test_a_run_that_went_on_in_another_folder_is_one_run(tmp_path):
    _write(tmp_path / "a", [group(0)])
    _write(tmp_path / "b", [group(1, attempt=2, step=2)], attempt=2)
    dump = open_run(tmp_path / "a", tmp_path / "b")
    assert len(dump.runs) == 1
    assert {g.uid for g in dump.where(["task = 'chain_sum'"]).groups()} == {"0", "1"}


def _texts(dump, *, texts=True):
    return [str(finding) for finding in dump.findings(texts=texts)]


def test_what_is_missing_is_said(tmp_path):
    _write(tmp_path, [group(k) for k in range(6)], groups_per_file=2)
    dump = open_run(tmp_path)
    assert sum(1 for _ in dump.groups()) == 6
    assert _texts(dump) == [] and dump.has_every_group is None, "nothing says how many lines there were"
    write_manifest(tmp_path, RUN_ID, Attempt(attempt=1))
    end_manifest(tmp_path, RUN_ID, 1, 0, {1: 6})
    assert open_run(tmp_path).has_every_group
    texts = sorted(tmp_path.glob("*environment_rollouts*"))
    texts[1].unlink()
    texts[2].write_bytes(texts[2].read_bytes().splitlines(keepends=True)[0])
    dump = open_run(tmp_path)
    assert (sum(1 for _ in dump.groups()), sum(1 for _ in dump.ledger())) == (3, 6)
    lacking = [finding for finding in dump.findings() if finding.kind == "no_text"]
    assert [finding.place.line for finding in lacking] == [1, 2, 2]
    assert f"the text of group {group(2).group_id} is in no rollouts file" in lacking[0].text
    assert dump.findings().counts == {"no_text": 3}
    assert dump.has_every_group, "in the ledger"
    assert not dump.findings(texts=False).counts
    ledgers = sorted(tmp_path.glob("*_ledger_*"))
    for lost in (ledgers[0], ledgers[1], ledgers[2]):  # no gap in the numbers says that the last one is missing
        whole = lost.read_bytes()
        lost.unlink()
        dump = open_run(tmp_path)
        assert dump.has_every_group is False
        assert f"run {RUN_ID}: 2 of 6 ledger lines of attempt 1 are missing" in _texts(dump)
        done = CliRunner().invoke(app, ["dumps", "stats", str(tmp_path)])
        assert "not every group" in done.stdout
        assert "2 of 6 ledger lines" in done.stderr
        lost.write_bytes(whole)
    dump = open_run(ledgers[0])
    assert dump.has_every_group is False
    assert _texts(dump, texts=False) == [f"run {RUN_ID}: 4 of 6 ledger lines of attempt 1 are missing"]
    (tmp_path / "all").mkdir()
    _write(tmp_path / "all", [group(0)])
    write_manifest(tmp_path / "all", RUN_ID, Attempt(missing_groups=2, ended=None))
    dump = open_run(tmp_path / "all")
    assert _texts(dump) == [
        f"run {RUN_ID}: 2 groups could not be written, according to the manifest",
        f"run {RUN_ID}: has no regular end: it was killed",
    ]
    assert not dump.has_every_group


def test_what_a_killed_attempt_wrote_is_counted_when_the_next_one_starts(tmp_path):
    """It could not note it itself."""
    write_manifest(tmp_path, RUN_ID, Attempt(attempt=1))
    _write(tmp_path, [group(k) for k in range(3)])
    path = tmp_path / manifest_name(RUN_ID)
    killed = json.loads(path.read_text())
    for entry in (killed, *killed["attempts"]):
        del entry["ended"], entry["ledger_lines"]
    path.write_text(json.dumps(killed))
    assert open_run(tmp_path).has_every_group is False
    write_manifest(tmp_path, RUN_ID, Attempt(attempt=2))
    _write(tmp_path, [group(k, attempt=2, step=2) for k in range(2)], attempt=2)
    assert open_run(tmp_path).has_every_group
    assert [entry.ledger_lines for entry in read_manifest(tmp_path, RUN_ID).attempts] == [3, 2]


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_run_that_was_resumed_in_another_folder_has_one_answer(tmp_path, order):
    """Settings, end and missing groups are those of all manifests, whatever the order of arguments."""
    for attempt, name in ((1, "a"), (2, "b")):
        (tmp_path / name).mkdir()
        write_manifest(tmp_path / name, RUN_ID, Attempt.read(manifest(attempt, solved_at=0.5)))
        members = [group(k, [0.6, 0.6], attempt=attempt, step=attempt) for k in range(5)]
        _write(tmp_path / name, members, attempt=attempt)
    dump = open_run(*(tmp_path / name for name in order))
    assert statistics(dump, "step").select("step", "groups", "solve_rate").rows() == [(1, 5, 1.0), (2, 5, 1.0)]
    assert not dump.findings().counts
    assert dump.has_every_group
    assert open_run(tmp_path / "b").has_every_group is None, "the first attempt is elsewhere"


def test_a_name_that_is_not_utf8_is_shown_and_obeyed_nowhere(tmp_path):
    _write(tmp_path / "dump", [group(0)])
    for path in list((tmp_path / "dump").glob("*.jsonl")):
        path.rename(os.fsdecode(os.fsencode(path).replace(RUN_ID.encode(), b"a\xff")))
    for command in (["stats"], ["validate"], ["report", "--out", str(tmp_path / "r.html")]):
        done = CliRunner().invoke(app, ["dumps", command[0], str(tmp_path / "dump"), *command[1:]])
        assert (done.exit_code, done.exception) == (0, None), command


def test_a_line_that_was_half_written_at_the_first_reading_is_in_no_later_one(tmp_path):
    """A running writer completes it in between: an open dump yields the same groups each time."""
    write_ledger(tmp_path, [group(k) for k in range(3)])
    path = next(tmp_path.glob("*_ledger_*"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    dump = open_run(tmp_path)
    first = [line.group_id for line in dump.ledger()]
    path.write_bytes(whole)
    assert len(first) == 2 and [line.group_id for line in dump.ledger()] == first
    assert len(list(open_run(tmp_path).ledger())) == 3
