"""Clients take turns, and slow work of one leaves slots to the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

from rg_env.serve import fairness
from rg_env.serve.fairness import FairSlots, Rounds


def test_a_client_with_much_work_lets_another_in_early() -> None:
    async def test() -> None:
        turns, order = FairSlots(1), []

        async def work(client: str) -> None:
            async with turns.turn(client):
                order.append(client)
                await asyncio.sleep(0)

        await asyncio.gather(*(work(client) for client in "aaaaab"))
        assert order.index("b") <= 2, order

    asyncio.run(test())


def test_slow_work_of_one_client_leaves_slots_to_the_others(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(fairness, "SLOW_SECONDS", 0.01)

    async def test() -> None:
        turns, held = FairSlots(2), asyncio.Event()

        async def hold(client: str) -> None:
            async with turns.turn(client):
                await held.wait()

        async def pass_through(client: str) -> None:
            async with turns.turn(client):
                pass

        await pass_through("polite")
        slow = [asyncio.ensure_future(hold("slow"))]
        await asyncio.sleep(0.05)
        slow += [asyncio.ensure_future(hold("slow")) for _ in range(5)]
        await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.wait_for(pass_through("polite"), 60)  # forever, if the slow one had both slots
        # Who leaves while waiting, or while working, gives the slot back.
        for task in slow:
            task.cancel()
        for task in slow:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        held.set()
        await asyncio.wait_for(asyncio.gather(*(hold("slow") for _ in range(4))), 60)

    asyncio.run(test())


def test_where_all_work_is_slow_only_who_has_had_most_is_held_back(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(fairness, "SLOW_SECONDS", 0.001)

    async def test() -> None:
        turns, running, most = FairSlots(4), Counter[str](), Counter[str]()

        async def work(client: str, seconds: float) -> None:
            async with turns.turn(client):
                running[client] += 1
                most[client] = max(most[client], running[client])
                await asyncio.sleep(seconds)
                running[client] -= 1

        await work("polite", 0.01)
        await work("rude", 0.1)
        rude = [asyncio.ensure_future(work("rude", 0.1)) for _ in range(12)]
        for _ in range(3):
            await asyncio.gather(*(work("polite", 0.01) for _ in range(2)))
        assert most == {"rude": 2, "polite": 2}
        await asyncio.gather(*rude)

    asyncio.run(test())


def test_the_next_slot_is_for_who_has_had_least() -> None:
    async def test() -> None:
        turns, order = FairSlots(1), []

        async def work(client: str, seconds: float) -> None:
            async with turns.turn(client):
                order.append(client)
                await asyncio.sleep(seconds)

        long = [work("long", 0.05) for _ in range(3)]
        await asyncio.gather(*long, *(work("short", 0.001) for _ in range(10)))
        # All short ones together take less time than the first long one.
        assert order.index("long", 1) > 9, order

    asyncio.run(test())


def test_one_piece_of_each_client_is_done_in_an_iteration() -> None:
    done: list[str] = []

    def raises() -> None:
        raise ValueError("one piece of work")

    async def test() -> None:
        rounds = Rounds(asyncio.get_running_loop())
        for number in range(50):
            rounds.add("rude", lambda number=number: done.append(f"rude {number}"))  # type: ignore[misc]
        rounds.add("polite", lambda: done.append("polite"))
        rounds.add("broken", raises)
        while len(done) < 51:
            await asyncio.sleep(0)
        rounds.add("rude", lambda: done.append("at once"))

    asyncio.run(test(), debug=False)
    assert done.index("polite") <= 2
    assert [text for text in done if text != "polite"] == [*(f"rude {number}" for number in range(50)), "at once"]
