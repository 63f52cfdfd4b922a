"""Which dump a path means: completed where nothing is left to choose, suggested after a typing error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rg_env.base.errors import DumpError
from rg_env.cli import app
from rg_env.dump.locate import locate

LONG = "x" * 300
"""A name that no file can have."""
SAMPLE = Path(__file__).parents[2] / "dumps" / "sample"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Two runs as `rg-env train` leaves them, one of them with an evaluation, and the link to the newest."""
    monkeypatch.chdir(tmp_path)
    for name in ("quickstart-20261123-1/dumps", "other/dumps", "other/eval-20261123-2", "alone/deep/own"):
        shutil.copytree(SAMPLE, Path("runs", name))
    Path("runs/quickstart").symlink_to("quickstart-20261123-1")
    Path("runs/empty").mkdir()
    Path("runs/alone/unreadable").symlink_to(LONG)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("runs/quickstart/dumps", "runs/quickstart/dumps"),
        ("runs/quickstart", "runs/quickstart/dumps"),
        ("quickstart", "runs/quickstart/dumps"),
        ("quickstart/dumps", "runs/quickstart/dumps"),
        ("other", "runs/other/dumps"),  # the run's own, not that of its evaluation
        ("other/eval-20261123-2", "runs/other/eval-20261123-2"),
        ("runs/alone", "runs/alone/deep/own"),
        ("runs", "runs"),  # several: the error of the reader names them
        ("runs/empty", "runs/empty"),
        ("nothing/like/it", "nothing/like/it"),
        (LONG, LONG),
        (f"runs/{LONG}/dumps", f"runs/{LONG}/dumps"),
    ],
)
def test_a_path_that_leaves_nothing_to_choose_is_completed(here, typed, meant):
    assert locate(Path(typed)) == Path(meant)


@pytest.mark.parametrize("typed", ["runs/quikstart/dumps", "quikstart", "runs/quikstart", "qickstart/dump"])
def test_a_typing_error_is_answered_with_the_dump_that_is_there(here, typed):
    with pytest.raises(DumpError, match=rf"^{typed} does not exist; did you mean runs/quickstart/dumps\?$"):
        locate(Path(typed))


@pytest.mark.parametrize("command", ["dumps stats", "dumps validate", "runs", "dumps import trl --out new"])
def test_a_path_that_cannot_be_asked_for_is_a_mistake(here, command):
    error = CliRunner().invoke(app, [*command.split(), LONG]).exception
    assert isinstance(error, DumpError) and str(error).startswith(LONG)


def test_commands_complete_their_paths_and_say_so(here):
    for command in (["stats"], ["show", "--plain"], ["validate"], ["signs"]):
        done = CliRunner().invoke(app, ["dumps", *command, "quickstart"])
        assert done.exit_code == 0
        assert "reading runs/quickstart/dumps" in done.stderr
    compared = CliRunner().invoke(app, ["dumps", "stats", "quickstart", "--against", "other"])
    assert compared.stderr.splitlines()[:2] == [
        "rg-env: reading runs/quickstart/dumps",
        "rg-env: reading runs/other/dumps",
    ]
