"""The train loader: which rows a run is trained on, in which order, and where a resumed run continues.

Invariants:
- Row n of a run is a pure function of n, of the settings and, with a curriculum, of the level that its task had when
  the row was drawn; not of the number of workers, their speed, or hash seeds. Its uid ends in `#n`, so that all rows of
  a run differ in it.
- A resumed run gets the rows that an uninterrupted one would get. The fully asynchronous loop gets the rows again that
  were handed out and not trained on.
- After the last epoch there are no more rows, however often SkyRL asks. With dynamic sampling, it asks too often after
  a resumption, because it derives the epoch from the number of steps.

The batches are made by torch's `DataLoader`, with SkyRL's settings. SkyRL's own loader adds a state (torchdata 0.11)
with which a resumed run gets no row in its first epoch if the checkpoint is the last of an epoch, and other rows than
an uninterrupted run in later epochs.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import batched, chain, pairwise
from typing import Any

from loguru import logger
from skyrl.train.dataset import PromptDataset
from skyrl.train.fully_async_trainer import _AsyncDataloader
from torch.utils.data import DataLoader

from rg_env.config import RGDumpConfig
from rg_env.curriculum import Controller, Move, ObservedGroup, check_difficulty
from rg_env.dataset import ReasoningGymDataset, begin_worker
from rg_env.errors import ConfigError, need
from rg_env.eval_set import EvalSet
from rg_env.processes import usable_cores
from rg_env.tasks.items import hash64

Batch = list[dict[str, Any]]
"""Rows as SkyRL's trainers expect them."""


class _Order:
    """The rows of a run in order; a batch sampler of torch.

    Attributes:
        epoch, place: of the next row to hand out; `place` counts the rows of the epoch.
        used: numbers of rows that were handed out before, in another order, and are left out.
        drawn: what is decided about rows that are not handed out yet, by their number.
        ahead: whether to draw a batch before the one before it is handed out, as a loader with a worker does.
    """

    def __init__(self, draw: Callable[[int], Any], rows: int, epochs: int, end: int, at_once: int) -> None:
        self._draw, self._rows, self._epochs, self._end, self._at_once = draw, rows, epochs, end, at_once
        self.epoch, self.place, self.ahead = 0, 0, False
        self.used: set[int] = set()
        self.drawn: dict[int, Any] = {}
        self._batches: deque[Sequence[int]] = deque()

    def __iter__(self) -> Iterator[list[Any]]:
        """The draws of the batches that are left in the epoch."""
        self._batches.clear()
        batches = self._draw_batches()
        return (batch for batch, _ in pairwise(chain(batches, [[]]))) if self.ahead else batches

    def _draw_batches(self) -> Iterator[list[Any]]:
        first = self.epoch * self._rows
        left = range(first + self.place, first + self._end) if self.epoch < self._epochs else ()
        for batch in batched((number for number in left if number not in self.used), self._at_once):
            if len(batch) == self._at_once:  # a resumed run may have batches of another size
                self._batches.append(batch)
                self.drawn |= {number: self._draw(number) for number in batch if number not in self.drawn}
                yield [self.drawn[number] for number in batch]

    def take(self) -> Sequence[int]:
        """Note that the next batch is handed out. Returns the numbers of its rows."""
        batch = self._batches.popleft()
        for number in batch:
            del self.drawn[number]
        self.place = batch[-1] + 1 - self.epoch * self._rows
        return batch

    def begin(self, epoch: int, place: int = 0, used: Iterable[int] = ()) -> None:
        """Continue at another place."""
        self.epoch, self.place, self.used = epoch, place, set(used)

    def enter(self) -> None:
        """Begin the next epoch if this one is over."""
        if self.place > 0 and self.place + self._at_once > self._end:
            self.begin(self.epoch + 1)


