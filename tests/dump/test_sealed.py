"""The place of a text in the ledger, and sealed files: a group is opened at its place, and never another one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from backports import zstd
from typer.testing import CliRunner

from rg_env.base.errors import DumpError
from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, DumpWriter, FileKind, open_run
from rg_env.dump import sealed as sealing
from rg_env.dump.contents import Contents
from rg_env.dump.files import list_files
from rg_env.dump.sealed import seal
from tests.dump.records import RUN_ID, group, lines_of, manifest, rollout, write_manifest

SIZE = 40


def _long(number: int) -> list:
    """Rollouts of which no two groups compress to the same."""
    text = " ".join(str(number * 7919 + k * k) for k in range(3000))
    talk = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": text}]
    return [rollout(float(number % 2), k, conversation=talk) for k in range(2)]


@pytest.fixture
def folder(tmp_path) -> Path:
    dump = tmp_path / "dump"
    dump.mkdir()
    write_manifest(dump, RUN_ID, Attempt.read(manifest()))
    with DumpWriter(dump, RUN_ID, 1, RGDumpConfig(groups_per_file=SIZE)) as writer:
        assert writer.submit([group(number, _long(number), step=number) for number in range(SIZE)]).result(10)
    return dump


def _search_is_an_error(monkeypatch) -> None:
    scan = Contents.scan

    def only_the_ledger(self, *kinds, **options):
        assert not any(kind.holds_text for kind in kinds)
        return scan(self, *kinds, **options)

    monkeypatch.setattr(Contents, "scan", only_the_ledger)


def _texts(folder: Path) -> list[Path]:
    return [file.path for file in list_files(folder) if file.kind.holds_text]


def test_every_ledger_line_names_the_place_of_its_text(folder):
    for line in lines_of(folder, FileKind.LEDGER):
        (path,) = [
            file.path for file in list_files(folder) if (file.kind, file.batch) == (line["text"], line["text_file"])
        ]
        with path.open("rb") as file:
            file.seek(line["text_at"])
            assert json.loads(file.readline())["group_id"] == line["group_id"]


def test_a_text_that_is_in_no_file_has_no_place(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1, RGDumpConfig(dump_rollouts=False)) as writer:
        assert writer.submit([group(0)]).result(10)
    (line,) = lines_of(tmp_path, FileKind.LEDGER)
    assert line["text"] == "" and line["text_file"] is None and line["text_at"] is None


def test_a_ledger_that_was_completed_after_a_kill_names_places_too(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert writer.submit([group(number) for number in range(3)]).result(10)
    (path,) = _texts(tmp_path)
    path.rename(path.with_name(path.name + ".part"))  # as a kill between text and ledger line leaves it
    for file in list_files(tmp_path):
        if file.kind is FileKind.LEDGER:
            file.path.unlink()
    with DumpWriter(tmp_path, RUN_ID, 2):
        pass
    assert [line["text_at"] is not None for line in lines_of(tmp_path, FileKind.LEDGER)] == [True] * 3
    test_every_ledger_line_names_the_place_of_its_text(tmp_path)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_group_is_opened_without_a_search(folder, is_sealed, monkeypatch):
    if is_sealed:
        seal(folder)
    _search_is_an_error(monkeypatch)
    dump = open_run(folder)
    for number in (SIZE - 1, 0, 17):
        found = dump.text(RUN_ID, group(number).group_id)
        assert found is not None and found.rollouts == _long(number)


def test_a_group_is_opened_by_the_place_of_its_row(folder, monkeypatch):
    rows = open_run(folder).ledger_frame().unique("group_id", maintain_order=True)
    dump = open_run(folder)
    monkeypatch.setattr(Contents, "scan", lambda self, *kinds, **options: pytest.fail("nothing but the line is read"))
    for row in rows.select("group_id", "text", "text_file", "text_at").iter_rows():
        found = dump.text(RUN_ID, row[0], row[1:])
        assert found is not None and found.group_id == row[0]


def _moved(path: Path) -> None:
    path.rename(path.with_name(path.name.replace("_0000", "_0007")))


def _reversed(path: Path) -> None:
    path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(keepends=True))))


def _longer(path: Path) -> None:
    path.write_bytes(b"\n\n" + path.read_bytes())


def _torn(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"item"', b'"item', 1))


def _compressed(path: Path) -> None:
    path.with_name(path.name + ".zst").write_bytes(zstd.compress(path.read_bytes()))
    path.unlink()


@pytest.mark.parametrize("change", [_moved, _reversed, _longer, _torn, _compressed])
def test_what_was_moved_or_changed_is_searched_and_never_taken_for_another(folder, change):
    for path in _texts(folder):
        change(path)
    dump = open_run(folder)
    for number in range(SIZE):
        found = dump.text(RUN_ID, group(number).group_id)
        if found is None:
            assert change is _torn and number in (0, 1), "the first line of each file"
        else:
            assert found.rollouts == _long(number)


def test_a_sealed_dump_is_the_same_dump_for_every_reader(folder, tmp_path):
    before = CliRunner().invoke(app, ["dumps", "stats", str(folder), "--json"]).stdout
    plain = {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}
    done = CliRunner().invoke(app, ["dumps", "seal", str(folder)])
    assert done.exit_code == 0 and f"{len(plain)} files sealed" in done.stdout
    assert not list(folder.glob("*.jsonl"))
    unpacked = {path.name: zstd.decompress(path.read_bytes()) for path in folder.glob("*.jsonl.zst")}
    assert unpacked == {f"{name}.zst": content for name, content in plain.items()}
    assert CliRunner().invoke(app, ["dumps", "stats", str(folder), "--json"]).stdout == before
    assert CliRunner().invoke(app, ["dumps", "validate", str(folder)]).exit_code == 0
    assert "no plain file to seal" in CliRunner().invoke(app, ["dumps", "seal", str(folder)]).stdout


def test_of_a_sealed_file_only_the_part_with_the_group_is_read(folder):
    """Everything before it may even be corrupt."""
    seal(folder)
    (path,) = [path for path in _texts(folder) if "FAILED" in path.name]
    content = bytearray(path.read_bytes())
    content[100:2000] = bytes(1900)
    path.write_bytes(content)
    last = max(int(line["uid"]) for line in lines_of_sealed(folder) if "FAILED" in line["text"])
    found = open_run(folder).text(RUN_ID, group(last).group_id)
    assert found is not None and found.rollouts == _long(last)


def lines_of_sealed(folder: Path) -> list[dict]:
    (path,) = folder.glob("*_ledger_*.zst")
    return [json.loads(line) for line in zstd.decompress(path.read_bytes()).splitlines()]


def test_a_corrupt_table_costs_no_group(folder):
    seal(folder)
    for path in folder.glob("*.zst"):
        content = bytearray(path.read_bytes())
        content[-40:-20] = bytes(20)
        path.write_bytes(content)
    dump = open_run(folder)
    for number in range(SIZE):
        found = dump.text(RUN_ID, group(number).group_id)
        assert found is not None and found.rollouts == _long(number)


def test_a_kill_while_sealing_costs_nothing_and_the_next_call_goes_on(folder, monkeypatch):
    plain = {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}

    def killed(path, sealed):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(sealing, "_is_equal", killed)
        seal(folder)
    assert {path.name: path.read_bytes() for path in folder.glob("*.jsonl")} == plain
    result = seal(folder)
    assert result.files == len(plain) and not list(folder.glob("*.jsonl"))


def test_a_sealed_file_that_differs_replaces_nothing(folder):
    path = _texts(folder)[0]
    path.with_name(path.name + ".zst").write_bytes(zstd.compress(b"other\n"))
    with pytest.raises(DumpError, match="differs"):
        seal(path)
    assert path.exists()


def test_an_open_file_stays(folder):
    path = _texts(folder)[0]
    part = path.with_name(path.name + ".part")
    shutil.move(path, part)
    result = seal(folder)
    assert result.still_open == 1 and part.exists()
