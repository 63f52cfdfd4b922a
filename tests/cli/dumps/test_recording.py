"""`rg-env dumps validate` and `recover` as a person types them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.dump.files import list_files
from rg_env.errors import RGEnvError
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
    assert invoke("recover", tmp_path, "--in-place").exit_code == 0


def test_findings_say_where_what_and_what_to_do(torn):
    done = invoke("validate", torn.parent)
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{torn.name}, line 2: torn: ")
    assert "`rg-env dumps recover` saves what is whole in it" in done.stdout
    shown = json.loads(invoke("validate", torn.parent, "--json").stdout)
    assert shown["good"] is False
    assert shown["counts"] == {"damaged_line": 1, "no_text": 1}
    first = shown["findings"][0]
    assert (first["file"], first["line"], bool(first["advice"])) == (torn.name, 2, True)


def test_a_mended_copy_says_what_is_lost_and_validates(torn, tmp_path):
    before = torn.read_bytes()
    done = invoke("recover", torn.parent, "--out", tmp_path / "out")
    assert done.exit_code == 1  # a text is gone for good
    assert "1 lost" in done.stdout
    assert "checked: no problems found" in done.stdout
    assert torn.read_bytes() == before
    assert invoke("validate", tmp_path / "out").exit_code == 0
    shown = json.loads(invoke("recover", torn.parent, "--in-place", "--json").stdout)
    assert shown["runs"][0]["counts"]["text_lost"] == 1
    assert shown["still_wrong"] == []
    assert shown["damaged_files"].startswith(str(torn.parent / "damaged-"))


@pytest.mark.parametrize("args", [(), ("--out", "x", "--in-place")])
def test_recover_asks_where_the_copy_goes(torn, args):
    error = invoke("recover", torn.parent, *args).exception
    assert isinstance(error, RGEnvError)
    assert "--out DIR" in str(error)


def test_a_single_file_is_mended_and_checked_for_itself(torn, tmp_path):
    done = invoke("recover", torn, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "checked: no problems found" in done.stdout
    assert "1 texts" in done.stdout
    noise = tmp_path / "noise.jsonl"
    noise.write_bytes(b"{\0\n")
    assert "no copy was written" in invoke("recover", noise, "--out", tmp_path / "none").stdout
