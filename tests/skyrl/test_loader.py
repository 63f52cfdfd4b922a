"""The train loader alone: which rows it hands out, whatever makes them, and what a resumed run gets."""

import asyncio
import functools
import json
import os
import pickle
import queue
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest
from loguru import logger

from rg_env.config import RGDumpConfig
from rg_env.curriculum import GroupFacts, RolloutFacts
from rg_env.dataset import ReasoningGymDataset
from rg_env.skyrl.loader import AsyncTrainLoader, EvalLoader, ShuffledFiles, TrainLoader, train_loader

BATCH, ROWS, WORKERS = 4, 26, 3
TASKS = {"chain_sum": 2.0, "gcd": 1.0, "spell_backward": 1.0}
CURRICULUM = {"complexity_mode": "curriculum"}


def build(kind=TrainLoader, *, workers=0, epochs=3, size=ROWS, **settings):
    """A loader of `ROWS // BATCH` batches an epoch."""
    rg = RGDumpConfig(tasks=TASKS, seed=7, **settings)
    cfg = SimpleNamespace(
        rg_dump=rg,
        data=SimpleNamespace(train_data=[], dataloader=SimpleNamespace(num_workers=workers)),
        trainer=SimpleNamespace(epochs=epochs, train_batch_size=BATCH, seed=3),
    )
    return train_loader(cfg, _dataset(rg.items or size, rg.complexity_mode), kind)


@functools.cache
def _dataset(size, complexity_mode):
    return ReasoningGymDataset(TASKS, size=size, seed=7, complexity_mode=complexity_mode)


def observed(rows):
    """What a policy that is a function of the row shows the controller: it solves short questions."""
    groups = []
    for row in rows:
        info = row["env_extras"]["extra_info"]
        solved = float(len(row["prompt"][-1]["content"]) % 8 < 6)
        rollouts = [RolloutFacts(solved, well_formed=True, scorer_ok=True, truncated=False)] * 8
        groups.append(GroupFacts(info["task"], info["complexity"], info["controller_version"], rollouts))
    return groups


def run(loader, batches):
    """The next batches of a run in which every batch is observed."""
    taken = []
    while len(taken) < batches:
        for rows in loader:
            taken.append([row["env_extras"]["extra_info"] for row in rows])
            loader.observe(observed(rows))
            if len(taken) == batches:
                break
    return taken


def ids(batches):
    return [[row["item"] for row in batch] for batch in batches]


@pytest.fixture
def loaders():
    """Builds loaders that are closed after the test."""
    built = []

    def make(*args, **kwargs):
        built.append(build(*args, **kwargs))
        return built[-1]

    yield make
    for loader in built:
        loader.close()


@pytest.fixture
def log():
    """What is logged as a warning."""
    lines = []
    sink = logger.add(lines.append, format="{message}", level="WARNING")
    yield lines
    logger.remove(sink)


def main():
    """Print the rows of a run, for a comparison between processes: `python -m tests.skyrl.test_loader WORKERS`."""
    loader = build(workers=int(sys.argv[1]), **CURRICULUM)
    print(json.dumps(run(loader, 14)))
    loader.close()


@pytest.mark.slow
def test_rows_and_levels_do_not_depend_on_hash_seed_and_workers(loaders):
    expected = run(loaders(**CURRICULUM), 14)
    assert len({row["complexity"] for batch in expected for row in batch}) > 2, "levels moved"
    for hash_seed, workers in (("1", 1), ("2", 4)):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "tests.skyrl.test_loader", str(workers)]
        printed = subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=300).stdout
        assert json.loads(printed.splitlines()[-1]) == expected


def test_an_epoch_is_made_of_whole_batches_of_new_rows(loaders):
    loader = loaders()
    assert len(loader) == 6
    first, second = list(loader), list(loader)
    assert [len(batch) for batch in first] == [BATCH] * 6
    dataset = _dataset(ROWS, None)
    assert [row["uid"] for batch in first for row in batch] == [dataset[k][3] for k in range(24)]
    assert not {row["uid"] for batch in first for row in batch} & {row["uid"] for batch in second for row in batch}


