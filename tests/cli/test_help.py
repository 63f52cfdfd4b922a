"""`--help` of every command: what it is for, and an example that the command line accepts."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from rg_env.cli import app


def commands():
    found = [((), typer.main.get_command(app))]
    for path, command in found:
        found += [((*path, name), child) for name, child in getattr(command, "commands", {}).items()]
    return dict(found)


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_says_what_it_is_for_and_has_an_example(path):
    purpose, example = commands()[path].help.split("\n\nExample: ")
    assert re.fullmatch(r"[A-Z].{20,}\.", purpose, re.DOTALL)
    words = shlex.split(example.partition("| ")[2] or example)
    assert tuple(words[: len(path) + 1]) == ("rg-env", *path)
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"}).stdout
    assert "Example: " in shown


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_option_has_a_help_text(path):
    for parameter in commands()[path].params:
        assert parameter.name == "help" or parameter.help or parameter.name == "ctx", parameter.name


def test_help_loads_no_library():
    probe = (
        "import sys; sys.argv = ['rg-env', 'dumps', 'stats', '--help']\n"
        "from rg_env.cli import main\n"
        "try: main()\n"
        "except SystemExit: print([m for m in ('polars', 'pyarrow', 'reasoning_gym', 'textual') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_misspelled_command_gets_a_suggestion():
    done = CliRunner().invoke(app, ["dumps", "stat"])
    assert done.exit_code == 2
    assert "Did you mean 'stats'?" in done.output
