"""Whose turn it is: work of many clients, a few pieces at a time, client by client. `FairSlots` has slots for work that
others do (scorers, makers of items), `Rounds` shares the event loop itself.

Invariant of `FairSlots`: a client whose work was slow within the last minute has at most half of the slots, unless
nobody else has asked for any in that time; so slow work of one client leaves the other slots to the others. A slot
comes back when its work is done, or was cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

SLOW_SECONDS = 0.05
"""For so long a client may have to wait for each slot, since work cannot be interrupted."""
MEMORY_SECONDS = 60.0


class Shares(Counter[str]):
    """What each client has of something that is bounded. Who has given everything back is forgotten."""

    def give_back(self, client: str, number: int = 1) -> None:
        self[client] -= number
        if not self[client]:
            del self[client]


@dataclass
class _Client:
    """One client's work: what runs, with its beginning; what waits; when it last was slow, and last asked."""

    running: dict[asyncio.Future[None], float] = field(default_factory=dict)
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    slow_at: float = float("-inf")
    asked_at: float = 0.0


class FairSlots:
    """Slots for pieces of work, for use in one event loop. Other threads may ask `is_alone`."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._running = 0
        self._clients: dict[str, _Client] = {}
        # Those who wait; the one whose turn is longest ago comes first.
        self._queue: OrderedDict[str, _Client] = OrderedDict()
        self._forgot_at = 0.0

    def is_alone(self, name: str) -> bool:
        """Return whether no other client has asked for anything lately."""
        return not self._clients.keys() - {name}

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Waits for a slot, and holds it."""
        self._forget()
        client = self._clients.setdefault(name, _Client())
        client.asked_at = time.monotonic()
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        client.waiting.append(slot)
        # A client that waits already keeps its place.
        self._queue.setdefault(name, client)
        self._give()
        try:
            await slot
            yield
        finally:
            # A slot that was never given is still in `waiting`, from which `_give` drops it.
            if slot in client.running:  # also if the slot came together with a cancellation
                self._take_back(client, slot)

    def _take_back(self, client: _Client, slot: asyncio.Future[None]) -> None:
        started = client.running.pop(slot)
        self._running -= 1
        client.asked_at = time.monotonic()
        if client.asked_at - started > SLOW_SECONDS:
            client.slow_at = client.asked_at
        self._give()

    def _give(self) -> None:
        """Give free slots to those who wait, one client after the other."""
        # In rounds, so that a client with much work gets one slot a round, like all others.
        has_given = True
        while has_given:
            has_given = False
            for name, client in list(self._queue.items()):
                if self._running >= self._slots:
                    return
                while client.waiting and client.waiting[0].done():  # cancelled
                    client.waiting.popleft()
                if not client.waiting:
                    del self._queue[name]
                elif len(client.running) < self._most(client):
                    slot = client.waiting.popleft()
                    client.running[slot] = time.monotonic()
                    self._running += 1
                    slot.set_result(None)
                    self._queue.move_to_end(name)
                    has_given = True

    def _most(self, client: _Client) -> int:
        """Return how many slots a client may have now."""
        now = time.monotonic()
        # Work that still runs counts as well: slow work is known before it ends.
        slowest = min(client.running.values(), default=now)
        is_slow = now - client.slow_at < MEMORY_SECONDS or now - slowest > SLOW_SECONDS
        return max(1, self._slots // 2) if is_slow and len(self._clients) > 1 else self._slots

    def _forget(self) -> None:
        """Forget clients that have asked for nothing lately. Looks once a second."""
        now = time.monotonic()
        if now - self._forgot_at < 1:
            return
        self._forgot_at = now
        for name, client in list(self._clients.items()):
            is_idle = not client.running and not client.waiting
            if is_idle and now - client.asked_at > MEMORY_SECONDS:
                del self._clients[name]
                self._queue.pop(name, None)


class Rounds:
    """Short work of many clients in one event loop. In each of the loop's iterations, every client gets one piece done.

    Without them, a loop does whatever has arrived in the order in which it came: one request waits for hundreds of
    another client's.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._is_begun = False

    def add(self, client: str, work: Callable[[], None]) -> None:
        """Do this at once if nothing else was done in this iteration, else when it is the client's turn."""
        if self._is_begun:
            self._waiting.setdefault(client, deque()).append(work)
            return
        self._is_begun = True
        self._loop.call_soon(self._begin)
        work()

    def _begin(self) -> None:
        """Begin another round if somebody waits."""
        self._is_begun = bool(self._waiting)
        for client, pieces in list(self._waiting.items()):
            # A call of its own for each, so that one that raises stops no other.
            self._loop.call_soon(pieces.popleft())
            if not pieces:
                del self._waiting[client]
        if self._is_begun:
            self._loop.call_soon(self._begin)
