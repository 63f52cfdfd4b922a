"""Broken and hostile dump folders: each command ends with one clear line, in bounded memory and time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from backports import zstd
from typer.main import get_command
from typer.testing import CliRunner

from rg_env.base.errors import RGEnvError
from rg_env.cli import app
from rg_env.cli.base import commands_of
from rg_env.dump import FileKind
from rg_env.dump import files as dump_files
from rg_env.dump.files import batch_name, lock_name, manifest_name
from tests.analysis.samples import write_ledger, write_texts
from tests.dump.records import RUN_ID, group
from tests.running import run_program

TEXTS, NEXT = batch_name(FileKind.ROLLOUTS, RUN_ID, 0), batch_name(FileKind.ROLLOUTS, RUN_ID, 1)
DEEP = b"[" * 200_000
LONGEST = 1 << 18
"""Bytes of a line, in this test."""


def deep_entry(folder: Path) -> None:
    write_texts(folder, [group(k, entry=DEEP.decode(), task_config=DEEP.decode(), step=k) for k in range(3)])


def repeated(data: bytes, times: int) -> bytes:
    """Compressed data of this many times the bytes."""
    return zstd.compress(data) * times


CASES = {
    "a manifest of brackets": lambda folder: (folder / manifest_name(RUN_ID)).write_bytes(DEEP),
    "a manifest that is a FIFO": lambda folder: os.mkfifo(folder / manifest_name(RUN_ID)),
    "a manifest that is a link to itself": lambda folder: (folder / manifest_name(RUN_ID)).symlink_to(
        manifest_name(RUN_ID)
    ),
    "a manifest without end": lambda folder: (folder / manifest_name(RUN_ID)).symlink_to("/dev/zero"),
    "a link to itself": lambda folder: (folder / NEXT).symlink_to(NEXT),
    "a FIFO": lambda folder: os.mkfifo(folder / NEXT),
    "a folder": lambda folder: (folder / NEXT).mkdir(),
    "a device": lambda folder: (folder / NEXT).symlink_to("/dev/zero"),
    "a lock that is a FIFO": lambda folder: os.mkfifo(folder / lock_name(RUN_ID)),
    "a line of brackets": lambda folder: (folder / NEXT).write_bytes(DEEP + b"\n"),
    "an entry of brackets": deep_entry,
    "a long line": lambda folder: (folder / NEXT).write_bytes(b"x" * 2 * LONGEST),
    "a long line, compressed": lambda folder: (folder / f"{NEXT}.zst").write_bytes(repeated(b"x" * LONGEST, 2)),
    "many empty lines": lambda folder: (folder / NEXT).write_bytes(b"\n" * 2 * LONGEST),
    "many empty lines, compressed": lambda folder: (folder / f"{NEXT}.zst").write_bytes(repeated(b"\n" * LONGEST, 2)),
}
TOO_LONG = "more than 262144 bytes without a record; the rest of the file is lost"
WRONG = {
    "a manifest of brackets": (manifest_name(RUN_ID), "not a JSON object"),
    "a manifest that is a FIFO": (manifest_name(RUN_ID), "not a JSON object"),
    "a manifest that is a link to itself": (manifest_name(RUN_ID), "not a JSON object"),
    "a manifest without end": (manifest_name(RUN_ID), "not a JSON object"),
    "a link to itself": (NEXT, "Too many levels of symbolic links"),
    "a FIFO": (NEXT, "not a regular file"),
    "a folder": (NEXT, "Is a directory"),
    "a device": (NEXT, "not a regular file"),
    "a lock that is a FIFO": ("no ledger found", ""),
    "a line of brackets": (f"{NEXT}, line 1", "Expected `object`, got `array`"),
    "an entry of brackets": (f"{TEXTS}, line 2", TOO_LONG),
    "a long line": (f"{NEXT}, line 1", TOO_LONG),
    "a long line, compressed": (f"{NEXT}.zst, line 1", TOO_LONG),
    "many empty lines": (f"{NEXT}, line 1", TOO_LONG),
    "many empty lines, compressed": (f"{NEXT}.zst, line 1", TOO_LONG),
}
"""Where and what the commands say, in one line."""
READERS = ("stats", "show", "signs", "report", "export")
COMMANDS = {
    "stats": ["stats", "--json"],
    "show": ["show", "--plain"],
    "signs": ["signs"],
    "validate": ["validate"],
    "report": ["report", "--out", "OUT/report.html"],
    "import": ["import", "atropos", "--out", "OUT/imported"],
    "export": ["export", "sft", "--out", "OUT/sft/train.jsonl"],
    "rescore": ["rescore", "--workers", "1", "--json"],
    "seal": ["seal"],
}


def run(command: str, folder: Path, out: Path) -> tuple[str, str]:
    """Standard output and error; an error that the user can fix ends the latter."""
    args = [arg.replace("OUT", str(out)) for arg in COMMANDS[command]]
    at = 2 if command in ("export", "import") else 1
    done = CliRunner().invoke(app, ["dumps", *args[:at], str(folder), *args[at:]])
    assert done.exception is None or isinstance(done.exception, (RGEnvError, SystemExit)), done.exception
    error = str(done.exception) if isinstance(done.exception, RGEnvError) else ""
    return done.stdout, done.stderr + error


def test_no_command_is_missing_here():
    """But for `open`, which serves until it is stopped: tests/page/test_live_page.py has a corrupt dump."""
    named = {args[0] for args in COMMANDS.values()}
    assert named | {"open"} == set(commands_of(commands_of(get_command(app))["dumps"]))


@pytest.mark.parametrize("case", CASES)
def test_every_command_ends_and_says_what_is_wrong(case, tmp_path, monkeypatch):
    monkeypatch.setattr(dump_files, "MAX_LINE", LONGEST)
    folder = tmp_path / "dump"
    write_texts(folder, [group(k, step=k, entry="{}") for k in range(3)])
    CASES[case](folder)
    place, problem = WRONG[case]
    for command in COMMANDS:
        out, err = run(command, folder, tmp_path / command)
        assert out or err, command
        assert len(out + err) < 20_000, command
        of_case = [line for line in (out + err).splitlines() if place in line]
        if command == "validate" or (command in READERS and "manifest" not in case):
            assert len(of_case) == 1 and problem in of_case[0], command


@pytest.mark.parametrize("line", [b"x" * (1 << 20), b"\n" * (1 << 20)], ids=["a line of 3 GB", "a billion empty lines"])
def test_a_bomb_is_read_in_little_memory(line, tmp_path):
    write_ledger(tmp_path, [group(k, step=k) for k in range(3)])
    (tmp_path / f"{TEXTS}.zst").write_bytes(repeated(line, 3000))
    done = run_program("validate_memory", tmp_path)
    assert "more than 268435456 bytes without a record; the rest of the file is lost" in done.stdout
    assert int(done.stdout.split()[-1]) < 1_000_000, "KiB"
