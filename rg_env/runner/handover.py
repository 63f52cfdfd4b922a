"""Hands coroutines over to one private thread with one event loop, and results back, for any thread or event loop.

Callers hand a coroutine over (`wait`, `wait_async`), so nothing that runs there needs a lock, and nobody can stop it by
blocking, giving up, or closing a loop. Signal handlers run in the main thread only, so that none can interrupt what
runs here. What runs here has an empty context (`contextvars`), because workers, and what a scorer keeps of an answer,
outlive the call whose context it would be.

Invariants:
- The caller may be interrupted or end at any point: what it waits for is cancelled.
- A forked child has a thread and a loop of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from queue import SimpleQueue
from typing import Any
from weakref import WeakKeyDictionary, ref

from .failures import ScorerPoolError, describe

type Deliver[T] = Callable[[T], object]
"""Takes a result, in the thread that brings it."""
type Begin[T] = Callable[[Deliver[T]], Callable[[], object]]
"""Begins work that another thread does. Returns what gives it up, which is called if nobody waits any more."""

_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""The private loop, by process: a forked child has a loop of its own, and must never close its parent's."""
_inboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Inbox] = WeakKeyDictionary()


class _Inbox:
    """Calls of other threads to an event loop, which is woken once for all that come before it looks.

    `call_soon_threadsafe` alone wakes the loop for each call, which takes longer than most calls.
    """

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()
        self._looks = 0
        self._woken_before_look = -1

    def put(self, call: Callable[[], object]) -> None:
        self._calls.append(call)

    def wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the loop look, unless it is about to. A loop that was closed never does."""
        looks = self._looks
        if self._woken_before_look == looks:
            return
        try:
            # Its own context, because what begins there lives longer than the call whose context this is.
            loop.call_soon_threadsafe(self._look, loop, context=Context())
        except RuntimeError:
            self._calls.clear()
            return
        # Afterwards: if a signal handler raises before it, the next caller wakes the loop once more.
        self._woken_before_look = looks

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looks += 1  # first: whatever is put from here on wakes the loop again
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            if self._calls:  # one call raised
                self.wake(loop)


def _inbox_of(loop: asyncio.AbstractEventLoop) -> _Inbox:
    inbox = _inboxes.get(loop)
    if inbox is None:
        inbox = _inboxes.setdefault(loop, _Inbox())
    return inbox


def wait_for[T](begin: Begin[T]) -> T:
    """Return the result of this work; the calling thread waits."""
    # Not a future of `concurrent.futures`: an exception from a signal handler can leave its lock taken for ever.
    finished: SimpleQueue[T] = SimpleQueue()
    give_up = begin(finished.put)
    try:
        return finished.get()
    except BaseException:  # also whatever a signal handler raised
        give_up()
        raise


async def wait_for_async[T](begin: Begin[T]) -> T:
    """Return the result of this work; the running event loop does other things meanwhile."""
    loop = asyncio.get_running_loop()
    inbox = _inbox_of(loop)
    finished: asyncio.Future[T] = loop.create_future()
    waiting = ref(finished)  # an inbox that holds its own loop would never be freed

    def deliver(result: T) -> None:
        inbox.put(partial(_settle, waiting, result))
        inbox.wake(loop)

    give_up = begin(deliver)
    try:
        return await finished
    except BaseException:
        give_up()
        raise


def _settle[T](waiting: ref[asyncio.Future[T]], result: T) -> None:
    finished = waiting()
    if finished is not None and not finished.done():
        finished.set_result(result)


def wait[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine in the private loop; the calling thread waits, even if it runs an event loop.

    Raises:
        ScorerPoolError: the private thread cannot start, or is the calling one, or the program is ending.
    """
    if is_private_thread():
        coroutine.close()
        raise ScorerPoolError("the thread of the scorer processes cannot wait for itself")
    task: asyncio.Task[T] = wait_for(partial(_hand_over, coroutine, _call))
    return task.result()


async def wait_async[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine in the private loop; the running event loop does other things meanwhile."""
    if is_private_thread():
        return await coroutine
    # All that one round of the running loop hands over arrives together.
    after_this_round = asyncio.get_running_loop().call_soon
    task: asyncio.Task[T] = await wait_for_async(partial(_hand_over, coroutine, after_this_round))
    return task.result()


class _Job[T]:
    """A coroutine on its way through the private loop; `start` and `_cancel` run there, in this order."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, T],
        deliver: Deliver[asyncio.Task[T]],
    ) -> None:
        self._loop, self._coroutine, self._deliver = loop, coroutine, deliver
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._deliver)

    def give_up(self) -> None:
        inbox = _inbox_of(self._loop)
        inbox.put(self._cancel)  # behind `start`
        inbox.wake(self._loop)

    def _cancel(self) -> None:
        # None if an interrupt came before the loop got the job: then there is nothing to cancel.
        if self._task is not None:
            self._task.cancel()


def _hand_over[T](
    coroutine: Coroutine[Any, Any, T],
    when: Callable[[Callable[[], None]], object],
    deliver: Deliver[asyncio.Task[T]],
) -> Callable[[], None]:
    """Run a coroutine in the private loop, and call `deliver` there at its end. Returns what cancels it.

    Args:
        when: calls what wakes the private loop, now or a little later.
    """
    try:
        if sys.is_finalizing():  # the private thread does not run any more: a wait would have no end
            raise ScorerPoolError("the program is ending: nothing can be scored any more")
        loop = _private_loop()
    except BaseException:
        coroutine.close()
        raise
    job = _Job(loop, coroutine, deliver)
    inbox = _inbox_of(loop)
    # An exception of a signal handler may come in here: then the loop has the job, which runs for nobody, or has not.
    inbox.put(job.start)
    when(partial(inbox.wake, loop))
    return job.give_up


def _call(function: Callable[[], None]) -> None:
    function()


def is_private_thread() -> bool:
    """Return whether the caller is in the private thread. Also code of others is: garbage collection calls `__del__`
    in any thread."""
    try:
        return asyncio.get_running_loop() is _loops.get(os.getpid())
    except RuntimeError:  # no loop runs in this thread
        return False


def has_private_thread() -> bool:
    """Return whether the private thread of this process has started."""
    return os.getpid() in _loops


def _private_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process's private thread, which starts with the first call. Raises ScorerPoolError."""
    loop = _loops.get(os.getpid())
    return loop if loop is not None else _start_private_loop()


def _start_private_loop() -> asyncio.AbstractEventLoop:
    loop = None
    try:
        # A daemon: a scorer that nobody closes must not keep the program from ending.
        loop = asyncio.SelectorEventLoop()
        threading.Thread(target=_run_private_loop, args=(loop,), name="rg_env runner", daemon=True).start()
    except (OSError, RuntimeError, MemoryError) as error:  # no descriptors, no threads, or the interpreter is ending
        if loop is not None:
            loop.close()
        raise ScorerPoolError(f"the thread of the scorer processes cannot be started: {describe(error)}") from error
    # It runs, so it may be known. If another thread was faster, that one's loop is used.
    published = _loops.setdefault(os.getpid(), loop)
    if published is not loop:
        loop.call_soon_threadsafe(loop.stop)
    return published


def _run_private_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run until the loop is stopped."""
    while True:
        # asyncio lets these through, although the job has them, too. If the thread ended, every other job would wait
        # for ever. They come from code of others that runs here (pickling an entry), or from a moment without memory.
        with suppress(SystemExit, KeyboardInterrupt, MemoryError):
            loop.run_forever()
            # It was stopped because another thread's loop is used. Closed here, since at the end of the program its
            # sockets may be gone before it.
            loop.close()
            return
