"""Whose turn it is: work of many clients, a few pieces at a time, client by client. `FairSlots` has slots for work that
others do (scorers, makers of items), `Rounds` shares the event loop itself.

Invariant of `FairSlots`: nobody who waits has had less of the slots' time than who gets the next one. A client that has
had most of it, and whose work was slow within the last minute, has at most half of the slots, unless nobody else has
asked for any in that time; so slow work of one client leaves the other slots to the others. A slot comes back when its
work is done, or was cancelled.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import Counter, deque
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
    """One client's work.

    Attributes:
        running: with its beginning.
        seconds: of slots that it has had, as a place in the order of turns: see `FairSlots`.
        slow_at: when its work last was slow.
        asked_at: when it last asked, or was done.
    """

    running: dict[asyncio.Future[None], float] = field(default_factory=dict)
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    is_queued: bool = False
    seconds: float = 0.0
    slow_at: float = float("-inf")
    asked_at: float = 0.0

    def seconds_at(self, now: float) -> float:
        """Return `seconds`, and what runs now."""
        return self.seconds + sum(now - started for started in self.running.values())


class FairSlots:
    """Slots for pieces of work, for use in one event loop. Other threads may ask `is_alone`.

    The next slot is for the client that has had least of their time (start-time fair queuing: Goyal, Vin and Cheng,
    1996). Who has asked for nothing meanwhile begins with what the others have reached, and has saved nothing up.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._running = 0
        self._clients: dict[str, _Client] = {}
        # Those who wait, by `seconds`, which may have grown since.
        self._queue: list[tuple[float, int, str]] = []
        self._numbers = itertools.count()
        self._reached = 0.0
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
        self._enter(name, client)
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
        took = client.asked_at - started
        client.seconds += took
        if took > SLOW_SECONDS:
            client.slow_at = client.asked_at
        self._give()

    def _enter(self, name: str, client: _Client) -> None:
        """Put a client that waits into the queue."""
        if not client.is_queued and client.waiting:
            client.is_queued = True
            client.seconds = max(client.seconds, self._reached)
            heapq.heappush(self._queue, (client.seconds, next(self._numbers), name))

    def _give(self) -> None:
        """Give free slots to those who wait."""
        passed_over = []
        while self._queue and self._running < self._slots:
            seconds, _, name = heapq.heappop(self._queue)
            client = self._clients[name]
            client.is_queued = False
            while client.waiting and client.waiting[0].done():  # cancelled
                client.waiting.popleft()
            if client.seconds == seconds and client.waiting:
                if len(client.running) >= self._most(client):
                    passed_over.append((name, client))
                    continue
                slot = client.waiting.popleft()
                client.running[slot] = time.monotonic()
                self._running += 1
                self._reached = seconds
                slot.set_result(None)
            self._enter(name, client)
        for name, client in passed_over:
            self._enter(name, client)

    def _most(self, client: _Client) -> int:
        """Return how many slots a client may have now."""
        now = time.monotonic()
        # Work that still runs counts as well: slow work is known before it ends.
        slowest = min(client.running.values(), default=now)
        is_slow = now - client.slow_at < MEMORY_SECONDS or now - slowest > SLOW_SECONDS
        if not is_slow or len(self._clients) == 1:
            return self._slots
        # On a busy machine, all work is slow.
        had = client.seconds_at(now)
        has_had_most = all(other.seconds_at(now) <= had for other in self._clients.values())
        return max(1, self._slots // 2) if has_had_most else self._slots

    def _forget(self) -> None:
        """Forget clients that have asked for nothing lately. Looks once a second."""
        now = time.monotonic()
        if now - self._forgot_at < 1:
            return
        self._forgot_at = now
        for name, client in list(self._clients.items()):
            is_idle = not client.running and not client.is_queued
            if is_idle and now - client.asked_at > MEMORY_SECONDS:
                del self._clients[name]


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
