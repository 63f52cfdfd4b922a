"""What a run tells the process that shows it, through a real pipe."""

from __future__ import annotations

import json
import os

import pytest
from loguru import logger

from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import DumpWriter
from rg_env.terminal.reports import Reports
from tests.dump.records import RUN_ID, group, rollout


@pytest.fixture
def notes(tmp_path):
    """Returns the notes that have been sent."""
    path = tmp_path / "reports"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    before = set(logger._core.handlers)
    Reports(path, log_to_file=True).send_warnings()
    yield lambda: [json.loads(line)["note"] for line in os.read(pipe, 1 << 16).splitlines()]
    for number in set(logger._core.handlers) - before:
        logger.remove(number)
    os.close(pipe)


def test_of_a_long_text_whole_lines_are_sent(tmp_path):
    path = tmp_path / "reports"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    lines = [f"trainer.setting_{number}=1: must be 2" for number in range(100)]
    Reports(path).send(error="\n".join(lines))
    first, *others = json.loads(os.read(pipe, 1 << 16))["error"].splitlines()
    os.close(pipe)
    assert [first, *others[:-1]] == lines[: len(others)]
    assert others[-1] == f"{lines[len(others)]} …; the rest is left out: for wrong settings, `--check` shows all"


def test_a_finished_file_is_said_by_its_name(notes, tmp_path):
    folder = tmp_path / "a folder with a long name"
    with DumpWriter(folder, RUN_ID, 1, RGDumpConfig(groups_per_file=2)) as writer:
        writer.write_blocking([group(uid, [rollout(1.0)]) for uid in range(3)])
    first, second = notes()
    assert first.startswith("2 groups saved in reasoning_gym_environment_rollouts_")
    assert second.startswith("1 group saved in reasoning_gym_environment_rollouts_")
    assert all(os.fspath(folder) not in note for note in (first, second))


def test_warnings_are_sent_and_other_lines_are_not(notes):
    logger.info("quiet")
    logger.warning("loud")
    assert notes() == ["warning: loud"]
