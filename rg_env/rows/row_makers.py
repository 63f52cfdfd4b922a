"""Processes that make the rows of a run ahead: `RowMakers`.

    the trainer's process            server                         maker, several
    RowMakers(dataset, 8)  ────►   imports, reads the dataset,
                                   forks                  ────►  waits
    ahead(numbers)         ───────────────────────────────────►  makes the rows of a batch
    next(…)                ◄───────────────────────────────────

Invariant: batches come in the order in which they are asked for. The server imports what rows need, once for all
makers: Reasoning Gym, modules with tasks and, to count tokens, the tokenizer, but neither torch, Ray nor SkyRL, unless
a module with tasks does. All of them end with the trainer's process.
Not covered: a row that hangs, for which the trainer waits; a module with tasks that starts threads when it is imported,
which are not in the makers.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection, Pipe
from typing import Any

from rg_env.base.errors import RGEnvError
from rg_env.base.processes import die_with_parent
from rg_env.configuration.modules import hidden, import_named, modules_of_tasks
from rg_env.rows.dataset import Example, ReasoningGymDataset, Rows


def example_of_run(dataset: ReasoningGymDataset, number: int) -> Example:
    """Return a row of a run, which may be of a later epoch."""
    return dataset.example_of(dataset.item_of_run(number))


def make_batch(numbers: Iterable[int], example_of: Callable[[int], Example]) -> list[dict[str, Any]]:
    """Return the rows of a run with these numbers, which their uids end in."""
    examples = []
    for number in numbers:
        messages, env_class, extras, uid = example_of(number)
        examples.append((messages, env_class, extras, f"{uid}#{number}"))
    return Rows.collate_fn(examples)


class RowMakers:
    """Starts the processes and returns at once.

    Args:
        dataset: of the rows.
        count: of the processes, at least 1.
    """

    def __init__(self, dataset: ReasoningGymDataset, count: int) -> None:
        pipes = [Pipe() for _ in range(count)]
        self._makers = [ours for ours, _ in pipes]
        self._asked: deque[Connection] = deque()
        # Closed when this process ends, or this object: the server's sign to end.
        setup, self._trainer = Pipe(duplex=False)
        ends = [theirs.fileno() for _, theirs in pipes]
        command = [sys.executable, "-P", "-m", __name__, *map(str, ends)]
        self._server = subprocess.Popen(command, stdin=setup.fileno(), pass_fds=ends)
        for end in (setup, *(theirs for _, theirs in pipes)):
            end.close()
        # The dataset as bytes, because it is read after the modules are imported, of whose classes it may be.
        self._trainer.send((sys.path, modules_of_tasks(), pickle.dumps(dataset)))

    def ahead(self, batches: Iterable[Sequence[int]]) -> Iterator[list[dict[str, Any]]]:
        """Begin to make batches, one in each process, and return all of them, in order. Batches of an earlier call that
        nobody took are lost.

        Args:
            batches: the numbers of their rows.

        Raises:
            RGEnvError: a process ended, or what a row raised. The iterator raises it.
        """
        while self._asked:
            self._take()
        left = iter(batches)
        # A maker never has two batches: it could wait to send one while this process waits to ask for another.
        for maker, numbers in zip(self._makers, islice(left, len(self._makers)), strict=False):
            self._ask(maker, numbers)
        return self._in_order(left)

    def _ask(self, maker: Connection, numbers: Sequence[int]) -> None:
        with suppress(OSError):  # it ended: `_take` says so
            maker.send(numbers)
        self._asked.append(maker)

    def _take(self) -> tuple[Connection, Any]:
        """Return the maker that was asked first, and what it has made. Raises RGEnvError: it ended."""
        maker = self._asked.popleft()
        try:
            return maker, maker.recv()
        except (EOFError, OSError):
            raise RGEnvError("a process that makes rows of training ended; the log says why") from None

    def _in_order(self, left: Iterator[Sequence[int]]) -> Iterator[list[dict[str, Any]]]:
        while self._asked:
            maker, made = self._take()
            if isinstance(made, Exception):
                raise made
            if (numbers := next(left, None)) is not None:
                self._ask(maker, numbers)
            yield made


# ------------------------------------------------------------------------------------------- in the server's process
def serve(ends: Sequence[int]) -> None:
    """Body of the server: make ready, fork a maker for each of the trainer's pipes, and wait until the trainer ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the trainer ends us
    trainer = Connection(sys.stdin.fileno(), writable=False)
    sys.path[:], modules, pickled = trainer.recv()
    try:
        import rg_env.tasks.upstream.slim_import  # noqa: F401  # here, and not once in each maker

        import_named(modules)
        # To count tokens, transformers does not need torch, but imports it wherever it finds it. It remembers what it
        # did not find, so a module of the user's, which may use its models, gets what is installed.
        os.environ["TRANSFORMERS_VERBOSITY"] = "error"
        with nullcontext() if modules else hidden("torch"):
            dataset = pickle.loads(pickled)
    except Exception as error:
        for end in ends:
            Connection(end).send(_to_send(error))
        raise  # into the log, too: the trainer may ask anew before it has read these
    for end in ends:
        if os.fork() == 0:
            die_with_parent()
            for other in ends:
                if other != end:
                    with suppress(OSError):  # those of earlier makers are closed already
                        os.close(other)
            with suppress(EOFError, OSError):
                _make_for(Connection(end), dataset)
            os._exit(0)
        os.close(end)
    with suppress(EOFError):
        trainer.recv()


def _make_for(trainer: Connection, dataset: ReasoningGymDataset) -> None:
    """Body of a maker. Raises EOFError, OSError: the trainer ended."""
    while True:
        numbers = trainer.recv()
        made: Any
        try:
            made = make_batch(numbers, partial(example_of_run, dataset))
        except Exception as error:
            made = _to_send(error)
        trainer.send(made)


def _to_send(error: Exception) -> Exception:
    """Return an error that can be pickled, with its traceback, unless its line says all."""
    if isinstance(error, RGEnvError):
        return error
    return RuntimeError(f"a row of training cannot be made:\n{''.join(traceback.format_exception(error))}")


if __name__ == "__main__":
    serve([int(end) for end in sys.argv[1:]])
