"""Makes the items that requests name, in processes of their own.

An item may take seconds, in which a thread of the server would hold Python's lock against all answers. The processes
are the runner's, so they start with the first item, may be killed, and end with the server. A client that leaves, and
an item that takes longer than `LIMIT_SECONDS`, cost a fork.

Invariant: an item is the same as in the calling process, because it is a function of what it is asked for.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rg_env.base.choices import Split
from rg_env.base.errors import ConfigError
from rg_env.configuration.modules import modules_of_tasks
from rg_env.rows.item_source import ItemSource, item_of_id
from rg_env.rows.prompts import Prompts
from rg_env.runner.caller_pool import WALL_FACTOR, ScorerPool
from rg_env.runner.failures import Failure, JobFailedError, ProtocolError, reason_of
from rg_env.runner.handover import wait_async
from rg_env.tasks import Item, TaskMix, TaskSpec

LIMIT_SECONDS = 60.0
"""Of wall time, because a task of the user's may have threads and processes."""
_NICENESS = 10
"""Making items leaves the cores to answers, if there is not enough of them for both."""


class RowWanted(NamedTuple):
    """The item of a row. `task` has no file."""

    task: TaskSpec
    seed: int
    split: Split
    number: int


Wanted = str | RowWanted
"""What names an item: its id, or its row."""


class NotMadeError(Exception):
    """The processes could not make an item, this time."""


class ItemMakers:
    """Processes that make items.

    Args:
        size: items that are made at the same time.
    """

    def __init__(self, size: int) -> None:
        self._target = pickle.dumps((__name__, make_maker.__name__))
        # Without the sandbox: what makes items has seen no answer, and a user's task may read files.
        self._pool = ScorerPool(size, LIMIT_SECONDS / WALL_FACTOR, _modules, memory_mb=0)

    async def make(self, wanted: Wanted) -> Item:
        """Return an item.

        Raises:
            ConfigError: there is no such item. NotMadeError: it took too long, or its process died.
            ScorerPoolError: the processes cannot be started.
        """
        # By a file, since a reply of the runner is short.
        with tempfile.NamedTemporaryFile(prefix="rg-env-item-") as file:
            request = pickle.dumps((file.name, wanted))
            try:
                reason = await wait_async(self._pool.run(self._target, request, _check))
            except JobFailedError as failed:
                raise NotMadeError(_why_not(failed)) from None
            if reason:
                raise NotMadeError(reason)
            made = json.loads(file.read())
        if isinstance(made, str):
            raise ConfigError(made)
        return Item.from_extra_info(made)

    def close(self) -> None:
        """End the processes."""
        self._pool.close()


def _modules() -> list[str]:
    return ["rg_env.tasks.upstream.slim_import", __name__, *modules_of_tasks()]


def _check(reply: object) -> str:
    """Return the reason why there is no item; empty if there is one, or none can be made."""
    if reply == 0.0:
        return ""
    if isinstance(reply, str):
        return reason_of(reply)
    raise ProtocolError("neither 0 nor a reason")


def _why_not(failed: JobFailedError) -> str:
    if failed.failure is Failure.TIMEOUT:
        return f"the item was not made within {LIMIT_SECONDS:g} s: its task takes too long, or the machine is busy"
    if failed.failure is Failure.CRASHED:
        return "the process that made the item died, and so did the one that tried again"
    return str(failed)


# What runs in the processes.


def make_maker() -> Callable[[bytes], float | str]:
    """Make what answers requests, pickled pairs of a file and what is wanted: 0, or why it could not be written."""
    os.nice(_NICENESS)

    def answer(request: bytes) -> float | str:
        path, wanted = pickle.loads(request)
        try:
            Path(path).write_text(json.dumps(_made(wanted)))
        except (OSError, MemoryError) as error:
            return f"the item could not be made: {error or type(error).__name__}"
        return 0.0

    return answer


def _made(wanted: Wanted) -> dict[str, Any] | str:
    """Return an item as the columns of a row, or why there is none."""
    try:
        if isinstance(wanted, str):
            item = item_of_id(wanted)
            assert item is not None, wanted
        else:
            source = _source_of(pickle.dumps(wanted._replace(number=0)))
            item = source.item(wanted.task, wanted.number)
    except (ConfigError, ValueError) as error:
        return str(error)
    return item.extra_info()


@functools.lru_cache(maxsize=256)
def _source_of(first: bytes) -> ItemSource:
    """Return the items of a pickled `RowWanted`. Kept, because a source may try the options of its task first."""
    row: RowWanted = pickle.loads(first)
    return ItemSource(TaskMix((row.task,)), row.seed, row.split, None, Prompts())
