"""Messages between the process that asks and a scorer process, and two ways to wait for them.

Invariant: requests are pickles, because a worker may trust the process that asks. A reply is one line of JSON, checked
value by value and never unpickled, because a worker may have run model output: whatever bytes it sends, `read_reply`
returns two forms or raises `ProtocolError`.
"""

from __future__ import annotations

import asyncio
import json
import math
import select
import socket
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from time import monotonic
from typing import Any, Protocol

from rg_env.errors import one_line
from rg_env.scoring.types import Form

MAX_LINE = 200
_MAX_REPLY_BYTES = 8192
_REST_OF_A_REPLY = 1.0
"""A worker writes its reply at once, so its rest comes within this time, in seconds."""


class ProtocolError(Exception):
    """The worker sent something invalid: do not use it any more."""


class Waiting(Protocol):
    """How a caller waits. What awaits nothing else runs in threads as well as in event loops."""

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
    """The result of a coroutine that waits with `Blocking`, and so never suspends."""
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


async def send(sock: socket.socket, request: bytes, waiting: Waiting, deadline: float) -> None:
    """Send a request, as much of it as the worker takes until the deadline (on the clock of `time.monotonic`).

    Raises:
        OSError: the worker is gone.
    """
    left = memoryview(request)
    while left:
        try:
            left = left[sock.send(left, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            if not await waiting.ready(sock, deadline - monotonic(), to_write=True):
                return


async def read_reply(sock: socket.socket, waiting: Waiting) -> tuple[Form, Form]:
    """Read a reply that has begun to arrive: (raw, tagged).

    Raises:
        EOFError, OSError: the worker is gone.
        ProtocolError: `reply_of` cannot have written this.
    """
    received, deadline = b"", monotonic() + _REST_OF_A_REPLY
    while not received.endswith(b"\n"):
        if received and not await waiting.ready(sock, deadline - monotonic()):
            raise ProtocolError("an incomplete reply")
        if not (chunk := sock.recv(_MAX_REPLY_BYTES, socket.MSG_DONTWAIT)):
            raise EOFError
        received += chunk
        if len(received) > _MAX_REPLY_BYTES:
            raise ProtocolError("too long a reply")
    return forms_of(received)


def reply_of(raw: Form, tagged: Form) -> bytes:
    """The worker's reply. Lines are cut so that it is never too long: JSON takes at most 12 bytes per character."""
    cut = [form[:MAX_LINE] if isinstance(form, str) else form for form in (raw, tagged)]
    return json.dumps(cut).encode() + b"\n"


def forms_of(line: bytes) -> tuple[Form, Form]:
    """The forms in a worker's reply.

    Raises:
        ProtocolError: `reply_of` cannot have written this.
    """
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the reply is not JSON: {error}") from None
    if not isinstance(reply, list) or len(reply) != 2:
        raise ProtocolError("the reply does not have two forms")
    return _checked(reply[0]), _checked(reply[1])


def _checked(form: object) -> Form:
    if isinstance(form, str):
        return one_line(form, MAX_LINE) or "no reason given"
    if isinstance(form, float) and math.isfinite(form) and 0 <= form <= 1:
        return form
    raise ProtocolError("a form is neither a score in [0, 1] nor a reason")
