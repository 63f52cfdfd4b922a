"""A writing process is killed with SIGKILL before, in and after every file operation it makes.

Another process holds what `write()` had acknowledged: each of these groups must be there once, whole, in order, as the
killed process left the files and as the next attempt finds them. See `dying.py` for how it is done.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rg_env.dump import FileKind, from_line, open_lines, open_run
from rg_env.dump.files import DumpFile, list_files
from rg_env.dump.manifest import read_manifest
from rg_env.dump.validate import validate
from tests.dump.write.dying import Death, DyingWriters, Life, Moment, uids_of

THREADS = ("MainThread", "writer")


@pytest.fixture(scope="module")
def writers() -> Iterator[DyingWriters]:
    with DyingWriters() as started:
        yield started


def _records(file: DumpFile) -> list:
    """Strict but for a torn last line of a file that was being filled."""
    with open_lines(file.path) as opened:
        lines = opened.read().splitlines(keepends=True)
    if file.is_open and lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    assert lines or file.is_open, f"{file.path.name} is empty"
    return [from_line(file.kind.record, line) for line in lines]


def _check(folder: Path, acknowledged: list[str], trained: list[str]) -> None:
    """All of it is there once and in order. Where more is there than was acknowledged, it is whole too."""
    files = list_files(folder / "dumps") if (folder / "dumps").is_dir() else []
    records = {kind: [r for file in files if file.kind is kind for r in _records(file)] for kind in FileKind}
    ledger = [record.uid for record in records[FileKind.LEDGER]]
    promised = set(acknowledged)
    assert [uid for uid in ledger if uid in promised] == acknowledged
    assert max(Counter(ledger).values(), default=1) == 1
    kept = [record.uid for kind in FileKind if kind.holds_text for record in records[kind]]
    assert max(Counter(kept).values(), default=1) == 1
    assert set(kept) >= {record.uid for record in records[FileKind.LEDGER] if record.text}
    noted = [record.group_id for record in records[FileKind.TRAINED]]
    assert [group for group in noted if group in set(trained)] == trained
    assert max(Counter(noted).values(), default=1) == 1


def _check_after_next_attempt(folder: Path, writers: DyingWriters, start: int, *lives: Life) -> None:
    """The run is resumed; nothing of the earlier deaths is to be seen afterwards."""
    last = writers.live(folder, start, calls=1)
    assert last.acknowledged == uids_of(start, 0)
    lives = (*lives, last)
    _check(folder, [uid for life in lives for uid in life.acknowledged], [g for life in lives for g in life.trained])
    dump = open_run(folder / "dumps")
    ledger = {record.uid: record.text for record in dump.all_attempts().ledger()}
    texts = {record.uid for record in dump.all_attempts().groups()}
    assert texts == {uid for uid, kind in ledger.items() if kind}
    assert not dump.findings().counts["corrupt_line"]
    assert {path.suffix for path in (folder / "dumps").iterdir() if not path.name.startswith(".")} == {
        ".jsonl",
        ".json",
    }
    for run in dump.runs:
        assert read_manifest(folder / "dumps", run.run_id).attempts
    validation = validate(folder / "dumps")
    assert validation.good, validation.kept


def _deaths(operations: dict[str, list[str]]) -> list[Death]:
    """Before every operation, and within every write. `fsync` changes nothing that a kill leaves."""
    return [
        Death(thread, number, moment)
        for thread, names in operations.items()
        for number, name in enumerate(names, 1)
        for moment in Moment
        if (name in ("write", "pwrite") if moment is Moment.HALF else number == 1 or names[number - 2] != "fsync")
    ]


@pytest.mark.long
@pytest.mark.parametrize("thread", THREADS)
def test_killed_at_every_file_operation(ram_folder, writers, thread):
    """Through rotations, and the start and the end of a run."""
    whole = writers.live(ram_folder / "whole", 1, calls=2)
    assert not whole.unseen
    assert set(whole.operations) == set(THREADS)
    deaths = [death for death in _deaths(whole.operations) if death.thread == thread]
    assert len(deaths) > 20
    survived = 0
    for number, death in enumerate(deaths):
        place = ram_folder / str(number)
        life = writers.live(place, 1, calls=2, death=death)
        survived += not life.killed  # records that are written together take fewer operations than one after the other
        _check(place, life.acknowledged, life.trained)
        _check_after_next_attempt(place, writers, 2, life)
        shutil.rmtree(place)
    assert survived < len(deaths) / 5


@pytest.mark.long
def test_a_recovery_killed_at_every_file_operation(ram_folder, writers):
    """Of states that a kill leaves behind: half a text, half a ledger line."""
    whole = writers.live(ram_folder / "whole", 1, calls=2)
    half_written = [death for death in _deaths(whole.operations) if death.moment is Moment.HALF]
    _, text, ledger = [death for death in half_written if death.thread == "writer"][:3]
    for state, first_death in enumerate([text, ledger]):
        left = ram_folder / f"left-{state}"
        first = writers.live(left, 1, calls=2, death=first_death)
        shutil.copytree(left, ram_folder / f"resumed-{state}")
        resumed = writers.live(ram_folder / f"resumed-{state}", 2, calls=1)
        assert not resumed.unseen
        deaths = [death for death in _deaths(resumed.operations) if death.thread == "MainThread"]
        for number, death in enumerate(deaths):
            place = ram_folder / f"{state}-{number}"
            shutil.copytree(left, place)
            second = writers.live(place, 2, calls=1, death=death)
            assert second.killed, death
            _check(place, first.acknowledged + second.acknowledged, first.trained + second.trained)
            _check_after_next_attempt(place, writers, 3, first, second)
            shutil.rmtree(place)
