"""Values that are worked out once: those who ask share the work, and a failure is not kept."""

from __future__ import annotations

import asyncio

import pytest

from rg_env.base.once import Once


class Work:
    """Has these outcomes, one after the other, and counts how often it has begun."""

    def __init__(self, *outcomes: int | Exception) -> None:
        self.outcomes, self.begun = list(outcomes), 0

    async def __call__(self) -> int:
        self.begun += 1
        await asyncio.sleep(0.01)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.mark.parametrize("error", [OSError("too many open files"), MemoryError()])
def test_a_failure_is_told_to_those_who_wait_and_then_forgotten(error: Exception) -> None:
    async def ask() -> None:
        once: Once[str, int] = Once(2)
        work = Work(error, 7)
        told = await asyncio.gather(*(once.get("a", work) for _ in range(3)), return_exceptions=True)
        assert told == [error] * 3
        assert [await once.get("a", work) for _ in range(3)] == [7] * 3
        assert work.begun == 2

    asyncio.run(ask())


def test_who_gives_up_takes_it_from_nobody_else() -> None:
    async def ask() -> None:
        once: Once[str, int] = Once(2)
        work = Work(7)
        tasks = [asyncio.create_task(once.get("a", work)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        assert await asyncio.gather(*tasks[1:]) == [7, 7]
        assert work.begun == 1

    asyncio.run(ask())


def test_the_oldest_value_goes() -> None:
    async def ask() -> None:
        once: Once[int, int] = Once(2)
        work = Work(1, 2, 3, 4)
        assert [await once.get(key, work) for key in (1, 2, 3, 2, 3, 1)] == [1, 2, 3, 2, 3, 4]

    asyncio.run(ask())
