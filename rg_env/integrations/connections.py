"""Connections of clients that send slowly, send nothing, or read nothing: each ends after a while.

uvicorn limits how long a connection idles between two requests, but neither how long the first line and the headers of
a request may take, nor how long a client may leave its reply unread.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""After which a connection on which no whole head of a request has come is closed."""
KEEP_ALIVE_SECONDS = 60
MOST_CONNECTIONS = 8192
_OTHER_FILES = 256
"""Descriptors that are not for connections: scorers, logs, files of questions."""


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with a limit for heads, and for the connections of one address."""

    most_of_address = MOST_CONNECTIONS // 2
    _of_address: ClassVar[Counter[str]] = Counter()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._address = ""
        self._is_counted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        # Counted even if it is refused: `connection_lost` follows the abort, and takes it back.
        self._of_address[self._address] += 1
        self._is_counted = True
        if self._of_address[self._address] > self.most_of_address:
            transport.abort()
            return
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._uncount()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        # The connection belongs to another protocol from now on, and its loss is not told to this one.
        self._uncount()
        super().handle_websocket_upgrade(event)

    def _uncount(self) -> None:
        if not self._is_counted:
            return
        self._is_counted = False
        self._of_address[self._address] -= 1
        if not self._of_address[self._address]:
            del self._of_address[self._address]

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Only now: h11 has read the data, and its state says whether the head is whole.
        self._watch_head()

    def timeout_keep_alive_handler(self) -> None:
        # `close` would wait for the client to read its reply, which some never do.
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def _watch_head(self) -> None:
        """Set the timer while a head is incomplete."""
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def allow_connections() -> int:
    """Allow this process as many descriptors as it may have, and return how many connections they are enough for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MOST_CONNECTIONS, soft - _OTHER_FILES))
