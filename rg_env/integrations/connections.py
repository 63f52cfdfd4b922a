"""Connections of clients that send slowly, send nothing, or read nothing: each ends after a while. What the connections
of one address send is read in turn with what others send.

uvicorn limits how long a connection idles between two requests, but neither how long the first line and the headers of
a request may take, nor how long a client may leave its reply unread. Who leaves it unread keeps the memory and the
descriptor, and with more requests in the same connection a route that waits to be let write.
"""

from __future__ import annotations

import asyncio
import resource
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rg_env.integrations.turns_of_clients import Rounds, Shares

HEAD_SECONDS = 30.0
"""After which a connection on which no whole head of a request has come is closed. On a machine with work for ten times
its cores, a polite client may need more than 10 s between connecting and sending."""
KEEP_ALIVE_SECONDS = 60
REPLY_SECONDS = 120.0
"""After which a connection is closed whose client has not taken all of a reply, however steadily it reads."""
MOST_UNREAD_BYTES = 32 << 20
"""Of a body that comes after the reply that refuses it, before the connection is closed. A client that has sent less
finds the reply; this is twice what a request may have."""
MOST_CONNECTIONS = 8192
_SMALL_BYTES = 16 << 10
"""As much may come from a connection while something of it waits to be read; so it is noticed if its client leaves."""
_OTHER_FILES = 256
"""Descriptors that are not for connections: scorers, logs, files of questions."""


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with limits for heads, for replies, and for the connections of one address."""

    most_of_address = MOST_CONNECTIONS // 2
    _of_address: ClassVar[Shares] = Shares()
    _rounds_of_loop: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Rounds]] = WeakKeyDictionary()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_timer, self._reply_timer = _Timer(self._end_of_head), _Timer(self._abort)
        self._rounds = self._rounds_of_loop.setdefault(self.loop, Rounds(self.loop))
        self._unread: deque[bytes] = deque()
        self._is_reading_paused = False
        self._refused_bytes = 0
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
        # A client that has left before its turn costs nothing more.
        self._unread.clear()
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
        is_refused = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        self._refused_bytes = self._refused_bytes + len(data) if is_refused else 0
        if self._refused_bytes > MOST_UNREAD_BYTES:
            self._abort()
            return
        super().data_received(data)
        # Only now: h11 has read the data, and its state says whether the head is whole.
        self._watch_head()

    def _watch_head(self) -> None:
        """Have the timer run while a head is incomplete."""
        if self.conn.their_state is h11.IDLE:
            self._head_timer.start(HEAD_SECONDS)
        else:
            self._head_timer.stop()

    def _end_of_head(self) -> None:
        if self._unread:
            # It may be there, and has waited for its turn.
            self._head_timer.stop()
            self._head_timer.start(HEAD_SECONDS)
        else:
            self._abort()

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
