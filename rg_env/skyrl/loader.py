"""The train loader: which rows a run is trained on, in which order, and where a resumed run continues.

Invariants:
- Row n of a run is a pure function of n and of the settings; not of the number of workers, their speed, or hash seeds.
  Its uid ends in `#n`, so that all rows of a run differ in it.
- A resumed run gets the rows that an uninterrupted one would get. The fully asynchronous loop gets the rows again that
  were handed out and not trained on.
- After the last epoch there are no more rows, however often SkyRL asks. With dynamic sampling, it asks too often after
  a resumption, because it derives the epoch from the number of steps.

SkyRL's own loader (torchdata 0.11) gives a resumed run no row in its first epoch if the checkpoint is the last of an
epoch, and other rows than an uninterrupted run in later epochs.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection, Iterator, Mapping
from itertools import batched
from typing import Any

from loguru import logger
from skyrl.train.dataset import PromptDataset
from skyrl.train.fully_async_trainer import _AsyncDataloader

from rg_env.base.errors import ConfigError, need
from rg_env.base.processes import usable_cores
from rg_env.rows.dataset import Example, ReasoningGymDataset
from rg_env.rows.row_makers import RowMakers, example_of_run, make_batch
from rg_env.tasks import hash64


@functools.lru_cache(maxsize=2)
def _shuffled(rows: int, seed: int, epoch: int) -> list[int]:
    return sorted(range(rows), key=lambda row: hash64("pass", seed, epoch, row))


def _number_of(uid: str) -> int:
    """Return the number of a row of a run."""
    return int(uid.rpartition("#")[2])


class TrainLoader:
    """Hands out the rows of a run: items on demand, new ones in every epoch, or the rows of files, in a new order in
    every epoch. SkyRL's trainers use it in place of their own loader.

    Args:
        cfg: SkyRL's, with ours in it.
        dataset: items on demand, or the rows of files.

    Raises:
        ConfigError: the data has fewer rows than a batch.
    """

    def __init__(self, cfg: Any, dataset: ReasoningGymDataset | PromptDataset) -> None:
        rows, batch_size = len(dataset), cfg.trainer.train_batch_size
        need(rows >= batch_size, "trainer.train_batch_size", batch_size, f"the data has only {rows} rows")
        # The settings that decide which row has which number: a resumed run compares them.
        if isinstance(dataset, ReasoningGymDataset):
            settings = {name: getattr(cfg.rg_dump, name) for name in ("tasks", "seed", "complexity")}
            workers = min(cfg.data.dataloader.num_workers, usable_cores())  # more would only delay the first batch
        else:  # the rows are in memory: there is nothing to make
            settings = {"data.train_data": list(cfg.data.train_data), "trainer.seed": cfg.trainer.seed}
            workers = 0
        self._settings = settings | {"train_batch_size": batch_size, "rows in an epoch": rows}
        self._steps = rows // batch_size
        self._rows, self._epochs, self._in_batches = rows, cfg.trainer.epochs, self._steps * batch_size
        self._at_once = 1 if cfg.trainer.fully_async.enabled else batch_size
        self.is_restored = False
        """Whether it continues where a checkpoint says."""
        self._dataset, self._seed = dataset, cfg.trainer.seed
        self._makers = RowMakers(dataset, workers) if workers and isinstance(dataset, ReasoningGymDataset) else None
        self.begin(0)

    def __len__(self) -> int:
        """Steps in an epoch, if each takes one batch."""
        return int(self._steps)

    def begin(self, epoch: int, place: int = 0, used: Collection[int] = ()) -> None:
        """Continue at the row `place` of an epoch, without the rows whose numbers are in `used`. Other processes, if
        there are any, begin to make the first batches."""
        self.epoch, self._place, self._used = epoch, place, used
        self._ahead: Iterator[list[dict[str, Any]]] | None = self._make_batches()

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        """The batches that are left in the epoch, or those of the next."""
        # As in a run that is resumed from the checkpoint of the last step of an epoch.
        if self._place > 0 and self._place + self._at_once > self._in_batches:
            self.begin(self.epoch + 1)
        first = self.epoch * self._rows
        batches, self._ahead = self._ahead, None
        for batch in self._make_batches() if batches is None else batches:
            # By what was handed out, not by what is made ahead: a checkpoint continues behind it.
            self._place = _number_of(batch[-1]["uid"]) + 1 - first
            yield batch

    def _make_batches(self) -> Iterator[list[dict[str, Any]]]:
        left = self._batches_left()
        if self._makers is not None:
            return self._makers.ahead(left)
        return (make_batch(numbers, self._example_of) for numbers in left)

    def _example_of(self, number: int) -> Example:
        if isinstance(self._dataset, ReasoningGymDataset):
            return example_of_run(self._dataset, number)
        epoch, place = divmod(number, len(self._dataset))
        example: Example = self._dataset[_shuffled(len(self._dataset), self._seed, epoch)[place]]
        return example

    def _batches_left(self) -> Iterator[list[int]]:
        """Yield the numbers of the rows of each batch that is left in the epoch, of which there may be very many."""
        if self.epoch >= self._epochs:
            return
        first = self.epoch * self._rows
        left = range(first + self._place, first + self._in_batches)
        unused = (number for number in left if number not in self._used)
        for batch in batched(unused, self._at_once):
            # The last may be too short, because a resumed run may have another batch size.
            if len(batch) == self._at_once:
                yield list(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs; it becomes part of SkyRL's checkpoint."""
        return {"settings": self._settings, "epoch": self.epoch, "place": self._place}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the state was saved. If the settings have changed since, rows follow the new ones.

        Raises:
            ConfigError: the state is not one of `state_dict`. Nothing has changed then.
        """
        # Everything is read before anything is set, so that a state of another loader changes nothing.
        try:
            before, epoch, place = state["settings"], int(state["epoch"]), int(state["place"])
            compared, changed = dict(self._settings), []
            # Within their first epoch, items on demand have the same numbers, however many there are.
            if isinstance(self._dataset, ReasoningGymDataset) and epoch == 0 and place <= self._rows:
                del compared["rows in an epoch"]
            for name, value in compared.items():
                if before.get(name) != value:
                    changed.append(f"{name} was {before.get(name)}, is now {value}")
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ConfigError("the state of the data in the checkpoint is not one of rg_env's loader") from error
        if changed:
            differences = ", ".join(changed)
            logger.warning("the checkpoint was made with other settings ({}): rows follow the new ones", differences)
        self.begin(epoch, place)
        self.is_restored = True


class AsyncRows(_AsyncDataloader):
    """Hands out rows one by one, in the fully asynchronous loop. SkyRL's own waits for a row in the event loop, and
    resumes an epoch by making all rows again that were used up."""

    def __init__(self, loader: TrainLoader) -> None:
        super().__init__(loader, 1)
        self._loader = loader
        self._rows = iter(loader)

    async def get_next_non_consumed_data(self) -> list[dict[str, Any]] | None:
        """Return a batch of one row, or None at the end of the epoch."""
        # Many rollouts ask at the same time, and an iterator serves one caller at a time.
        async with self._lock:
            return await asyncio.to_thread(next, self._rows, None)

    async def reset_at_epoch_end(self) -> None:
        """Begin the next epoch."""
        self._consumed_data_uids.clear()
        self._filtered_data_uids.clear()
        self._begin_epoch(self._loader.epoch + 1)

    def load_state_from_checkpoint(
        self, consumed_data_uids_set: set[str], filtered_data_uids_set: set[str] | None = None
    ) -> None:
        """Read which rows of the epoch were used up. SkyRL has called `load_state_dict` of the loader before."""
        self._consumed_data_uids, self._filtered_data_uids = consumed_data_uids_set, filtered_data_uids_set or set()
        self._begin_epoch(self._loader.epoch)

    def _begin_epoch(self, epoch: int) -> None:
        self._loader.begin(epoch, used={_number_of(uid) for uid in self._consumed_data_uids})
        self._rows = iter(self._loader)
