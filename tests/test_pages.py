"""Commands and snippets of README and pages run as printed, except those that a page marks.

They run in a folder with the sample dump as runs, commands of `rg-env` in this process. Of those that do not run,
options are parsed, and the settings of `rg-env train` are checked.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.cli.base import commands_of
from rg_env.evaluate.suites import load_suite
from rg_env.skyrl.cpu import nano_path
from rg_env.skyrl.train_config import load_run
from tests.documents import PAGES, ROOT, blocks, python_blocks, run_page
from tests.evaluate.server import completion, serving

BLOCKS = {page: blocks(page) for page in PAGES}
SHELL = {page: [block for block in found if block.kind == "shell"] for page, found in BLOCKS.items()}
RG_DUMP = "environment.skyrl_gym.rg_dump"
SMALLER = {
    "--groups 1000": "--groups 50",
    "--rows 5000": "--rows 500",
    "--model runs/quickstart/exports": "--model runs/quickstart/exports --items 8",
    "--suite rg_hard --samples 3": "--suite rg_hard --items 4 --samples 3",
}
"""What a page proposes, and how much of it is enough to see that the command runs."""
ONE_STEP = "trainer.max_training_steps=1 trainer.eval_before_train=false trainer.eval_interval=-1"
"""What is enough of a training. Its files go to the folder of the test, as those of a reader go to the reader's."""


def page_id(page):
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A checkout with four runs and the models that a training run exports."""
    for name in ("configs", "examples", "dumps", "rg_env", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("quickstart", "a", "b", "c"):
        shutil.copytree(ROOT / "dumps" / "sample", tmp_path / "runs" / name / "dumps")
    shutil.copytree(nano_path(), tmp_path / "runs" / "quickstart" / "exports" / "global_step_60" / "policy")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RG_ENV_IMPORTS", "")
    monkeypatch.setenv("WANDB_API_KEY", "of the reader")
    return tmp_path


def words_of(command):
    """The words after `rg-env`; None for another program."""
    words = shlex.split(command, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):  # a variable of the environment
        del words[0]
    return words[1:] if words and words[0].endswith("rg-env") else None


def parse(words):
    """Raises if there is no such command or option."""
    command, words = get_command(app), list(words)
    while hasattr(command, "commands") and not words[0].startswith("-"):
        command = commands_of(command)[words.pop(0)]
    command.make_context("rg-env", words, resilient_parsing=words == ["--version"])


def shell(command):
    """Run a command as a reader does, in a shell of the activated environment."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("page", [page for page in PAGES if SHELL[page]], ids=page_id)
def test_the_commands_run(page, folder):
    for block in SHELL[page]:
        for command, mark in block.commands():
            words = words_of(command)
            checked = words and words[0] == "train" and not re.search("…|CONFIG|data.train_data|runs/models", command)
            if mark and not checked:
                if words:
                    parse(words)
            elif words is None or "examples" in command:  # modules of users, which would stay in this process
                done = shell(f"{command} --check" if checked else command)
                assert done.returncode == 0, f"{block.name}: {command}\n{done.stdout}{done.stderr}"
            else:
                words = [*words, "--check"] if checked else words
                done = CliRunner().invoke(app, words, prog_name="rg-env", env={"RAY_ADDRESS": "192.0.2.1:6379"})
                assert done.exit_code == 0, f"{block.name}: {command}\n{done.output}{done.exception!r}"


@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(mark.when == "weekly" for block in BLOCKS[page] for mark in block.marks)],
    ids=page_id,
)
def test_the_weekly_commands_run(page, folder):
    """Requests go to a server of this test, and are fewer."""
    text = "<think>I guess.</think><answer>1</answer>"
    with serving(lambda number, body: completion(text)) as server:
        for block in SHELL[page]:
            for command, mark in block.commands():
                if mark and mark.when == "weekly":
                    command = command.replace("http://127.0.0.1:8000", server.url)
                    for proposed, enough in SMALLER.items():
                        command = command.replace(proposed, enough)
                    if "rg-env train" in command:
                        command = f"{command.partition('  #')[0]} {ONE_STEP}"
                    done = shell(command)
                    assert done.returncode == 0, f"{block.name}: {command}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=page_id)
def test_the_python_code_runs(page, folder):
    run_page(page)


def test_settings_suites_and_other_files_are_valid(folder):
    for name in ("train.csv", "test.csv"):  # of a mix with a file of questions
        rows = [f"What is 1 + {number} in {name}?,{1 + number}\n" for number in range(50)]
        (folder / name).write_text("question,answer\n" + "".join(rows))
    kinds = Counter()
    for page, found in BLOCKS.items():
        for block in found:
            kinds[block.kind] += 1
            if block.kind == "toml":
                assert tomllib.loads(block.code)
            elif block.kind == "yaml" and page.name == "collect.md":
                (folder / "suite.yaml").write_text(block.code)
                assert load_suite(folder / "suite.yaml")
            elif block.kind == "yaml" and page.name != "your-code.md":  # a file of examples/, which its commands use
                alone = block.code.splitlines() if block.code.startswith("tasks:") else [block.code]
                for text in alone:
                    settings = yaml.safe_load(text)
                    settings = settings if RG_DUMP in settings else {RG_DUMP: settings}
                    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
                    load_run([str(ROOT / "configs" / "quickstart.yaml"), "settings.yaml"])
    assert kinds.keys() <= {"", "shell", "python", "python continued", "yaml", "toml", "mermaid", "nginx"}
