"""Draws that upstream never ends, or that nobody can answer, are redrawn; a slow one is logged."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
from loguru import logger

from rg_env.tasks import ItemStream, Split
from rg_env.tasks.upstream import UnusableItemError, generators, patched_dataset, slow_draws
from rg_env.tasks.upstream.patched_dataset import UpstreamDataset
from tests.running import run_command


@pytest.fixture
def slow_draw(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A draw of chain_sum waits for the event."""
    go_on = threading.Event()
    task = patched_dataset.registered()["chain_sum"][0]
    make = task.__getitem__

    def wait(self: Any, index: int) -> Any:
        go_on.wait(60)
        return make(self, index)

    monkeypatch.setattr(task, "__getitem__", wait)
    monkeypatch.setattr(slow_draws, "_watcher", slow_draws._Watcher())
    return go_on


def test_a_slow_draw_is_logged_and_not_changed(
    slow_draw: threading.Event, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setattr(slow_draws, "SLOW", 0.0)
    monkeypatch.setattr(slow_draws, "PAUSE", 0.01)
    handler = logger.add(lambda _: slow_draw.set(), level="WARNING")
    try:
        item = ItemStream("chain_sum", {}, 42, Split.EVAL).item(3)
    finally:
        logger.remove(handler)
    assert f"task chain_sum: the draw of {item.id} takes over 0 s and may never end; leave the task out" in warnings[0]
    monkeypatch.setattr(slow_draws, "SLOW", 60.0)
    assert ItemStream("chain_sum", {}, 42, Split.EVAL).item(3).entry == item.entry


def test_a_machine_without_threads_only_misses_the_log(
    slow_draw: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    slow_draw.set()
    monkeypatch.setattr(threading.Thread, "start", start)
    assert UpstreamDataset("chain_sum", {}).make(1)["question"]


def test_what_upstream_never_ends_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnusableItemError, match="colors"):  # ten blocks and nine colors
        UpstreamDataset("arc_1d", {"min_size": 100, "max_size": 100}).make(2675342405)
    assert UpstreamDataset("number_sequence", {}).make(2099250696)["answer"]  # numbers with millions of digits
    assert UpstreamDataset("sokoban", {}).make(3)["answer"]
    monkeypatch.setattr(generators, "SOKOBAN_MOVES", 20_000)
    with pytest.raises(UnusableItemError, match="too long"):
        UpstreamDataset("sokoban", {}).make(2747377751)


def test_a_snippet_of_codeio_prints_no_warning() -> None:
    code = "from rg_env.tasks.upstream.patched_dataset import UpstreamDataset; UpstreamDataset('codeio', {}).make(93)"
    assert run_command(sys.executable, "-c", code).stderr == ""


def test_no_answer_is_empty() -> None:
    stream = ItemStream("ab", {"length": 4}, 1, Split.TRAIN)
    assert all(stream.item(index).entry["answer"].strip() for index in range(40))
