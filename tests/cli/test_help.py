"""`--help` of every command: what it is for, examples that the command line accepts, within 80 columns."""

from __future__ import annotations

import re
import shlex

import pytest
import typer
from typer.testing import CliRunner

from rg_env.cli import app


def commands():
    found = [((), typer.main.get_command(app))]
    for path, command in found:
        found += [((*path, name), child) for name, child in getattr(command, "commands", {}).items()]
    return dict(found)


def examples_of(command):
    text = command.epilog.partition("\n")[2].replace("\\\n", " ").replace("\\[", "[")
    return [shlex.split(line) for line in text.splitlines()]


def own_part(words):
    """The words of the `rg-env` command in a pipeline."""
    start = words.index("rg-env")
    end = words.index("|", start) if "|" in words[start:] else None
    return words[start + 1 : end]


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_says_what_it_is_for_and_has_examples(path, tmp_path, monkeypatch):
    command = commands()[path]
    purpose = command.help.partition("\n\n")[0]
    assert re.fullmatch(r"[A-Z].{10,}\.", purpose)
    (tmp_path / "results" / "openai_o3-mini").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    examples = examples_of(command)
    assert examples
    for words in examples:
        rest = own_part(words)
        assert tuple(rest[: len(path)]) == path
        leaf, context = commands()[()], None
        while hasattr(leaf, "commands"):
            leaf = leaf.commands[rest.pop(0)]
        context = leaf.make_context("rg-env", rest)  # parses the arguments: an unknown option raises
        assert not [word for word in context.params.get("settings") or () if word.startswith("-")]


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_help_fits_80_columns(path):
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"}).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown, "a word was cut off"
    joined = re.sub(r"\s+", " ", shown)
    for words in commands()[path].epilog.replace("\\[", "[").splitlines()[1:]:
        assert words.strip().rstrip("\\").strip() in joined
    assert not re.search(r"<(bool|int|float|str|path|list)[> \[]", shown)
    assert path != ("train",) or "train [OPTIONS] [CONFIG.yaml | KEY=VALUE]..." in shown
    for parameter in commands()[path].params:
        assert parameter.name == "help" or parameter.help or parameter.name == "ctx", parameter.name


@pytest.mark.parametrize(
    ("args", "suggested"),
    [
        (("stats",), "`rg-env dumps stats`"),
        (("stats", "dumps/sample", "--by", "step"), "`rg-env dumps stats`"),
        (("valdate",), "`rg-env dumps validate`"),
        (("sft",), "`rg-env dumps export sft`"),
        (("trian",), "`rg-env train`"),
        (("dumps", "stat"), "`rg-env dumps stats`"),
        (("dumps", "tasks"), "`rg-env tasks`"),
        (("attak",), "`rg-env attack`"),
        (("dumps", "export", "xyz"), "use one of sft, dpo"),
    ],
)
def test_an_unknown_command_gets_a_suggestion(args, suggested):
    done = CliRunner().invoke(app, args, prog_name="rg-env", env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert suggested in done.output
