"""Damage costs what it hit and nothing else: every whole group comes back, and the copy validates."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rg_env.dump import (
    DumpWriter,
    FileKind,
    LedgerRecord,
    NewerSchemaError,
    TrainedRecord,
    from_line,
    ledger_from_line,
    to_line,
)
from rg_env.dump.files import list_files, parse_name
from rg_env.dump.open_file import open_lines
from rg_env.dump.repair.changes import Change
from rg_env.dump.repair.recover import recover
from rg_env.dump.repair.validate import validate
from rg_env.dump.schema import NotKept
from rg_env.dump.write.compress import compress
from rg_env.errors import DumpError
from tests.dump.records import RUN_ID, group, lines_of, move, rollout
from tests.dump.repair.damage import write_record


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = tmp_path_factory.mktemp("record")
    write_record(folder, attempts=2)
    return folder


def _contents(folder):
    return {file.path.name: file.path.read_bytes() for file in list_files(folder)}


def _lines(contents, *kinds):
    return [
        line
        for name, content in contents.items()
        if parse_name(Path(name)).kind in kinds
        for line in content.splitlines()
    ]


TEXTS = [kind for kind in FileKind if kind.holds_text]


def test_a_sound_record_is_copied_byte_for_byte(record, tmp_path):
    (report,) = recover(record, tmp_path)
    assert not report.changes.total
    assert report.lost == 0
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {p.name: p.read_bytes() for p in record.iterdir()}


def _check(sound, damaged, copy):
    """Hold a mended copy against the sound record and the damaged one it was made from."""
    before, torn, after = _contents(sound), _contents(damaged), _contents(copy)
    all_bytes = b"".join(torn.values())
    original = {line for content in before.values() for line in content.splitlines()}
    if original >= set(_lines(after, *TEXTS, FileKind.TRAINED)):  # no line became another valid record
        assert validate(copy).good, [str(f) for f in validate(copy).findings.kept]

    # Every text whose bytes are all there is in the copy, once, as it was.
    texts = _lines(after, *TEXTS)
    whole = [line for line in _lines(before, *TEXTS) if line in all_bytes]
    assert [line for line in texts if line in whole] == whole

    # So is every line of the ledger that is there, or whose text is. Where a text has other numbers, they win.
    ledger = {ledger_from_line(line).group_id: line for line in _lines(after, FileKind.LEDGER)}
    kept = {from_line(line).group_id for line in whole}
    changed = {from_line(line).group_id for line in texts if line not in whole}
    for line in _lines(before, FileKind.LEDGER):
        entry = ledger_from_line(line)
        if entry.group_id in kept:
            assert ledger[entry.group_id] == line
        elif line in all_bytes and entry.group_id not in changed:
            assert ledger_from_line(ledger[entry.group_id]).rollouts == entry.rollouts


@pytest.mark.parametrize("kind", [FileKind.ROLLOUTS, FileKind.LEDGER, FileKind.TRAINED, FileKind.LEVELS])
def test_truncated_at_every_byte_of_the_last_two_lines(tmp_path, kind):
    """Losing the end of a file costs the groups that were in it, to the byte. Short lines: there are many bytes."""
    damaged, copy = tmp_path / "damaged", tmp_path / "copy"
    short = rollout(conversation=[{"role": "assistant", "content": "<"}], response_tokens=1)
    groups = [group(k, [short], entry="{}", task_config="{}", task="t", item_id="t", item="i") for k in range(3)]
    with DumpWriter(damaged, RUN_ID, 1) as writer:
        assert writer.submit(groups).result(10)
        assert writer.submit([TrainedRecord(RUN_ID, 1, 1, g.group_id, 1) for g in groups]).result(10)
        assert writer.submit([move(1), move(2, 0.35, 0.3, lower=None)]).result(10)
    sound = _contents(damaged)
    names = {parse_name(Path(name)).kind: name for name in sound}
    lines = {each: sound[name].splitlines() for each, name in names.items()}
    victim, content = damaged / names[kind], sound[names[kind]]
    for end in range(len(lines[kind][0]) + 1, len(content)):
        victim.write_bytes(content[:end])
        recover(damaged, copy)
        mended = {each: (copy / name).read_bytes().splitlines() for each, name in names.items()}
        whole = [line for line in lines[kind] if line in content[:end]]
        if kind is not FileKind.LEDGER:  # a ledger comes back from the texts
            assert mended.pop(kind) == whole
        if kind is FileKind.ROLLOUTS:
            reasons = [ledger_from_line(line).text_reason for line in mended.pop(FileKind.LEDGER)]
            assert reasons == [None] * len(whole) + [NotKept.LOST] * (3 - len(whole))
        assert mended == {each: lines[each] for each in mended}
        assert validate(copy).good
        shutil.rmtree(copy)


damages = st.lists(
    st.tuples(
        st.sampled_from(["nul", "insert_nul", "cut", "glue", "truncate", "repeat", "tear"]),
        st.integers(0, 100),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 2000),
    ),
    min_size=1,
    max_size=4,
)


def _damage(folder, how, number, where, length):
    files = list_files(folder)
    if not files:
        return
    path = files[number % len(files)].path
    content = path.read_bytes()
    at = int(where * len(content))
    lines = content.splitlines(keepends=True)
    k = int(where * len(lines))
    match how:
        case "nul":
            content = content[:at] + b"\0" * len(content[at : at + length]) + content[at + length :]
        case "insert_nul":
            content = content[:at] + b"\0" * length + content[at:]
        case "cut":
            content = content[:at] + content[at + length :]
        case "truncate":
            content = content[:at]
        case "glue":
            content = b"".join(lines[:k]) + b"".join(lines[k : k + 1]).rstrip(b"\n") + b"".join(lines[k + 1 :])
        case "tear":  # the head of a line before the whole of it
            content = b"".join(lines[:k]) + b"".join(lines[k : k + 1])[:length] + b"".join(lines[k:])
        case "repeat":
            content = b"".join(lines[: k + 1]) + b"".join(lines[k:])
    path.write_bytes(content)


@settings(max_examples=60)
@example([("cut", 10, 0.5625, 1)])  # a digit of a run id, in a line that stays whole as JSON
@given(damages)
@example([("glue", 0, 0.0, 1), ("nul", 1, 0.5, 900)])
@example([("cut", 80, 0.5, 1)])  # a letter of a stop reason in a text
@example([("glue", 82, 0.5, 1), ("nul", 82, 0.5, 1), ("repeat", 82, 0.5, 1)])  # the groups of two steps, again
def test_whatever_is_damaged_every_whole_line_comes_back(record, damage):
    with tempfile.TemporaryDirectory() as folder:
        damaged, copy = Path(folder, "damaged"), Path(folder, "copy")
        shutil.copytree(record, damaged)
        for one in damage:
            _damage(damaged, *one)
        recover(damaged, copy)
        if list_files(copy):
            _check(record, damaged, copy)


def test_a_text_that_lost_a_rollout_does_not_change_the_ledger(tmp_path):
    write_record(tmp_path / "in", attempts=1)
    path = next(file.path for file in list_files(tmp_path / "in") if file.kind is FileKind.ROLLOUTS)
    first, *rest = path.read_bytes().splitlines(keepends=True)
    record = json.loads(first)
    record["rollouts"].pop()
    path.write_bytes(json.dumps(record, separators=(",", ":")).encode() + b"\n" + b"".join(rest))
    (report,) = recover(tmp_path / "in", tmp_path / "out")
    assert report.lost == 1
    assert validate(tmp_path / "out").good
    ledgers = [_lines(_contents(tmp_path / name), FileKind.LEDGER) for name in ("in", "out")]
    before, after = ([ledger_from_line(line) for line in lines] for lines in ledgers)
    assert [one.text_reason for one in after if one.group_id == record["group_id"]] == [NotKept.LOST]
    lost = {"text": None, "text_reason": NotKept.LOST}
    assert after == [replace(one, **lost) if one.group_id == record["group_id"] else one for one in before]


def test_two_records_on_a_line_and_a_torn_head_before_a_whole_one(tmp_path):
    whole = [to_line(group(k)).rstrip() for k in range(4)]
    path = tmp_path / "in" / f"reasoning_gym_environment_rollouts_{RUN_ID}_0000.jsonl"
    path.parent.mkdir()
    torn = to_line(group(9))
    path.write_bytes(whole[0] + whole[1] + b"\n" + torn[:200] + whole[2] + torn[-50:] + b"\0\0\0" + whole[3] + b"\0\n")
    (report,) = recover(path.parent, tmp_path / "out")
    assert (tmp_path / "out" / path.name).read_bytes().splitlines() == whole
    assert report.changes.counts[Change.SAVED] == 3
    assert report.changes.counts[Change.DAMAGED] == 1
    assert [line["uid"] for line in lines_of(tmp_path / "out", FileKind.LEDGER)] == ["0", "1", "2", "3"]


def test_a_lost_ledger_is_made_anew_in_the_order_of_the_calls(record, tmp_path):
    damaged, copy = tmp_path / "damaged", tmp_path / "copy"
    shutil.copytree(record, damaged)
    victims = [file.path for file in list_files(damaged) if file.kind is FileKind.LEDGER]
    for path in victims:
        path.unlink()
    (report,) = recover(damaged, copy)
    assert report.changes.counts[Change.LEDGER_MADE] == report.texts == report.ledger_lines
    assert validate(copy).good
    assert max(len(file.path.read_bytes().splitlines()) for file in list_files(copy)) == 4  # groups_per_file


def test_numbers_that_differ_follow_the_text(record, tmp_path):
    damaged, copy = tmp_path / "damaged", tmp_path / "copy"
    shutil.copytree(record, damaged)
    path = next(file.path for file in list_files(damaged) if file.kind is FileKind.LEDGER)
    path.write_bytes(path.read_bytes().replace(b'"response_tokens":[', b'"response_tokens":[7', 1))
    (report,) = recover(damaged, copy)
    assert dict(report.changes.counts) == {Change.LEDGER_REPLACED: 1}
    assert _contents(copy) == _contents(record)


def test_missing_and_empty_batches_leave_no_gap(record, tmp_path):
    damaged, copy = tmp_path / "damaged", tmp_path / "copy"
    shutil.copytree(record, damaged)
    first, second, *_ = [file.path for file in list_files(damaged) if file.kind is FileKind.ROLLOUTS]
    first.unlink()
    second.write_bytes(b"")
    (report,) = recover(damaged, copy)
    assert report.changes.counts[Change.EMPTY] == 1
    assert report.changes.counts[Change.TEXT_LOST] > 0
    assert validate(copy).good


def test_what_was_being_filled_gets_its_name_and_compressed_stays_compressed(record, tmp_path):
    damaged, copy = tmp_path / "damaged", tmp_path / "copy"
    shutil.copytree(record, damaged)
    first, *_, last = [file.path for file in list_files(damaged) if file.kind is FileKind.ROLLOUTS]
    compress(first)
    last.rename(last.with_name(last.name + ".part"))
    (report,) = recover(damaged, copy)
    assert dict(report.changes.counts) == {Change.RENAMED: 1}
    assert last.name in {path.name for path in copy.iterdir()}
    zst = copy / (first.name + ".zst")
    with open_lines(zst) as lines:
        assert lines.read() == (record / first.name).read_bytes()
    assert validate(copy).good


def test_a_torn_compressed_batch_costs_itself_and_not_its_numbers(record, tmp_path):
    damaged, copy = tmp_path / "damaged", tmp_path / "copy"
    shutil.copytree(record, damaged)
    path = compress(next(file.path for file in list_files(damaged) if file.kind is FileKind.ROLLOUTS))
    path.write_bytes(path.read_bytes()[:-9])
    assert not validate(damaged).good
    (report,) = recover(damaged, copy)
    assert report.changes.counts[Change.UNREADABLE] == 1
    assert report.ledger_lines == len(_lines(_contents(record), FileKind.LEDGER))
    assert validate(copy).good


def test_an_atropos_file_is_mended_line_by_line(tmp_path):
    line = b'{"item_id": "gcd", "rollouts": [{"conversation": [{"role": "user", "content": "q"}], "score": 1.0}]}'
    path = tmp_path / "old.jsonl"
    path.write_bytes(line + b"\n" + line[:30] + line + b"\n\0\0\0" + line)
    recover(path, tmp_path / "out")
    (copy,) = (tmp_path / "out").iterdir()
    assert copy.read_bytes() == (line + b"\n") * 3


def test_a_newer_schema_is_refused_and_nothing_is_written(record, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(record, damaged)
    path = list_files(damaged)[-1].path
    path.write_bytes(path.read_bytes().replace(b'"schema_version":1', b'"schema_version":999'))
    with pytest.raises(NewerSchemaError, match=rf"{path.name}, line 1: .*999.*update rg_env"):
        recover(damaged, tmp_path / "copy")
    with pytest.raises(NewerSchemaError):
        validate(damaged)


def test_a_copy_never_goes_over_a_dump(record, tmp_path):
    with pytest.raises(DumpError, match="choose an empty folder"):
        recover(record, record)


def test_the_ledger_line_of_a_text_is_what_the_writer_writes(record):
    """`recover` makes ledger lines from texts: those must be the writer's, to the byte."""
    ledger = set(_lines(_contents(record), FileKind.LEDGER))
    for name, content in _contents(record).items():
        kind = parse_name(Path(name)).kind
        if kind.holds_text:
            for line in content.splitlines():
                assert to_line(LedgerRecord.of(from_line(line), kind, None)).rstrip() in ledger
