"""Items that requests name: made in processes of their own, exactly as in this one, and at nobody else's cost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from rg_env.base.errors import ConfigError
from rg_env.configuration.config import RGDumpConfig
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.rows.item_source import item_of_id
from rg_env.scoring import Scorer
from rg_env.serve import item_makers
from rg_env.serve.desk import CLIENT, Desk, RefusedError
from rg_env.serve.episodes import Episodes
from rg_env.serve.item_makers import ItemMakers
from rg_env.tasks import Item, Split, TaskMix

TASKS = ("gcd", "rotate_matrix", "knight_swap", "figlet_font", "word_ladder", "codeio", "simple_integration", "sudoku")
IDS = [
    f"{task}-{split}-{seed}-{number}" for task in TASKS for split, seed, number in (("train", 42, 3), ("eval", 7, 1))
]
IDS += ["chain_sum-train-1-5@0.5", "chain_sum-eval-3-2@1", "knights_knaves-train-1-1@0.25", "chain_sum-train-9-4#2"]


@pytest.fixture
def makers() -> Iterator[ItemMakers]:
    made = ItemMakers(2)
    yield made
    made.close()


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Scorer(1) as scorer:
        made = Desk(scorer, rows=50)
        yield made
        made.makers.close()


def processes() -> list[psutil.Process]:
    """What makes items: a server, and the workers that it has forked."""
    running = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if item_makers.__name__ in process.cmdline():
                running.append(process)
    return running


def test_an_item_is_the_same_as_in_this_process(makers: ItemMakers) -> None:
    async def make_all() -> list[Item]:
        return await asyncio.gather(*map(makers.make, IDS))

    for item_id, made in zip(IDS, asyncio.run(make_all()), strict=True):
        assert made == item_of_id(item_id), item_id


@pytest.mark.parametrize("split", Split)
def test_so_is_that_of_a_row(desk: Desk, split: Split) -> None:
    desk.tasks = TaskMix.parse(
        {"chain_sum": {"config": {"min_terms": 2, "max_terms": 3}}, "rotate_matrix": 1, "gcd": 1}
    )
    config = RGDumpConfig()
    seed = config.seed if split is Split.TRAIN else config.eval_seed
    rows = ReasoningGymDataset(desk.tasks, 50, seed, split)

    async def make_some() -> list[Item]:
        return [await Episodes(desk).item_of_row(split, index) for index in range(0, 50, 5)]

    assert asyncio.run(make_some()) == [rows.item(index) for index in range(0, 50, 5)]


def test_what_cannot_be_made_is_told_as_in_this_process(makers: ItemMakers) -> None:
    for item_id in ("nope-train-1-1", "gcd~00000000-train-1-1", "chain_sum-train-1-1@7"):
        with pytest.raises(ConfigError) as mine:
            item_of_id(item_id)
        with pytest.raises(ConfigError) as told:
            asyncio.run(makers.make(item_id))
        assert str(told.value) == str(mine.value)


def test_an_item_that_is_being_made_delays_no_answer(desk: Desk) -> None:
    async def test() -> None:
        item = await desk.item_of_id("gcd-train-42-0")
        assert item is not None
        stopped = stop_the_workers()
        CLIENT.set("rude")
        slow = [asyncio.ensure_future(desk.item_of_id(f"gcd-train-42-{number}")) for number in range(1, 20)]
        CLIENT.set("polite")
        score = await desk.scorer.score_answer_async(item.entry, "2")
        assert score.score == 1
        assert not any(task.done() for task in slow)
        for process in stopped:
            process.resume()
        await asyncio.gather(*slow)

    asyncio.run(test())


def stop_the_workers() -> list[psutil.Process]:
    """Stop all that makes items, so that what is asked for is in the making until they go on."""
    running = processes()
    assert running
    for process in running:
        process.suspend()
    return running


def test_a_maker_that_is_killed_costs_no_other_request(makers: ItemMakers) -> None:
    async def test() -> None:
        await makers.make("gcd-train-42-0")
        stop_the_workers()
        making = [asyncio.ensure_future(makers.make(f"gcd-train-42-{number}")) for number in (2, 3)]
        await asyncio.sleep(0.1)
        for process in processes():
            process.kill()
        # On new processes.
        assert await asyncio.gather(*making) == [item_of_id(f"gcd-train-42-{number}") for number in (2, 3)]
        assert await makers.make("gcd-train-42-4") == item_of_id("gcd-train-42-4")

    asyncio.run(test())


def test_a_client_that_leaves_gives_its_turn_back(desk: Desk) -> None:
    async def test() -> None:
        await desk.item_of_id("gcd-train-42-0")
        for process in stop_the_workers():
            if process.ppid() == os.getpid():  # it forks others
                process.resume()
        slow = [asyncio.ensure_future(desk.item_of_id(f"gcd-train-42-{number}")) for number in (1, 2, 3)]
        await asyncio.sleep(0.1)
        for task in slow:
            task.cancel()
        assert await desk.item_of_id("gcd-train-42-4") == item_of_id("gcd-train-42-4")

    asyncio.run(test())


def test_an_item_that_takes_too_long_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_makers, "LIMIT_SECONDS", 2.0)
    desk.makers = ItemMakers(1)

    async def test() -> None:
        with suppress(RefusedError):  # the machine may be that slow
            await desk.item_of_id("gcd-train-42-0")
        for process in processes():
            if process.ppid() != os.getpid():
                os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(RefusedError, match="was not made within 2 s") as refused:
            await desk.item_of_id("gcd-train-42-1")
        assert refused.value.status == 503

    asyncio.run(test())
