"""Gives jobs to worker processes: for any number of threads and event loops, from one private thread.

The state of all pools belongs to one thread with one event loop. Callers hand a coroutine over to it (`wait`,
`wait_async`), so nothing here needs a lock, and nobody can stop it by blocking, giving up, or closing a loop.

Invariants:
- At most `size` workers exist, each with one job at a time. A worker is used again only after a complete, well-formed
  reply, and killed otherwise, because a late reply could be taken for that to a later job.
- The limits of a job, on CPU time and wall time, start when a worker that is ready for its target gets the job. Waiting
  for a worker, or for one to become ready, never counts.
- No answer scores 0 because the machine was busy: one whose worker got less CPU time than its limit is `starved`.
- The death of a worker costs no score: the job is tried once more, on a new worker. It is CRASHED if that dies, too.
- A fork server that ends by itself, as at an import error, fails every call from then on. One that was killed is
  started again, with pauses.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from loguru import logger

from rg_env.errors import ScorerPoolError
from rg_env.scoring.fork_server import ForkServer, JobFailedError, ProtocolError, Worker, reason_of
from rg_env.scoring.types import Status

_TRIES = 2
_WALL_FACTOR = 4.0
"""Wall time that an answer may take, in multiples of its CPU time."""
_PREPARE_SECONDS = 30.0
_PAUSES = (0.05, 0.5, 1.0, 2.0, 4.0)
"""Seconds after each failed start of a worker. An OOM killer may end several fork servers within a second."""
_JOBS_PER_WORKER = 10_000
"""After so many jobs a worker is replaced, which bounds memory leaks and the number of targets it holds."""
_CLOSED = "the scorer pool is closed"


class Mailbox:
    """Runs functions in an event loop, for other threads. Many that come at once cost one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._posted: deque[Callable[[], object]] = deque()
        self._is_called = False

    def post(self, function: Callable[[], object]) -> None:
        self._posted.append(function)
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the loop was closed, so nobody waits there any more
                self.loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._is_called = False  # before looking, so that what comes later calls again
        while self._posted:
            self._posted.popleft()()


_private: dict[int, Mailbox] = {}
"""That of the private loop, by process: a forked child has a loop of its own, and must never close its parent's."""
_callers: dict[asyncio.AbstractEventLoop, Mailbox] = {}
"""Those of the event loops that have asked."""


