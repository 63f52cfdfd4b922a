"""Processes that make rows: they are started once, lose no row, and end with the process that started them."""

import json
import os
import subprocess
import sys
import time

import psutil
import pytest
from loguru import logger

from rg_env.skyrl.row_maker import RowMaker
from tests.skyrl.numbered_rows import Numbered


@pytest.fixture
def log():
    """What is logged as a warning."""
    lines = []
    sink = logger.add(lines.append, format="{message}", level="WARNING")
    yield lines
    logger.remove(sink)


@pytest.fixture
def maker_of():
    """Builds makers that are closed after the test."""
    built = []

    def build(make, workers):
        built.append(RowMaker(make, workers))
        return built[-1]

    yield build
    for maker in built:
        maker.close()


def rows(futures):
    return [future.result(60) for future in futures]


def lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_workers_are_started_once_and_end_with_the_maker(maker_of):
    maker = maker_of(Numbered(), 2)
    made = rows(maker.submit(range(50))) + rows(maker.submit(range(50, 100)))
    assert [row["number"] for row in made] == list(range(100))
    pids = {row["pid"] for row in made}
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids
    maker.close()
    assert not any(map(lives, pids))


@pytest.mark.parametrize(
    ("killed", "line"), [(True, "died (exit code -9); making 5 again"), (False, "failed (ValueError: no item today)")]
)
def test_a_row_on_which_a_worker_fails_is_made_again(maker_of, tmp_path, log, killed, line):
    maker = maker_of(Numbered(tmp_path / "flag", killed), 2)
    assert [row["number"] for row in rows(maker.submit(range(12)))] == list(range(12))
    assert len(log) == 1
    assert line in log[0]


def always_dies(number):
    os._exit(3)


def test_a_row_on_which_every_worker_dies_is_an_error(maker_of, log):
    (row,) = maker_of(always_dies, 1).submit([7])
    with pytest.raises(RuntimeError, match="3 dataloader workers died over 7"):
        row.result(60)
    assert all("exit code 3" in line for line in log)


def test_workers_end_when_the_trainer_is_killed():
    command = [sys.executable, "-c", "from tests.skyrl.numbered_rows import linger; linger()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        pids = json.loads(process.stdout.readline())
        assert pids
        assert all(map(lives, pids))
        process.kill()
    deadline = time.monotonic() + 60
    while any(map(lives, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(lives, pids))


def test_without_workers_rows_are_made_in_this_process(maker_of):
    assert {row["pid"] for row in rows(maker_of(Numbered(), 0).submit(range(3)))} == {os.getpid()}


def test_what_is_closed_makes_no_more_rows(maker_of):
    maker = maker_of(Numbered(), 1)
    rows(maker.submit([1]))
    maker.close()
    maker.close()
    with pytest.raises(RuntimeError):
        maker.submit([2])
