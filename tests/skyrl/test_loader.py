"""The train loader alone: which rows it hands out, whatever makes them, and what a resumed run gets."""

import asyncio
import functools
import json
import os
import pickle
import subprocess
import sys
import time
import tracemalloc
from types import SimpleNamespace

import psutil
import pytest

from rg_env.base.errors import ConfigError
from rg_env.configuration.config import RGDumpConfig
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.skyrl.loader import AsyncRows, TrainLoader

BATCH, ROWS = 4, 26
TASKS = {"chain_sum": 2.0, "gcd": 1.0, "spell_backward": 1.0}
LEVELS = {"complexity": "random"}


def build(fully_async=False, *, workers=0, epochs=3, size=ROWS, batch_size=BATCH, files=None, **settings):
    """A loader of `ROWS // BATCH` batches an epoch; in the fully asynchronous loop, what hands out single rows."""
    rg = RGDumpConfig(tasks=TASKS, seed=7, **settings)
    cfg = SimpleNamespace(
        rg_dump=rg,
        data=SimpleNamespace(train_data=["files"] if files else [], dataloader=SimpleNamespace(num_workers=workers)),
        trainer=SimpleNamespace(
            epochs=epochs, train_batch_size=batch_size, seed=3, fully_async=SimpleNamespace(enabled=fully_async)
        ),
    )
    loader = TrainLoader(cfg, files or _dataset(size, rg.complexity))
    return AsyncRows(loader) if fully_async else loader


@functools.cache
def _dataset(size, complexity):
    return ReasoningGymDataset(TASKS, size=size, seed=7, complexity=complexity)


class Files:
    """Rows in memory, as SkyRL's `PromptDataset` has them."""

    def __init__(self, rows=ROWS):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        return [{"role": "user", "content": str(index)}], "other", {"extra_info": {"index": index}}, str(index)

    collate_fn = staticmethod(_dataset(1, None).collate_fn)


def run(loader, batches):
    """The next batches of a run."""
    taken = []
    while len(taken) < batches:
        for rows in loader:
            taken.append([row["env_extras"]["extra_info"] for row in rows])
            if len(taken) == batches:
                break
    return taken


def resumed(loader, **settings):
    """A loader that continues from the state of another."""
    other = build(**settings)
    other.load_state_dict(pickle.loads(pickle.dumps(loader.state_dict())))
    return other


def ids(batches):
    return [[row["item"] for row in batch] for batch in batches]


def uids(batches):
    return [row["uid"] for batch in batches for row in batch]


def main():
    """Print the rows of a run that is resumed after 4 batches, and the processes that made them; then wait.

    One loader makes its first rows before it is known where the run continues.
    """
    begun = build(**LEVELS)
    rows = run(begun, 4)
    again = resumed(begun, workers=1, **LEVELS)
    early = build(workers=2, **LEVELS)
    early.load_state_dict(begun.state_dict())
    rows += run(again, 10)
    workers = [process.pid for process in psutil.Process().children(recursive=True)]
    print(json.dumps([rows, rows[:4] + run(early, 10), workers]), flush=True)
    time.sleep(600)