def wait[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine in the private loop; the calling thread waits, even if it runs an event loop."""
    finished: SimpleQueue[asyncio.Task[T]] = SimpleQueue()
    give_up = _hand_over(coroutine, finished.put)
    try:
        return finished.get().result()
    except BaseException:
        give_up()
        raise


async def wait_async[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine in the private loop; the running event loop does other things meanwhile."""
    loop = asyncio.get_running_loop()
    if (mailbox := _callers.get(loop)) is None:
        for closed in [known for known in list(_callers) if known.is_closed()]:
            _callers.pop(closed, None)
        mailbox = _callers[loop] = Mailbox(loop)
    finished: asyncio.Future[asyncio.Task[T]] = loop.create_future()
    give_up = _hand_over(coroutine, lambda task: mailbox.post(lambda: _settle(finished, task)))
    try:
        return (await finished).result()
    except BaseException:
        give_up()
        raise


def _settle[T](finished: asyncio.Future[T], result: T) -> None:
    if not finished.done():
        finished.set_result(result)


def _hand_over[T](
    coroutine: Coroutine[Any, Any, T], deliver: Callable[[asyncio.Task[T]], object]
) -> Callable[[], None]:
    """Run a coroutine in the private loop, and call `deliver` there at its end. Returns what cancels it."""
    if (private := _private.get(os.getpid())) is None:
        mailbox = Mailbox(asyncio.SelectorEventLoop())
        private = _private.setdefault(os.getpid(), mailbox)
        if private is mailbox:  # and no other thread was faster
            threading.Thread(target=mailbox.loop.run_forever, name="rg_env scorers", daemon=True).start()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        tasks.append(asyncio.create_task(coroutine))
        tasks[0].add_done_callback(deliver)

    private.post(start)
    return lambda: private.post(lambda: tasks[0].cancel())


class ScorerPool:
    """At most `size` workers, and the fork server that they come from; all of them start when they are needed.

    Args:
        size: number of jobs that run at the same time, at least 1.
        timeout: CPU seconds per job; at most four times that in wall time.
        modules: names what the workers have imported, when a fork server starts.
        memory_mb: how far a worker may grow beyond its imports, in MiB of address space; 0: without a sandbox.
    """

    def __init__(self, size: int, timeout: float, modules: Callable[[], list[str]], memory_mb: int = 1024) -> None:
        self._timeout = timeout
        self._limits = (memory_mb << 20, math.ceil(min(timeout, 1e9)))
        self._modules = modules
        self._owner = os.getpid()
        self._server: ForkServer | None = None
        self._places = asyncio.Semaphore(size)
        self._idle: list[Worker] = []
        self._failure: str | None = None

    @property
    def closed(self) -> bool:
        return self._failure == _CLOSED

    async def run[T](self, target: bytes, arguments: bytes, check: Callable[[object], T]) -> T:
        """The result of one job, waiting for a worker as long as it takes. Runs in the private loop.

        Args:
            target: pickled (module, function, …), as `worker.serve_requests` takes it.
            arguments: for what the function makes, pickled; at least one byte.
            check: makes the result from the reply. Raises ProtocolError for anything that the worker did not send.

        Raises:
            JobFailedError: the job has no result.
            ScorerPoolError: no worker can be started, or the pool was closed, or it belongs to another process.
        """
        if os.getpid() != self._owner:
            raise ScorerPoolError("this scorer pool belongs to the process that made it; make one in this process")
        async with self._places:
            for attempt in range(_TRIES):
                idle = self._idle_worker(target) if attempt == 0 else None
                worker = idle or await self._new_worker()
                try:
                    return check(await self._ask(worker, target, arguments))
                except (EOFError, OSError, ProtocolError):
                    worker.discard()
                    self._check_usable()
                finally:
                    if worker.is_waiting and worker.jobs < _JOBS_PER_WORKER:
                        self._idle.append(worker)
                    else:
                        worker.discard()
        raise JobFailedError(
            Status.CRASHED, "the scorer process died on this answer, and so did the one that tried again"
        )

    async def _ask(self, worker: Worker, target: bytes, arguments: bytes) -> object:
        """The reply of one worker, which first makes ready for the target. Raises what `Worker.ask` raises."""
        if target not in worker.prepared:
            reply = await worker.ask(target, b"", math.inf, _PREPARE_SECONDS)
            if reply != 0.0:
                raise JobFailedError(Status.ERROR, reason_of(reply))
            worker.prepared.add(target)
        worker.jobs += 1
        return await worker.ask(target, arguments, self._timeout, _WALL_FACTOR * self._timeout)

    def _idle_worker(self, target: bytes) -> Worker | None:
        """One that has prepared the target if there is any."""
        while self._idle:
            worker = max(self._idle, key=lambda worker: target in worker.prepared)
            self._idle.remove(worker)
            if worker.is_usable():
                return worker
        return None

    async def _new_worker(self) -> Worker:
        """Start a worker, and first a fork server if there is none. Raises ScorerPoolError."""
        for pause in _PAUSES:
            self._check_usable()
            server = self._server
            try:
                server = self._server = server or ForkServer(*self._limits, self._modules())
                return await server.fork()
            except (EOFError, OSError) as error:
                reason = repr(error)
                await asyncio.sleep(pause)  # the end of a worker shows before that of its fork server
                if server is not None and server is self._server:
                    reason = self._replace(server, error)
        self._failure = self._failure or f"the scorer processes do not start; the last error: {reason}"
        raise ScorerPoolError(self._failure)

    def _replace(self, server: ForkServer, error: Exception) -> str:
        """Make room for a new fork server if this one has ended or does not answer. Returns what happened."""
        code = server.process.poll()  # negative if a signal ended it
        if code is None and not isinstance(error, TimeoutError):
            return f"a worker ended at its start: {error!r}"
        self._server = None
        server.kill()
        reason = server.last_line() if code else f"they did not answer in time: {error!r}"
        logger.debug(f"scorer processes: {reason}; starting new ones")
        if code is not None and code > 0:
            self._failure = f"the scorer processes do not start: {reason}"
        return reason

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise ScorerPoolError(self._failure)

    def close(self) -> None:
        """End all processes. Running and later calls raise ScorerPoolError. For any thread, and more than once."""
        if os.getpid() == self._owner and (server := wait(self._shut())):
            server.close()  # ends the workers, so that all who wait for one notice

    async def _shut(self) -> ForkServer | None:
        self._failure = _CLOSED
        server, self._server = self._server, None
        return server
