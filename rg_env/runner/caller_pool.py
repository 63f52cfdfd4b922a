"""The caller's side: gives jobs to worker processes, for any number of threads and event loops.

One job, from the caller to its result, and who may end where:

    caller's thread          private thread              server process          worker
    ---------------          --------------              --------------          ------
    wait(pool.run(…))  ───►  waits for a place
      may give up at         takes an idle worker, or
      any time               asks for one        ─────►  fork             ───►   enters the sandbox
                                                 ◄────────────────────────────   says its pid
                             sends target and
                             arguments           ─────────────────────────────►  calls the function
                             waits: CPU time,                                    may hang, die, lie,
                             wall time                                           or run an answer
                             checks the reply    ◄─────────────────────────────  one line of JSON
                             a worker that is not
                             used again          ─────►  kill, reap later ───►   ended
                             frees the place
    result             ◄───  delivers

In a fresh pool workers wait forked; when a job has taken one, the next is forked after it, or while it runs if none is
left. In any other, a job takes along up to 15 that wait behind it, in one message (`_ask_for_several`): a message takes
longer than most answers.

The caller may be interrupted or end at any point: its job is cancelled, its worker killed. A worker that ends, or says
anything else than a reply, is killed, and the job tried once more. A server that ends or is stopped is started again.
All of them end when the caller's process ends.

The state of all pools belongs to one private thread, to which callers hand coroutines over (`handover`), so nothing
here needs a lock.

Invariants:
- At most `size` workers have jobs: one each, or one message of several. A worker is used again only after a complete,
  well-formed reply, and killed otherwise. A reply names its message, so that none is taken for that to a later job. In
  a fresh pool, none is used again; at most one for each place, or for each job that runs, waits forked.
- A message of several decides nothing but values. If anything is wrong with it, or a reply with one of its jobs, all of
  them are asked for again, each alone: limits, failures and excuses are those of a job alone.
- The limits of a job start when a worker that is ready for its target gets the job. Waiting for a worker, or for one to
  become ready, never counts.
- No answer scores 0 because the machine was busy: one whose worker got less CPU time than its limit is excused, also
  while it made ready.
- The death of a worker costs no score: the job is tried once more, on a new worker. It is CRASHED if that dies, too.
- Only what no later attempt can fix fails every call from then on: a module that cannot be imported, an example with
  another value. All else fails the calls of that moment.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakMethod

from .caller_worker import START_SECONDS, ForkServer, Limit, Worker, cpu_seconds, is_asleep
from .failures import Failure, JobFailedError, ProtocolError, ScorerPoolError, describe, reason_of
from .handover import has_private_thread, is_private_thread, wait
from .protocol import CANNOT_SERVE

logger = logging.getLogger(__package__)

_TRIES = 2
WALL_FACTOR = 4.0
"""Wall time that an answer may take, in multiples of its CPU time."""
_PREPARE_SECONDS = 30.0
"""CPU seconds in which a worker makes ready for a target."""
_PAUSES = (0.05, 0.5, 1.0, 2.0, 4.0)
"""Seconds after each failed start of a worker. An OOM killer may end several servers within a second."""
_LOOKS_AT_IDLE = 1.0
_JOBS_PER_WORKER = 10_000
"""Jobs per worker before it is recycled, which bounds memory leaks and the number of targets it holds."""
_MOST_TOGETHER = 16
"""Jobs in a message."""
_CLOSED = "the scorer pool is closed"


@dataclass(slots=True, eq=False)
class _Waiting:
    """A job that waits for a worker.

    Attributes:
        check: makes the result from the reply.
        turn: ends the wait, with a list of the result if another job has taken this one along, or an empty one: it has
            to ask a worker itself.
    """

    target: bytes
    arguments: bytes
    check: Callable[[object], Any]
    turn: asyncio.Future[list[Any]]

    def end_wait(self, result: list[Any]) -> bool:
        """Return whether it waited: nobody may want the result any more."""
        waited = not self.turn.done()
        if waited:
            self.turn.set_result(result)
        return waited


class ScorerPool:
    """At most `size` workers with a job, and the server that they come from; all of them start when they are needed.

    Args:
        size: number of jobs that run at the same time, at least 1; or a semaphore that several pools share.
        timeout: CPU seconds per job; at most four times that in wall time. Without a sandbox only wall time counts.
        modules: names what the workers have imported, when a server starts.
        memory_mb: how far a worker may grow beyond its imports, in MiB of address space; 0: without a sandbox.
        fresh: each job gets a worker that has had none.
        preparation: a pickle of (target, examples): the server is a prepared one, which makes the target ready and
            calls the examples before it forks. Empty: it is none.
    """

    def __init__(
        self,
        size: int | asyncio.Semaphore,
        timeout: float,
        modules: Callable[[], list[str]],
        memory_mb: int = 1024,
        fresh: bool = False,
        preparation: bytes = b"",
    ) -> None:
        self._is_sandboxed = memory_mb > 0
        self._timeout = timeout
        self._server_limits = (memory_mb << 20, math.ceil(min(timeout, 1e9)))
        self._modules = modules
        self._fresh, self._preparation = fresh, preparation
        self._owner = os.getpid()
        self._server: ForkServer | None = None
        self._places = asyncio.Semaphore(size) if isinstance(size, int) else size
        # One for each core that the pool may use, or one if others may use them, too.
        self._most_ahead = size if isinstance(size, int) else 1
        self._idle: list[Worker] = []
        self._first: _Waiting | None = None
        """The job that waits for a place, and takes along those behind it."""
        self._behind: deque[_Waiting] = deque()
        self._next_look: asyncio.TimerHandle | None = None
        # The event loop keeps only weak references to its tasks.
        self._forking: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self.jobs = 0
        """How many jobs wait for a worker or have one. For who decides which pool can be closed."""
        self._running = 0
        """How many of them have one, or are about to get one."""

    @property
    def closed(self) -> bool:
        return self._failure == _CLOSED

    async def run[T](self, target: bytes, arguments: bytes, check: Callable[[object], T]) -> T:
        """Return the result of one job, waiting for a worker as long as it takes. Runs in the private loop.

        Args:
            target: pickled (module, function, …), as `child_process.serve_requests` takes it.
            arguments: for what the function makes, pickled; at least one byte.
            check: makes the result from the reply. Raises ProtocolError for anything that the worker did not send.

        Raises:
            JobFailedError: the job has no result.
            ScorerPoolError: no worker can be started, or the pool was closed, or it belongs to another process.
        """
        if os.getpid() != self._owner:
            raise ScorerPoolError("this scorer pool belongs to the process that made it; make one in this process")
        self._check_usable()
        self.jobs += 1
        try:
            if self._fresh:
                async with self._places:
                    return await self._try_twice(target, arguments, check)
            job = _Waiting(target, arguments, check, asyncio.get_running_loop().create_future())
            return await self._run_with_others(job)  # type: ignore[no-any-return]
        finally:
            self.jobs -= 1

    async def _run_with_others(self, job: _Waiting) -> Any:
        """As `run`, of a job that may share a message with others. One of those that wait does so for a place."""
        try:
            if self._first is None:
                self._first = job
            else:
                self._behind.append(job)
                taken_along = await job.turn
                if taken_along:
                    return taken_along[0]
            async with self._places:
                if job is self._first:
                    result = await self._ask_for_several(job)
                    if result:
                        return result[0]
                return await self._try_twice(job.target, job.arguments, job.check)
        finally:
            if job is self._first:  # it gave up, or the pool is closed
                self._appoint_first()

    def _appoint_first(self) -> None:
        self._first = None
        while self._behind and self._first is None:
            job = self._behind.popleft()
            if job.end_wait([]):
                self._first = job

    async def _ask_for_several(self, job: _Waiting) -> list[Any]:
        """Ask a worker for the result of a job and those of others behind it, in one message.

        Whatever goes wrong decides nothing: then each of them asks alone, as if this had not been tried.

        Returns:
            a list of the job's result; an empty one if it has none, or no other job suits.
        """
        if self.jobs > 1:  # what comes in the same round of the loop is behind this one after it
            await asyncio.sleep(0)
        if not self._behind:
            return []
        jobs = [job]
        results: list[Any] = []
        try:
            with suppress(EOFError, OSError, ProtocolError, JobFailedError):
                async with self._borrowed(job.target, is_new=False) as worker:
                    jobs += self._take_along(job, worker)
                    self._appoint_first()
                    if len(jobs) > 1:
                        requests = [(each.target, each.arguments) for each in jobs]
                        replies = await worker.ask_several(requests, self._limit(self._timeout))
                        results = [each.check(reply) for each, reply in zip(jobs, replies, strict=True)]
        finally:
            for number, each in enumerate(jobs):
                each.end_wait(results[number : number + 1])
        return results[:1]

    def _take_along(self, job: _Waiting, worker: Worker) -> list[_Waiting]:
        """Take jobs out of those behind this one, if they and it are so quick that none waits long for the others."""
        taken: list[_Waiting] = []
        left: list[_Waiting] = []
        if not worker.is_quick(job.target):
            return taken
        most = _MOST_TOGETHER - 1
        if not self._places.locked():  # another worker is free for half of them
            most = min(most, len(self._behind) // 2)
        while self._behind and len(taken) < most and len(left) < _MOST_TOGETHER:
            each = self._behind.popleft()
            if each.turn.done():  # nobody waits for it any more
                continue
            if worker.is_quick(each.target):
                taken.append(each)
            else:
                left.append(each)
        self._behind.extendleft(reversed(left))
        return taken

    async def _try_twice[T](self, target: bytes, arguments: bytes, check: Callable[[object], T]) -> T:
        self._running += 1
        try:
            for attempt in range(_TRIES):
                # These say that the worker ended or lied: in `ask`, or in what `check` saw. `_borrowed` has killed it
                # by then. The answer may be innocent (an OOM killer), so it gets a second worker; after that the loop
                # ends, and with it the job as CRASHED.
                with suppress(EOFError, OSError, ProtocolError):
                    async with self._borrowed(target, is_new=attempt > 0) as worker:
                        return check(await self._ask(worker, target, arguments))
                self._check_usable()
        finally:
            self._running -= 1
        why = "the scorer process died on this answer, and so did the one that tried again"
        raise JobFailedError(Failure.CRASHED, why)

    @asynccontextmanager
    async def _borrowed(self, target: bytes, *, is_new: bool) -> AsyncIterator[Worker]:
        """Lend a worker for one job. After an exception, which may mean that a reply is still to come, it is killed."""
        # The second attempt gets a new process, because all that are idle may have died of the same thing.
        worker = None if is_new else self._idle_worker(target)
        if worker is None:
            worker = await self._new_worker()
        if self._fresh and not self._idle:
            self._fork_ahead()
        try:
            yield worker
        except BaseException:
            worker.discard()
            raise
        if self._fresh:
            # After the result is on its way to the caller, who need not wait for an end and a fork.
            asyncio.get_running_loop().call_soon(self._renew, worker)
        elif worker.jobs >= _JOBS_PER_WORKER or self.closed:
            worker.discard()
        else:
            self._keep_idle(worker)

    async def _ask(self, worker: Worker, target: bytes, arguments: bytes) -> object:
        """Return the reply of one worker, which first makes ready for the target. Raises what `Worker.ask` raises."""
        # Made ready in a request of its own: the limits of the job begin after it.
        if not worker.is_forked_ready and target not in worker.seconds:
            await self._make_ready(worker, target)
        return await worker.ask(target, arguments, self._limit(self._timeout))

    async def _make_ready(self, worker: Worker, target: bytes) -> None:
        try:
            reply = await worker.ask(target, b"", self._limit(_PREPARE_SECONDS))
        except JobFailedError as failed:
            if failed.excused:
                raise
            # No timeout, which would say something about the answer.
            raise JobFailedError(Failure.ERROR, f"it was not ready in time ({failed})") from None
        if reply != 0.0:
            raise JobFailedError(Failure.ERROR, reason_of(reply))
        worker.seconds[target] = math.inf

    def _limit(self, seconds: float) -> Limit:
        # Outside of the sandbox there may be threads and children, whose CPU time the process does not show.
        return Limit(seconds if self._is_sandboxed else math.inf, WALL_FACTOR * seconds)

    def _idle_worker(self, target: bytes) -> Worker | None:
        """Return an idle worker that has made the target ready, if there is any."""
        while self._idle:
            worker = max(self._idle, key=lambda worker: target in worker.seconds)
            self._idle.remove(worker)
            if worker.is_usable():
                return worker
            worker.discard()
        return None

    def _keep_idle(self, worker: Worker) -> None:
        """Keep a worker for a later job."""
        self._idle.append(worker)
        if self._next_look is None:
            # Weakly, so that a pool that nobody closed or has any more is freed, and its processes end.
            drop_ended = WeakMethod(self._drop_ended)
            self._next_look = asyncio.get_running_loop().call_later(_LOOKS_AT_IDLE, _call_if_alive, drop_ended)

    def _drop_ended(self) -> None:
        """Have idle workers reaped that have ended (an OOM killer), once a second, although nobody needs them.

        To wait for their end instead would take two system calls more for each job.
        """
        self._next_look = None
        workers, self._idle = self._idle, []
        for worker in workers:
            if worker.is_usable():
                self._keep_idle(worker)
            else:
                worker.discard()

    async def _new_worker(self) -> Worker:
        """Start a worker, and first a server if there is none. Raises ScorerPoolError, or JobFailedError: not ready."""
        for pause in _PAUSES:
            self._check_usable()
            server = self._server
            try:
                if server is None:
                    server = self._server = ForkServer(*self._server_limits, self._modules(), self._preparation)
                return await server.fork()
            except (EOFError, OSError) as error:
                reason = describe(error)
                had_core = server is None or _had_core(server)  # asked before the server is ended
                # An EOF means that a fork failed, or that the server is ending: a process closes its sockets first, and
                # has an exit code only when it has given back its memory. So `_replace` looks after a pause.
                await asyncio.sleep(pause)
                self._check_usable()  # closed meanwhile, with the server's files
                if server is not None and server is self._server:
                    reason = self._replace(server, error)
                # The server has hung while it imported or prepared: a new one would hang as long, for every attempt.
                if isinstance(error, TimeoutError) and self._preparation and server and not server.has_started:
                    raise _not_ready(had_core) from None
        self._check_usable()
        raise ScorerPoolError(f"the scorer processes do not start; the last error: {reason}")

    def _renew(self, worker: Worker) -> None:
        """End a worker, and have another take its place."""
        worker.discard()
        if not self.closed:
            self._fork_ahead()

    def _fork_ahead(self) -> None:
        """Have workers of a fresh pool wait forked: one for each core that is idle, and for each job that runs.

        The fork and the sandbox take longer than most calls, and the next call need not wait for them.
        """
        most = max(self._most_ahead, self._running)
        for _ in range(len(self._idle) + len(self._forking), most):
            task = asyncio.create_task(self._add_idle())
            self._forking.add(task)
            task.add_done_callback(self._forking.discard)

    async def _add_idle(self) -> None:
        server = self._server
        if server is None:
            return
        with suppress(EOFError, OSError):  # the next job asks itself, and says what is wrong
            worker = await server.fork()
            if self.closed:
                worker.discard()
            else:
                self._keep_idle(worker)

    def _replace(self, server: ForkServer, error: Exception) -> str:
        """Make room for a new server if this one has ended or does not answer. Returns what happened."""
        code = server.process.poll()
        # A server that runs and whose socket had room only failed to fork, and stays. A TimeoutError means that it has
        # not forked within START_SECONDS; a BlockingIOError that commands fill its socket, because it does not read
        # them: it is stopped or hangs. Both are replaced.
        if code is None and not isinstance(error, (TimeoutError, BlockingIOError)):
            return f"a worker exited at startup: {describe(error)}"
        self._server = None
        server.kill()
        reason = _end_of(code, server)
        logger.debug("scorer processes: %s; starting new ones", reason)
        # A server ends with 0 of itself only when its parent has gone. Before the first fork this was `os._exit(0)` in
        # a module that it imported, which ends every later attempt, too.
        if code == CANNOT_SERVE or (code == 0 and not server.has_started):
            self._failure = f"the scorer processes do not start: {reason}"
        return reason

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise ScorerPoolError(self._failure)

    def close(self) -> None:
        """End all processes. Running and later calls raise ScorerPoolError. For any thread, and more than once."""
        if os.getpid() != self._owner:
            return
        # Without a private thread nothing has started. At the interpreter's end it does not run any more; the
        # processes then end by themselves, because this one does.
        if not has_private_thread() or sys.is_finalizing():
            self._failure = _CLOSED
        elif is_private_thread():
            self._begin_to_end()  # and nobody there can wait for the end
        else:
            wait(self.shut())

    async def shut(self) -> None:
        """`close`, in the private loop. Who gives up waiting does not stop it."""
        self._begin_to_end()
        if self._ending is not None:
            await asyncio.shield(self._ending)  # ends the workers, so that all who wait for one notice

    def _begin_to_end(self) -> None:
        self._failure = _CLOSED
        while self._idle:
            self._idle.pop().discard()
        if self._server is not None and self._ending is None:
            self._ending = asyncio.create_task(self._server.close())


def _call_if_alive(method: WeakMethod[Callable[[], None]]) -> None:
    call = method()
    if call is not None:
        call()


def _had_core(server: ForkServer) -> bool:
    """Return whether a server that is late had a core, so that it is late by its own doing."""
    if server.process.poll() is not None:
        return True
    pid = server.process.pid
    return is_asleep(pid) or cpu_seconds(pid) >= START_SECONDS / WALL_FACTOR


def _not_ready(had_core: bool) -> JobFailedError:
    if had_core:
        return JobFailedError(Failure.ERROR, f"it was not ready in {START_SECONDS:g} s")
    return JobFailedError(Failure.TIMEOUT, "no core was free to make it ready", excused=True)


def _end_of(code: int | None, server: ForkServer) -> str:
    """Say how a server ended, as one line."""
    if code is None:
        return "they did not answer in time"
    last_line = server.last_line()
    if code == CANNOT_SERVE and last_line:
        return last_line
    if not last_line:
        last_line = "without an error message"
        if code >= 0 and not server.has_started:
            last_line = f"one of the modules {', '.join(server.modules)} exits the process on import (os._exit)"
    if code < 0:
        end = f"killed by signal {-code}"
    else:
        end = f"exit code {code}"
    return f"they exited on their own ({end}): {last_line}"
