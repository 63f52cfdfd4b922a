"""Values that are worked out once, however many ask for them at the same time.

Invariant: only a value is kept. A failure is told to those who wait for it, and the next one who asks has the work done
again: what failed may have been the machine. For use in one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any


class Once[K: Hashable, V]:
    """Values by key.

    Args:
        most: how many are kept; beyond that, the oldest goes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[K, V] = {}
        self._running: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, work: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the value of this key, worked out if it is not known. Raises what the work raises."""
        if key in self._values:
            return self._values[key]
        if key not in self._running:
            self._running[key] = asyncio.create_task(self._run(key, work))
        # Shielded: who gives up takes it from nobody else.
        return await asyncio.shield(self._running[key])

    async def _run(self, key: K, work: Callable[[], Coroutine[Any, Any, V]]) -> V:
        try:
            value = await work()
        finally:
            del self._running[key]
        self._values[key] = value
        if len(self._values) > self._most:
            del self._values[next(iter(self._values))]
        return value
