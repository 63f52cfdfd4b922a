"""`--help` of every command: what it is for, examples that the command line accepts, within 80 columns."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.cli.base import commands_of


def commands():
    pairs = [((), typer.main.get_command(app))]
    for path, command in pairs:
        pairs += [((*path, name), child) for name, child in commands_of(command).items()]
    return dict(pairs)


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_a_command_says_what_it_is_for_and_its_examples_are_accepted(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = commands()[path]
    assert re.fullmatch(r"[A-Z].{10,}\.", command.help.partition("\n\n")[0])
    assert all(option.name in ("help", "ctx") or option.help for option in command.params)
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"}).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown, "a word was cut off"
    assert not re.search(r"<(bool|int|float|str|path|list)[> \[]", shown)
    assert path != ("train",) or "train [OPTIONS] [CONFIG.yaml | KEY=VALUE]..." in re.sub(r"\s+", " ", shown)
    examples = command.epilog.partition("\n")[2].replace("\\[", "[")
    assert all(line.strip(" \\") in re.sub(r"\s+", " ", shown) for line in examples.splitlines())
    for line in examples.replace("\\\n", " ").splitlines():
        words = shlex.split(line)
        words = words[words.index("rg-env") + 1 :]  # behind a pipe
        assert tuple(words[: len(path)]) == path
        leaf = commands()[()]
        while hasattr(leaf, "commands"):
            leaf = commands_of(leaf)[words.pop(0)]
        context = leaf.make_context("rg-env", words)  # an unknown option raises
        assert not [word for word in context.params.get("settings") or () if word.startswith("-")]


def complete(line):
    """What bash offers after a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    env = {"_RG_ENV_COMPLETE": "complete_bash", **words}
    return CliRunner().invoke(app, [], prog_name="rg-env", env=env).stdout.split()


def test_the_shell_completes_commands_options_and_choices():
    assert complete("rg-env du") == ["dumps"]
    assert complete("rg-env dumps re") == ["report", "rescore"]
    assert complete("rg-env dumps stats --again") == ["--against"]
    assert complete("rg-env dumps stats x --by p") == ["phase"]
    assert complete("rg-env eval --suite rg_") == ["rg_easy", "rg_hard"]
    assert complete("rg-env train configs/") == []


def test_lists_of_commands_show_what_each_command_says_of_itself():
    listed = typer.main.get_command(app).commands
    helps = {name: command.help for name, command in listed.items()}
    assert commands_of(typer.main.get_command(app)).keys() == helps.keys()
    for (name, *deeper), command in list(commands().items())[1:]:
        assert deeper or command.help.partition("\n\n")[0] == helps[name].partition("\n\n")[0]


def test_a_command_imports_no_module_of_another():
    code = "import sys; from rg_env.cli import main; sys.argv = ['rg-env', '--help']; "
    code += "\ntry: main()\nfinally: print(sorted(name for name in sys.modules if name.startswith('rg_env.cli.')))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == str([f"rg_env.cli.{name}" for name in ("app", "base", "options")])