@pytest.mark.long
@pytest.mark.slow
def test_rows_do_not_depend_on_hash_seed_and_workers_which_end_with_the_trainer():
    command = [sys.executable, "-m", "tests.skyrl.test_loader"]
    env = {**os.environ, "PYTHONHASHSEED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as trainer:
        rows, of_the_early, workers = json.loads(trainer.stdout.readline())
        # Two servers, three makers.
        assert len(workers) == 5 and all(map(psutil.pid_exists, workers))
        trainer.kill()
    assert rows == of_the_early == run(build(**LEVELS), 14)
    deadline = time.monotonic() + 60
    while any(map(psutil.pid_exists, workers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(psutil.pid_exists, workers))


def test_an_epoch_is_made_of_whole_batches_of_new_rows():
    loader = build()
    assert len(loader) == 6
    first, second = list(loader), list(loader)
    assert [len(batch) for batch in first] == [BATCH] * 6
    dataset = _dataset(ROWS, None)
    assert uids(first) == [f"{dataset[k][3]}#{k}" for k in range(24)]
    assert not {uid.partition("#")[0] for uid in uids(first)} & {uid.partition("#")[0] for uid in uids(second)}


def test_rows_that_are_still_to_come_take_no_memory():
    loader = build(size=400_000, batch_size=1)
    rows = iter(loader)
    run(build(), 1)  # imports
    tracemalloc.start()
    try:
        next(rows)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("settings", [{}, {"files": Files()}, LEVELS])
def test_no_uid_comes_twice(settings):
    loader = build(**settings)
    epochs = [uids(loader) for _ in range(3)]
    assert len({uid for epoch in epochs for uid in epoch}) == 72
    first, second = ([uid.partition("#")[0] for uid in epoch] for epoch in epochs[:2])
    assert first != second, "rows of files are shuffled in every epoch"


@pytest.mark.parametrize("settings", [{}, LEVELS, {"files": Files()}], ids=["plain", "levels", "files"])
def test_resumed_at_every_batch(settings):
    whole = run(build(**settings), 14)
    for done in range(14):
        killed = build(**settings)
        run(killed, done)
        assert run(resumed(killed, **settings), 14 - done) == whole[done:]


def test_after_the_last_epoch_there_are_no_more_rows():
    """With dynamic sampling, SkyRL begins more epochs after a resumption than there are."""
    loader = build(epochs=2)
    run(loader, 9)
    again = resumed(loader, epochs=2)
    assert [len(list(again)) for _ in range(4)] == [3, 0, 0, 0]


@pytest.mark.parametrize("state", [{}, {"settings": {}}, {"_snapshot": 1}, [], {"settings": {}, "epoch": None}])
def test_a_foreign_state_is_refused_and_changes_nothing(state):
    loader = build()
    begun = run(loader, 2)
    with pytest.raises(ConfigError, match="not one of rg_env's loader"):
        loader.load_state_dict(state)
    assert begun + run(loader, 4) == run(build(), 6)


def test_other_settings_than_those_of_the_checkpoint_are_reported_and_followed(warnings):
    before = build()
    run(before, 2)
    resumed(before, epochs=5, size=40)
    assert "other settings" not in "".join(warnings)
    rest = run(resumed(before, **LEVELS), 3)
    assert "complexity was None, is now random" in "".join(warnings)
    assert ids(rest) == ids(run(build(**LEVELS), 5))[2:]


@pytest.mark.parametrize(
    ("before", "batches", "after"),
    [
        ({}, 7, {"size": 20}),
        ({}, 7, {"size": 40}),
        ({}, 6, {"size": 20}),
        ({"files": Files()}, 1, {"files": Files(30)}),
    ],
    ids=["fewer in the second epoch", "more", "fewer than were handed out", "files"],
)
def test_rows_that_get_other_numbers_are_reported(before, batches, after, warnings):
    loader = build(**before)
    run(loader, batches)
    resumed(loader, **before)
    assert not warnings
    resumed(loader, **after)
    assert "rows in an epoch was 26, is now" in "".join(warnings)


def test_fewer_rows_than_a_batch_has_are_refused():
    with pytest.raises(ConfigError, match=r"trainer.train_batch_size=32: the data has only 26 rows"):
        build(files=Files(), batch_size=32)


def test_another_batch_size_continues_after_the_same_rows(warnings):
    before = build()
    run(before, 3)
    after = resumed(before, batch_size=6)
    assert "train_batch_size was 4, is now 6" in "".join(warnings)
    assert [uid.partition("#")[2] for uid in uids(after)] == [str(number) for number in range(12, 24)]


# -- the fully asynchronous loop


async def take(loader, count):
    return [row for _ in range(count) if (row := await loader.get_next_non_consumed_data()) is not None]


def test_rows_are_handed_out_one_by_one_to_the_end_of_the_epoch():
    rows, batches = build(True), list(build())

    async def epoch():
        taken = await take(rows, 30)
        assert await rows.get_next_non_consumed_data() is None
        await rows.mark_consumed_uids(uids(taken))
        assert rows.num_trained() == 24
        await rows.reset_at_epoch_end()
        return uids(taken), uids(await take(rows, 30))

    first, second = asyncio.run(epoch())
    assert first == uids(batches)
    assert len(second) == 24
    assert not set(first) & set(second)


@pytest.mark.parametrize("done", range(0, 25, 6))
@pytest.mark.parametrize("settings", [{}, {"files": Files()}], ids=["plain", "files"])
def test_rows_that_were_not_used_up_come_again(settings, done):
    """In the second epoch, `done` rows were handed out; half were trained on, in another order, or dropped."""

    async def before(rows):
        await rows.reset_at_epoch_end()
        taken = uids(await take(rows, done))
        used = taken[::-2]
        await rows.mark_consumed_uids(used[: len(used) // 2])
        await rows.mark_filtered_uids(used[len(used) // 2 :])
        return used

    async def after(rows):
        epoch = uids(await take(rows, 30))
        await rows.reset_at_epoch_end()
        return epoch, uids(await take(rows, 30))

    killed, again = build(True, **settings), build(True, **settings)
    used = asyncio.run(before(killed))
    again._train_dataloader.load_state_dict(pickle.loads(pickle.dumps(killed._train_dataloader.state_dict())))
    again.load_state_from_checkpoint(set(killed.get_consumed_uids_list()), set(killed.get_filtered_uids_list()))
    assert again.num_trained() == len(used) // 2
    rest, last = asyncio.run(after(again))
    whole = build(**settings)
    _, second, third = (uids(whole) for _ in range(3))
    assert rest == [uid for uid in second if uid not in used]
    assert last == third


if __name__ == "__main__":
    main()
