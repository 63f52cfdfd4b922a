"""`rg-env dumps validate` as a person types it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.dump.files import list_files
from tests.dump.repair.damage import write_record


def invoke(*args):
    return CliRunner().invoke(app, ["dumps", *map(str, args)])


@pytest.fixture
def torn(tmp_path):
    folder = tmp_path / "dump"
    write_record(folder)
    path = list_files(folder)[0].path
    path.write_bytes(path.read_bytes()[:-9])
    return path


def test_a_sound_record_is_exit_code_0(tmp_path):
    write_record(tmp_path)
    done = invoke("validate", tmp_path)
    assert done.exit_code == 0
    assert "7 ledger lines, 6 texts: no problems found" in done.stdout


def test_findings_say_where_what_and_what_to_do(torn):
    done = invoke("validate", torn.parent)
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{torn.name}, line 2: torn or joined")
    assert "(readers skip it)" in done.stdout
    shown = json.loads(invoke("validate", torn.parent, "--json").stdout)
    assert shown["good"] is False
    assert shown["counts"] == {"damaged_line": 1, "no_text": 1}
    first = shown["findings"][0]
    assert (first["file"], first["line"], bool(first["advice"])) == (torn.name, 2, True)
