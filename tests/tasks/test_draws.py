"""Draws that upstream never ends, or that nobody can answer, are redrawn."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import reasoning_gym

from rg_env.tasks import ItemStream, Split
from rg_env.tasks.upstream import UnusableItemError, dataset, deadline, generators
from rg_env.tasks.upstream.dataset import UpstreamDataset

SOMETIMES_ENDLESS = """
from dataclasses import dataclass
from reasoning_gym.factory import ProceduralDataset, register_dataset

@dataclass
class Config:
    seed: int = 0
    size: int = 1

class SometimesEndless(ProceduralDataset):
    def __getitem__(self, index):
        while self.config.seed % 3 == 0:
            try:
                while True:
                    pass
            except Exception:
                pass
        return {"question": str(self.config.seed), "answer": "1", "metadata": {}}

register_dataset("sometimes_endless", SometimesEndless, Config)
"""


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A task that never ends for a third of the seeds, and catches exceptions."""
    (tmp_path / "sometimes_endless.py").write_text(SOMETIMES_ENDLESS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(dataset, "CPU_SECONDS", 0.1)
    monkeypatch.setattr(deadline, "PAUSE", 0.01)
    importlib.import_module("sometimes_endless")
    yield "sometimes_endless"
    del reasoning_gym.factory.DATASETS["sometimes_endless"], sys.modules["sometimes_endless"]


def test_an_endless_draw_is_redrawn_in_every_thread(task: str, warnings: list[str]) -> None:
    def draw() -> list[str]:
        stream = ItemStream(task, {}, 42, Split.EVAL)
        return [stream.item(index).entry["question"] for index in range(3)]

    in_main_thread = draw()
    assert all(int(question) % 3 for question in in_main_thread)
    assert warnings
    assert "task sometimes_endless: the draw of seed " in warnings[0]
    assert "with options {} was stopped after 0.1 CPU seconds" in warnings[0]
    count = len(warnings)

    in_threads: list[list[str]] = []
    threads = [threading.Thread(target=lambda: in_threads.append(draw())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert in_threads == [in_main_thread, in_main_thread]
    assert len(warnings) == 3 * count


def test_a_draw_that_cannot_be_watched_changes_no_item(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has no more threads must not move the run to other items, nor end the watch for good."""

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    stream = ItemStream(task, {}, 42, Split.EVAL)
    monkeypatch.setattr(deadline, "_watcher", deadline._Watcher())
    with monkeypatch.context() as machine, pytest.raises(OSError, match="can't start new thread"):
        machine.setattr(threading.Thread, "start", start)
        stream.item(0)
    assert all(int(stream.item(index).entry["question"]) % 3 for index in range(3))


def test_what_upstream_never_ends_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "CPU_SECONDS", 1)
    with pytest.raises(UnusableItemError, match="colors"):  # ten blocks and nine colors
        UpstreamDataset("arc_1d", {"min_size": 100, "max_size": 100}).make(2675342405)
    assert UpstreamDataset("number_sequence", {}).make(2099250696)["answer"]  # numbers with millions of digits
    monkeypatch.setattr(dataset, "CPU_SECONDS", 60)
    assert UpstreamDataset("sokoban", {}).make(3)["answer"]
    monkeypatch.setattr(generators, "SOKOBAN_MOVES", 20_000)
    with pytest.raises(UnusableItemError, match="too long"):
        UpstreamDataset("sokoban", {}).make(2747377751)


def test_a_snippet_of_codeio_prints_no_warning() -> None:
    code = "from rg_env.tasks.upstream.dataset import UpstreamDataset; UpstreamDataset('codeio', {}).make(93)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr == ""


def test_no_answer_is_empty() -> None:
    stream = ItemStream("ab", {"length": 4}, 1, Split.TRAIN)
    assert all(stream.item(index).entry["answer"].strip() for index in range(40))