def test_a_finite_set_is_shuffled_in_every_epoch_but_the_first(loaders):
    loader = loaders(items=24)
    first, second, third = ([row["uid"] for batch in loader for row in batch] for _ in range(3))
    assert sorted(first) == sorted(second) == sorted(third)
    assert len({tuple(first), tuple(second), tuple(third)}) == 3


@pytest.mark.parametrize("settings", [{}, {"items": ROWS}, CURRICULUM], ids=["plain", "items", "curriculum"])
def test_resumed_at_every_batch(loaders, settings):
    whole = run(loaders(**settings), 14)
    for done in range(14):
        killed = loaders(**settings)
        run(killed, done)
        resumed = loaders(**settings)
        resumed.load_state_dict(pickle.loads(pickle.dumps(killed.state_dict())))
        assert run(resumed, 14 - done) == whole[done:]


def test_a_level_is_at_most_one_batch_old(loaders):
    batches = run(loaders(**CURRICULUM), 12)
    versions = [{row["controller_version"] for row in batch} for batch in batches]
    assert versions == [{max(0, number - 1)} for number in range(12)]


def test_an_evaluation_has_the_same_batches_each_time_and_the_last_may_be_smaller():
    dataset = _dataset(10, None)
    loader = EvalLoader(dataset, 4)
    batches = list(loader)
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert len(loader) == 3
    assert [row for batch in batches for row in batch] == dataset.collate_fn(dataset[:])
    assert list(loader) == batches


def test_nothing_is_planned_after_the_last_epoch(loaders):
    loader = loaders(epochs=1)
    assert len(list(loader)) == len(loader)
    assert loader.state_dict()["planned"] is None


def test_other_settings_than_those_of_the_checkpoint_are_reported_and_followed(loaders, log):
    before, after = loaders(), loaders(sampling="stratified")
    run(before, 2)
    after.load_state_dict(before.state_dict())
    assert "sampling was weighted, is stratified" in "".join(log)
    rest = run(after, 3)
    fresh = loaders(sampling="stratified")
    assert ids(rest) == ids(run(fresh, 5))[2:]


def test_the_same_settings_are_not_reported(loaders, log):
    before, after = loaders(), loaders(epochs=5, size=40)
    run(before, 2)
    after.load_state_dict(before.state_dict())
    assert "other settings" not in "".join(log)


# -- files


def test_files_are_shuffled_by_seed_and_epoch():
    plans = ShuffledFiles(10, seed=3)
    first, second = plans.plan(0, 10), plans.plan(10, 10)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert ShuffledFiles(10, seed=3).plan(4, 3) == first[4:7]
    assert ShuffledFiles(10, seed=4).plan(0, 10) != first


# -- making rows


class Numbers(ShuffledFiles):
    def plan(self, position, count):
        return list(range(position, position + count))


def numbers(make):
    settings = {"rows": 24, "epochs": 1, "batch_size": BATCH, "workers": 0, "settings": {}}
    return TrainLoader(Numbers(24, 0), make, list, **settings)


def test_the_next_batch_is_made_while_a_batch_is_used():
    made = queue.SimpleQueue()
    loader = numbers(lambda number: made.put(number) or number)
    assert next(iter(loader)) == [0, 1, 2, 3]
    assert [made.get(timeout=60) for _ in range(8)] == list(range(8))
    loader.close()


