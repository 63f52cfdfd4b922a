"""Two ways to wait for a worker: in the calling thread, or in an event loop.

Invariant: a coroutine that awaits nothing but one of these objects runs in both. With `Blocking` it never suspends, so
`blocking` runs it without an event loop.
"""

from __future__ import annotations

import asyncio
import math
import select
import socket
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Protocol


class Waiting(Protocol):
    """How a caller waits."""

    async def ready(self, sock: socket.socket, seconds: float, to_write: bool = False) -> bool:
        """Whether the socket can be read (or written) within this time. An end of the connection can be read, too."""

    async def result[T](self, future: Future[T]) -> T:
        """The result of a future that another thread sets."""


class Blocking:
    """Waits in the calling thread."""

    async def ready(self, sock: socket.socket, seconds: float, to_write: bool = False) -> bool:
        poll = select.poll()
        poll.register(sock, select.POLLOUT if to_write else select.POLLIN)
        return bool(poll.poll(math.ceil(1000 * max(0.0, seconds))))

    async def result[T](self, future: Future[T]) -> T:
        return future.result()


def blocking[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits with `Blocking`."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("the coroutine suspends")


class InLoop:
    """Waits in the running event loop, which does other things meanwhile."""

    async def ready(self, sock: socket.socket, seconds: float, to_write: bool = False) -> bool:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[bool] = loop.create_future()
        add, remove = (loop.add_writer, loop.remove_writer) if to_write else (loop.add_reader, loop.remove_reader)
        add(sock.fileno(), _resolve, found, True)
        timer = loop.call_later(max(0.0, seconds), _resolve, found, False)
        try:
            return await found
        finally:
            timer.cancel()
            remove(sock.fileno())

    async def result[T](self, future: Future[T]) -> T:
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        done: asyncio.Future[bool] = loop.create_future()

        def wake(_: object) -> None:
            if threading.get_ident() == thread:  # nearly always; `call_soon_threadsafe` costs two system calls
                _resolve(done, True)
            else:
                loop.call_soon_threadsafe(_resolve, done, True)

        future.add_done_callback(wake)
        await done
        return future.result()


def _resolve(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
