"""The train loader: batches are planned in the trainer's process, and their rows are made elsewhere meanwhile.

Invariants:
- The rows are a function of the planner, its observations and the position in the run; not of the number of workers,
  their speed, or hash seeds.
- When a batch is handed out, the next one is planned and its rows are begun. So a level is at most one batch old in the
  synchronous loop. In the fully asynchronous loop, batches are handed out row by row: a row has missed the observations
  of at most `num_parallel_generation_workers + 2 · train_batch_size − 1` groups when its generation starts.
- `state_dict` has what was planned and not used up, so a resumed run gets the same rows as an uninterrupted one.

In the fully asynchronous loop, groups that were generated but not trained on before a crash are generated again, and
then observed again.
"""

from __future__ import annotations

import asyncio
import functools
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from loguru import logger
from skyrl.train.dataset import PromptDataset

from rg_env.config import RGDumpConfig
from rg_env.curriculum import GroupFacts, Move, Planner
from rg_env.dataset import ReasoningGymDataset
from rg_env.eval_set import EvalSet
from rg_env.processes import usable_cores
from rg_env.skyrl.row_maker import Make, RowMaker

Batch = list[dict[str, Any]]
"""Rows as SkyRL's trainers expect them."""


class Plans(Protocol):
    """Decides which rows a batch has: `rg_env.curriculum.Planner`, or `ShuffledFiles`."""

    def plan(self, position: int, count: int) -> Sequence[Any]: ...
    def observe(self, groups: Iterable[GroupFacts]) -> list[Move]: ...
    def complexities(self) -> Mapping[str, float]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class ShuffledFiles:
    """The rows of files in an order that is new in every epoch.

    Args:
        rows: their number.
        seed: of the order.
    """

    def __init__(self, rows: int, seed: int) -> None:
        self._rows, self._seed = rows, seed

    def plan(self, position: int, count: int) -> Sequence[int]:
        """The numbers of the rows of a batch, which is within one epoch."""
        epoch, place = divmod(position, self._rows)
        return _shuffled(self._rows, self._seed, epoch)[place : place + count]

    def observe(self, groups: Iterable[GroupFacts]) -> list[Move]:
        return []

    def complexities(self) -> Mapping[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@functools.lru_cache(maxsize=2)
def _shuffled(rows: int, seed: int, epoch: int) -> list[int]:
    order = list(range(rows))
    random.Random(f"{seed} {epoch}").shuffle(order)
    return order


@dataclass(frozen=True, slots=True)
class _Planned:
    """A batch whose rows are being made.

    Attributes:
        number: of the batch in the run, from 0.
        draws: what is decided about each row.
        rows: the rows, as `collate_fn` takes them.
    """

    number: int
    draws: Sequence[Any]
    rows: Sequence[Future[Any]]


class TrainLoader:
    """Hands out the batches of a run. SkyRL's synchronous trainer uses it in place of its own loader.

    Args:
        plans: decides which rows a batch has.
        make: makes a row from what was decided.
        collate: makes a batch of rows.
        rows: in an epoch, at least `batch_size`. An epoch has whole batches only.
        epochs: after which nothing more is planned.
        batch_size: in rows.
        workers: processes that make rows; 0: a thread.
        settings: on which the rows depend, for a comparison with those of a checkpoint.
    """

    def __init__(
        self,
        plans: Plans,
        make: Make,
        collate: Callable[[list[Any]], Batch],
        *,
        rows: int,
        epochs: int,
        batch_size: int,
        workers: int,
        settings: Mapping[str, Any],
    ) -> None:
        self._plans, self._collate = plans, collate
        self._rows, self._epochs, self._batch_size = rows, epochs, batch_size
        self._settings = {**settings, "train_batch_size": batch_size}
        self._maker = RowMaker(make, workers)
        self._lock = threading.RLock()  # plans, observations and checkpoints come from different threads
        self._taken = 0
        """Number of batches handed out."""
        self._next = self._begin(0)

    def __len__(self) -> int:
        return self._rows // self._batch_size

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the current epoch that have not been handed out, or those of the next epoch."""
        end = (self._taken // len(self) + 1) * len(self)
        while self._taken < end:
            yield self._collate([row.result() for row in self._take().rows])

    def observe(self, groups: Iterable[GroupFacts]) -> list[Move]:
        """Note the groups of a training batch; later plans depend on them.

        Returns:
            the moves of levels that follow from them.
        """
        with self._lock:
            return self._plans.observe(groups)

    def metrics(self) -> dict[str, float]:
        """The level of each task now.

        The names contain `mean`, because SkyRL joins the metrics of batches by name and sums those it does not know.
        """
        with self._lock:
            return {f"level/mean_{task}": level for task, level in self._plans.complexities().items()}

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs; it becomes part of SkyRL's checkpoint."""
        with self._lock:
            planned = None if self._next is None else self._next.draws
            return {
                "settings": self._settings,
                "taken": self._taken,
                "planned": planned,
                "plans": self._plans.state_dict(),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the state was saved.

        If the settings have changed since, rows that are not used up follow the new ones, and levels stay.
        """
        with self._lock:
            self._drop()
            changed = self._changes(state["settings"])
            if changed:
                logger.warning("the checkpoint was made with other settings ({}): rows follow the new ones", changed)
            if state["plans"]:  # empty for files
                self._plans.load_state_dict(state["plans"])
            rows = state["taken"] * state["settings"]["train_batch_size"]
            self._taken = -(-rows // self._batch_size)
            self._next = self._begin(self._taken, None if changed else state["planned"])

    def close(self) -> None:
        """End all processes. May be called again."""
        self._maker.close()

    def _take(self) -> _Planned:
        """The next batch; the one after it is begun."""
        with self._lock:
            batch = self._next
            assert batch is not None, "all epochs are over"
            self._taken += 1
            self._next = self._begin(self._taken)
            return batch

    def _begin(self, number: int, draws: Sequence[Any] | None = None) -> _Planned | None:
        """Begin to make a batch."""
        if number >= self._epochs * len(self):
            return None
        if draws is None:
            draws = self._plans.plan(self._position(number * self._batch_size), self._batch_size)
        return _Planned(number, draws, self._maker.submit(draws))

    def _position(self, row: int) -> int:
        """The position in the planner's sequence of a row of the run. The rows that are left over in an epoch count."""
        epoch, place = divmod(row, len(self) * self._batch_size)
        return epoch * self._rows + place

    def _drop(self) -> None:
        for row in self._next.rows if self._next else ():
            row.cancel()

    def _changes(self, before: Mapping[str, Any]) -> str:
        """Which settings are not what they were, in words; empty: none."""
        changed = [name for name, value in self._settings.items() if before.get(name) != value]
        return ", ".join(
            name if name == "tasks" else f"{name} was {before.get(name)}, is {self._settings[name]}" for name in changed
        )


class AsyncTrainLoader(TrainLoader):
    """Hands out the rows of a run one by one, in place of SkyRL's `_AsyncDataloader`, of which it has the methods.

    A row is open from when it is handed out until it is trained on or dropped; open rows are part of the checkpoint.
    SkyRL resumes with a loader at the beginning of the epoch and skips the rows that were used up, which would need all
    draws of the epoch again.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._epoch = 0
        self._waiting: deque[tuple[int, Any, Future[Any]]] = deque()
        self._open: dict[int, Any] = {}
        self._numbers: dict[str, int] = {}
        self._consumed: set[str] = set()
        self._filtered: set[str] = set()

    async def get_next_non_consumed_data(self) -> Batch | None:
        """A batch of one row, or None at the end of the epoch."""
        with self._lock:
            if not self._waiting:
                if self._taken >= (self._epoch + 1) * len(self):
                    return None
                batch = self._take()
                first = batch.number * self._batch_size
                self._waiting.extend(zip(range(first, first + self._batch_size), batch.draws, batch.rows, strict=True))
            number, draw, row = self._waiting.popleft()
            self._open[number] = draw
        made = self._collate([await asyncio.wrap_future(row)])
        self._numbers[made[0]["uid"]] = number
        return made

    async def mark_consumed_uids(self, uids: Iterable[str]) -> None:
        """These rows were trained on."""
        with self._lock:
            for uid in uids:
                assert uid not in self._consumed, f"row {uid} was used up twice in an epoch"
                self._consumed.add(uid)
                del self._open[self._numbers.pop(uid)]

    async def mark_filtered_uids(self, uids: Iterable[str]) -> None:
        """These rows were dropped and are not generated again."""
        uids = list(uids)
        await self.mark_consumed_uids(uids)
        self._filtered.update(uids)

    def get_consumed_uids_list(self) -> list[str]:
        return list(self._consumed)

    def get_filtered_uids_list(self) -> list[str]:
        return list(self._filtered)

    def num_trained(self) -> int:
        """Number of rows of this epoch that were trained on."""
        return len(self._consumed) - len(self._filtered)

    async def reset_at_epoch_end(self) -> None:
        """Begin the next epoch."""
        with self._lock:
            self._epoch += 1
            self._consumed.clear()
            self._filtered.clear()

    def load_state_from_checkpoint(self, consumed: set[str], filtered: set[str] | None = None) -> None:
        """Which rows of the epoch were used up. SkyRL has called `load_state_dict` before."""
        self._consumed, self._filtered = consumed, filtered or set()

    def state_dict(self) -> dict[str, Any]:
        with self._lock:
            unused = self._open | {number: draw for number, draw, _ in self._waiting}
            return super().state_dict() | {"epoch": self._epoch, "unused": unused}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        with self._lock:
            super().load_state_dict(state)
            self._epoch = state["epoch"]
            unused = dict(sorted(state["unused"].items()))
            if self._changes(state["settings"]):
                unused = {number: self._plans.plan(self._position(number), 1)[0] for number in unused}
            rows = self._maker.submit(unused.values())
            self._waiting = deque((*item, row) for item, row in zip(unused.items(), rows, strict=True))


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


_RELEVANT = (
    "tasks",
    "seed",
    "items",
    "complexity_mode",
    "curriculum_target_accuracy",
    "sampling",
)
"""Settings on which the rows of a run depend."""


def train_loader(cfg: Any, dataset: ReasoningGymDataset | PromptDataset, kind: type[TrainLoader]) -> TrainLoader:
    """The loader of a run.

    Args:
        cfg: SkyRL's, with ours in it.
        dataset: items on demand, or the rows of files.
        kind: the loader of the training loop.

    Raises:
        ConfigError: settings of difficulty or sampling that exclude each other.
    """
    rg: RGDumpConfig = cfg.rg_dump
    plans: Plans
    if isinstance(dataset, ReasoningGymDataset):
        plans, make = Planner(dataset.mix, dataset.scales, rg, dataset.seed), dataset.example_of
        settings = {name: getattr(rg, name) for name in _RELEVANT}
        workers = min(cfg.data.dataloader.num_workers, usable_cores())  # more would only delay the first batch
    else:  # the rows are in memory: there is nothing to make
        plans, make = ShuffledFiles(len(dataset), cfg.trainer.seed), dataset.__getitem__
        settings = {"data.train_data": list(cfg.data.train_data), "trainer.seed": cfg.trainer.seed}
        workers = 0
    return kind(
        plans,
        make,
        dataset.collate_fn,
        rows=len(dataset),
        epochs=cfg.trainer.epochs,
        batch_size=cfg.trainer.train_batch_size,
        workers=workers,
        settings=settings,
    )
