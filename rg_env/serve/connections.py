"""Connections whose first line and headers do not come: each ends after a while. What the connections of one address
send is read in turn with what others send.

uvicorn limits how long a connection idles between two requests, but not how long the head of a request may take. Not
covered, and work for a reverse proxy (docs/security.md): how many connections an address has. A reply that nobody takes
is given up by the system (`serve.run`).
"""

from __future__ import annotations

import asyncio
import resource
from collections import deque
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rg_env.serve.fairness import Rounds

HEAD_SECONDS = 30.0
"""After which a connection on which no whole head of a request has come is closed. On a machine with work for ten times
its cores, a polite client may need more than 10 s between connecting and sending."""
KEEP_ALIVE_SECONDS = 60
MOST_CONNECTIONS = 8192
_SMALL_BYTES = 16 << 10
"""As much may come from a connection while something of it waits to be read; so it is noticed if its client leaves."""
_OTHER_FILES = 256
"""Descriptors that are not for connections: scorers, logs, files of questions."""


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for heads, and turns of addresses."""

    _rounds_of_loop: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Rounds]] = WeakKeyDictionary()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._rounds = self._rounds_of_loop.setdefault(self.loop, Rounds(self.loop))
        self._unread: deque[bytes] = deque()
        self._is_reading_paused = False
        self._address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        # A client that has left before its turn costs nothing more.
        self._unread.clear()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        # The connection belongs to another protocol from now on, and its loss is not told to this one.
        self._stop_timer()
        super().handle_websocket_upgrade(event)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._unread.append(data)
        if len(data) > _SMALL_BYTES:
            self._is_reading_paused = True
            self.transport.pause_reading()
        self._rounds.add(self._address, self._read)

    def _read(self) -> None:
        """Read the first piece of what has come."""
        if not self._unread:  # the connection was lost
            return
        data = self._unread.popleft()
        protocol = self.transport.get_protocol()
        if protocol is self:
            self._read_as_http(data)
        else:  # a WebSocket, since an earlier piece
            protocol.data_received(data)  # type: ignore[attr-defined]
        if self._is_reading_paused and not self._unread:
            self._is_reading_paused = False
            if not self.flow.read_paused:
                self.transport.resume_reading()

    def _read_as_http(self, data: bytes) -> None:
        super().data_received(data)
        # Only now: h11 has read the data, and its state says whether the head is whole.
        self._watch_head()

    def _watch_head(self) -> None:
        """Have the timer run while a head is incomplete."""
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._end_of_head)

    def _end_of_head(self) -> None:
        self._head_timer = None
        if self._unread:
            self._watch_head()  # it may be there, and has waited for its turn
        else:
            self.transport.abort()  # not `close`, which would wait for the client to read

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def allow_connections() -> int:
    """Allow this process as many descriptors as it may have, and return how many connections they are enough for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MOST_CONNECTIONS, soft - _OTHER_FILES))