def test_an_item_that_cannot_be_made_ends_the_run():
    loader = numbers(lambda number: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(iter(loader))
    loader.close()


# -- the fully asynchronous loop


async def take(loader, count):
    return [row for _ in range(count) if (row := await loader.get_next_non_consumed_data()) is not None]


def test_rows_are_handed_out_one_by_one_to_the_end_of_the_epoch(loaders):
    loader, batches = loaders(AsyncTrainLoader), list(loaders())

    async def epoch():
        rows = await take(loader, 30)
        assert await loader.get_next_non_consumed_data() is None
        await loader.mark_consumed_uids([row[0]["uid"] for row in rows])
        assert loader.num_trained() == 24
        await loader.reset_at_epoch_end()
        return [row[0]["uid"] for row in rows], [row[0]["uid"] for row in await take(loader, 30)]

    first, second = asyncio.run(epoch())
    assert first == [row["uid"] for batch in batches for row in batch]
    assert len(second) == 24
    assert not set(first) & set(second)


@pytest.mark.parametrize("done", range(0, 24, 3))
def test_rows_that_were_not_used_up_come_again(loaders, done):
    """`done` rows were handed out; those with an odd number were trained on, in another order, or dropped."""

    async def before(loader):
        rows = [row[0] for row in await take(loader, done)]
        for row in rows:
            loader.observe(observed([row]))
        used = [row["uid"] for row in reversed(rows[1::2])]
        await loader.mark_consumed_uids(used[: len(used) // 2])
        await loader.mark_filtered_uids(used[len(used) // 2 :])
        return rows, used

    async def after(loader, count=30):
        return [row[0] for row in await take(loader, count)]

    killed, resumed = loaders(AsyncTrainLoader, **CURRICULUM), loaders(AsyncTrainLoader, **CURRICULUM)
    rows, used = asyncio.run(before(killed))
    resumed.load_state_dict(pickle.loads(pickle.dumps(killed.state_dict())))
    resumed.load_state_from_checkpoint(set(killed.get_consumed_uids_list()), set(killed.get_filtered_uids_list()))
    again = asyncio.run(after(resumed))
    assert [row["uid"] for row in again[: len(rows) - len(used)]] == [
        row["uid"] for row in rows if row["uid"] not in used
    ]
    assert again[: len(rows) - len(used)] == [row for row in rows if row["uid"] not in used], "at the same levels"
    assert len(again) == 24 - len(used)
    assert len({row["uid"] for row in again} | set(used)) == 24
    assert resumed.num_trained() == len(used) // 2


def test_with_other_settings_as_many_rows_come_as_the_epoch_needs(loaders, log):
    async def before(loader):
        rows = await take(loader, 9)
        await loader.mark_consumed_uids([row[0]["uid"] for row in rows[:4]])

    killed, resumed = loaders(AsyncTrainLoader), loaders(AsyncTrainLoader, sampling="stratified")
    asyncio.run(before(killed))
    resumed.load_state_dict(killed.state_dict())
    resumed.load_state_from_checkpoint(set(killed.get_consumed_uids_list()))
    rows = asyncio.run(take(resumed, 30))
    assert len({row[0]["uid"] for row in rows}) == 20
    assert "other settings" in "".join(log)


def test_the_age_of_levels_in_the_fully_async_loop_is_bounded(loaders):
    """Workers take rows and finish them in a random order, as slowly as the loop allows."""
    workers = BATCH + 2
    loader = loaders(AsyncTrainLoader, epochs=1, size=400, **CURRICULUM)

    async def loop():
        ages, running, seen = [], [], 0
        generator = random.Random(5)
        while True:
            while len(running) < workers and (rows := await loader.get_next_non_consumed_data()) is not None:
                ages.append(seen - rows[0]["env_extras"]["extra_info"]["controller_version"])
                running.append(rows[0])
            if not running:
                return ages
            for _ in range(generator.randint(1, len(running))):
                loader.observe(observed([running.pop(generator.randrange(len(running)))]))
                seen += 1

    ages = asyncio.run(loop())
    assert len(ages) == 400
    assert BATCH < max(ages) <= workers + 2 * BATCH - 1


def test_a_checkpoint_may_be_written_while_rows_are_handed_out(loaders):
    """SkyRL saves in a thread. Every row is either used up or in the state."""
    loader = loaders(AsyncTrainLoader, epochs=1)

    async def loop():
        states = []
        for _ in range(24):
            await take(loader, 1)
            states.append(await asyncio.to_thread(loader.state_dict))
        return states

    for state in asyncio.run(loop()):
        planned = [] if state["planned"] is None else state["planned"]
        numbers = [*state["unused"], *range(BATCH * state["taken"], BATCH * state["taken"] + len(planned))]
        assert numbers == list(range(len(numbers)))


if __name__ == "__main__":
    main()
