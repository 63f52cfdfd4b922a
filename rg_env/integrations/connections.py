"""Connections of clients that send slowly, send nothing, or read nothing: each ends after a while.

uvicorn limits how long a connection idles between two requests, but neither how long the first line and the headers of
a request may take, nor how long a client may leave its reply unread. Who leaves it unread keeps the memory and the
descriptor, and with more requests in the same connection a route that waits to be let write.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rg_env.integrations.turns_of_clients import Shares

HEAD_SECONDS = 30.0
"""After which a connection on which no whole head of a request has come is closed. On a machine with work for ten times
its cores, a polite client may need more than 10 s between connecting and sending."""
KEEP_ALIVE_SECONDS = 60
REPLY_SECONDS = 120.0
"""After which a connection is closed whose client has not taken all of a reply, however steadily it reads."""
MOST_CONNECTIONS = 8192
_OTHER_FILES = 256
"""Descriptors that are not for connections: scorers, logs, files of questions."""


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with limits for heads, for replies, and for the connections of one address."""

    most_of_address = MOST_CONNECTIONS // 2
    _of_address: ClassVar[Shares] = Shares()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_timer, self._reply_timer = _Timer(self._abort), _Timer(self._abort)
        self._address = ""
        self._is_counted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Writing is paused as soon as the system takes no more, and goes on when it has taken everything.
        transport.set_write_buffer_limits(high=0)
        self._address = self.client[0] if self.client else ""
        # Counted even if it is refused: `connection_lost` follows the abort, and takes it back.
        self._of_address[self._address] += 1
        self._is_counted = True
        if self._of_address[self._address] > self.most_of_address:
            transport.abort()
            return
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        self._uncount()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        # The connection belongs to another protocol from now on, and its loss is not told to this one.
        self._stop_timers()
        self._uncount()
        super().handle_websocket_upgrade(event)

    def _uncount(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._of_address.give_back(self._address)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Only now: h11 has read the data, and its state says whether the head is whole.
        self._watch_head()

    def _watch_head(self) -> None:
        """Have the timer run while a head is incomplete."""
        if self.conn.their_state is h11.IDLE:
            self._head_timer.start(HEAD_SECONDS)
        else:
            self._head_timer.stop()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reply_timer.start(REPLY_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reply_timer.stop()

    def _stop_timers(self) -> None:
        self._head_timer.stop()
        self._reply_timer.stop()

    def _abort(self) -> None:
        # Not `close`, which would wait for the client to read.
        self.transport.abort()


class _Timer:
    """Calls a function once, unless it is stopped before."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        """Does nothing if it runs already."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(seconds, self._function)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def allow_connections() -> int:
    """Allow this process as many descriptors as it may have, and return how many connections they are enough for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MOST_CONNECTIONS, soft - _OTHER_FILES))