class TrainLoader(DataLoader[Any]):
    """Hands out the rows of a run. SkyRL's trainers use it in place of their own loader.

    Args:
        dataset: gives a row for what `draw` decides.
        draw: what is decided about row n of the run.
        epochs: after which there are no more rows.
        batch_size: rows of a training batch. An epoch has whole batches only.
        at_once: rows that are handed out at once.
        workers: processes that make rows; 0: this one does.
        settings: on which the rows depend, for a comparison with those of a checkpoint.
        controller: moves the levels of a curriculum.
    """

    def __init__(
        self,
        dataset: ReasoningGymDataset | PromptDataset,
        draw: Callable[[int], Any],
        *,
        epochs: int,
        batch_size: int,
        at_once: int,
        workers: int,
        settings: Mapping[str, Any],
        controller: Controller | None = None,
    ) -> None:
        self._steps = len(dataset) // batch_size
        self._controller, self._settings = controller, {**settings, "train_batch_size": batch_size}
        self._lock = threading.Lock()  # observations and checkpoints come from different threads
        if controller is not None:
            workers = min(workers, 1)

        def decide(number: int) -> Any:
            return draw(number) if controller is None else controller.at_level(draw(number))

        self.order = _Order(decide, len(dataset), epochs, self._steps * batch_size, at_once)
        self.order.ahead = controller is not None and not workers
        super().__init__(
            dataset,  # type: ignore[arg-type]
            batch_sampler=self.order,
            collate_fn=dataset.collate_fn,
            num_workers=workers,
            persistent_workers=workers > 0,
            prefetch_factor=1 if controller is not None and workers else None,
            multiprocessing_context="spawn" if workers else None,  # a fork of Ray's connections would hang
            worker_init_fn=begin_worker,
        )

    def __len__(self) -> int:
        """Steps in an epoch, if each takes one batch."""
        return self._steps

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        """The batches that are left in the epoch, or those of the next."""
        self.order.enter()
        for batch in super().__iter__():
            with self._lock:
                numbers = self.order.take()
            yield [{**row, "uid": f"{row['uid']}#{number}"} for row, number in zip(batch, numbers, strict=True)]

    def observe(self, groups: Iterable[ObservedGroup]) -> list[Move]:
        """Note the groups of a training batch; later levels depend on them.

        Returns:
            the moves of levels that follow from them.
        """
        if self._controller is None:
            return []
        with self._lock:
            return self._controller.observe(groups)

    def metrics(self) -> dict[str, float]:
        """The level of each task now.

        The names contain `mean`, because SkyRL joins the metrics of batches by name and sums those it does not know.
        """
        levels = self._controller.complexities() if self._controller else {}
        return {f"level/mean_{task}": level for task, level in levels.items()}

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs; it becomes part of SkyRL's checkpoint."""
        with self._lock:
            state = {"settings": self._settings, "epoch": self.order.epoch, "place": self.order.place}
            if self._controller is not None:
                state |= {"levels": self._controller.state_dict(), "drawn": dict(self.order.drawn)}
            return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the state was saved.

        If the settings have changed since, rows follow the new ones, and levels stay.

        Raises:
            ConfigError: the state is not one of `state_dict`. Nothing has changed then.
        """
        try:
            before, epoch, place = state["settings"], int(state["epoch"]), int(state["place"])
            changed = [name for name, value in self._settings.items() if before.get(name) != value]
            drawn = {} if changed else dict(state.get("drawn", {}))
            if self._controller is not None and "levels" in state:
                self._controller.load_state_dict(state["levels"])
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ConfigError("the state of the data in the checkpoint is not one of rg_env's loader") from error
        if changed:
            names = ", ".join(f"{name} was {before.get(name)}, is {self._settings[name]}" for name in changed)
            logger.warning("the checkpoint was made with other settings ({}): rows follow the new ones", names)
        self.order.drawn = drawn
        self.order.begin(epoch, place)


class AsyncRows(_AsyncDataloader):
    """Hands out rows one by one, in the fully asynchronous loop.

    SkyRL's own resumes at the beginning of an epoch by making all rows again that were used up, and waits for a row in
    the event loop.
    """

    def __init__(self, loader: TrainLoader) -> None:
        super().__init__(loader, 1)
        self._loader = loader
        self._rows = iter(loader)

    async def get_next_non_consumed_data(self) -> Batch | None:
        """A batch of one row, or None at the end of the epoch."""
        async with self._lock:
            return await asyncio.to_thread(next, self._rows, None)

    async def reset_at_epoch_end(self) -> None:
        """Begin the next epoch."""
        self._consumed_data_uids.clear()
        self._filtered_data_uids.clear()
        self._begin(self._loader.order.epoch + 1)

    def load_state_from_checkpoint(
        self, consumed_data_uids_set: set[str], filtered_data_uids_set: set[str] | None = None
    ) -> None:
        """Which rows of the epoch were used up. SkyRL has called `load_state_dict` of the loader before."""
        self._consumed_data_uids, self._filtered_data_uids = consumed_data_uids_set, filtered_data_uids_set or set()
        self._begin(self._loader.order.epoch)

    def _begin(self, epoch: int) -> None:
        used = (int(uid.rpartition("#")[2]) for uid in self._consumed_data_uids)
        self._loader.order.begin(epoch, used=used)
        self._rows = iter(self._loader)


class EvalLoader:
    """The batches of an evaluation, the same each time. SkyRL's trainers use it in place of their own loader, whose
    processes would make a fixed evaluation set anew.

    Args:
        dataset: its rows; waited for only when they are needed.
        batch_size: in rows; the last batch may have fewer.
    """

    def __init__(self, dataset: EvalSet | PromptDataset, batch_size: int) -> None:
        self._dataset, self._batch_size = dataset, batch_size

    def __len__(self) -> int:
        return -(-len(self._dataset) // self._batch_size)

    def __iter__(self) -> Iterator[Batch]:
        rows = len(self._dataset)
        for start in range(0, rows, self._batch_size):
            batch = [self._dataset[row] for row in range(start, min(start + self._batch_size, rows))]
            yield self._dataset.collate_fn(batch)


_RELEVANT = ("tasks", "seed", "items", "complexity_mode", "curriculum_target_accuracy", "sampling")
"""Settings on which the rows of a run depend."""


def train_loader(cfg: Any, dataset: ReasoningGymDataset | PromptDataset) -> TrainLoader:
    """The loader of a run.

    Args:
        cfg: SkyRL's, with ours in it.
        dataset: items on demand, or the rows of files.

    Raises:
        ConfigError: settings of difficulty or sampling that exclude each other, or fewer rows than a batch has.
    """
    rg: RGDumpConfig = cfg.rg_dump
    batch_size, rows, controller = cfg.trainer.train_batch_size, len(dataset), None
    need(rows >= batch_size, "trainer.train_batch_size", batch_size, f"the data has only {rows} rows")
    if isinstance(dataset, ReasoningGymDataset):
        check_difficulty(rg, dataset.scales)
        if rg.complexity_mode == "curriculum":
            controller = Controller(dataset.scales, rg.curriculum_target_accuracy)

        def draw(number: int) -> Any:
            again = rg.items is not None and number >= rows  # the first pass is in order
            return dataset.train_draw(_shuffled(number, rows, dataset.seed) if again else number)

        settings = {name: getattr(rg, name) for name in _RELEVANT}
        workers = min(cfg.data.dataloader.num_workers, usable_cores())  # more would only delay the first batch
    else:  # the rows are in memory: there is nothing to make

        def draw(number: int) -> Any:
            return _shuffled(number, rows, cfg.trainer.seed)

        settings = {"data.train_data": list(cfg.data.train_data), "trainer.seed": cfg.trainer.seed}
        workers = 0
    return TrainLoader(
        dataset,
        draw,
        epochs=cfg.trainer.epochs,
        batch_size=batch_size,
        at_once=1 if cfg.trainer.fully_async.enabled else batch_size,
        workers=workers,
        settings=settings,
        controller=controller,
    )


def _shuffled(number: int, rows: int, seed: int) -> int:
    """Which row of a finite set is row `number` of a run; each epoch has its own order."""
    epoch, place = divmod(number, rows)
    return _order(rows, seed, epoch)[place]


@functools.lru_cache(maxsize=2)
def _order(rows: int, seed: int, epoch: int) -> list[int]:
    return sorted(range(rows), key=lambda row: hash64("pass", seed, epoch, row))
