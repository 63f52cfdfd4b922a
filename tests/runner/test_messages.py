"""Several jobs in one message: whatever one of them does, each has the result that it has alone."""

from __future__ import annotations

import asyncio
import gc
import pickle
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from rg_env.runner import Failure, Guarded, GuardedScore, ScorerPoolError, caller_pool, guarded, handover
from rg_env.runner.caller_worker import Limit, Worker
from rg_env.runner.failures import ProtocolError
from tests.runner.processes import wait_until
from tests.runner.programs import functions

Calls = Sequence[tuple[str, float]]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each message has that is sent from now on."""
    found: list[int] = []
    send = Worker.ask_several

    async def ask_several(worker: Worker, requests: Sequence[tuple[bytes, bytes]], limit: Limit) -> list[object]:
        if all(arguments for _, arguments in requests):  # else the worker is made ready
            found.append(len(requests))
        return await send(worker, requests, limit)

    monkeypatch.setattr(Worker, "ask_several", ask_several)
    return found


@pytest.fixture
def cores_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: only CPU time counts."""
    monkeypatch.setattr(caller_pool, "WALL_FACTOR", 10_000.0)


@pytest.fixture
def actor() -> Iterator[Guarded]:
    """One worker, which is known to be quick."""
    with guarded(functions.act, workers=1, timeout=1.0, fresh=False) as made:
        warm_up(made)
        yield made


def warm_up(scorer: Guarded) -> None:
    def is_quick() -> bool:
        assert scorer.score("", 1.0).value == 1.0
        return scorer._pool._idle[0].is_quick(scorer._target)

    assert wait_until(is_quick)


def together(scorer: Guarded, calls: Calls, before: tuple[str, float] = ("", 0.0)) -> list[GuardedScore]:
    """Scores of calls behind another, which finds nobody to share a message with."""

    async def score_all() -> list[GuardedScore]:
        return await asyncio.gather(*(scorer.ascore(*call) for call in [before, *calls]))

    return asyncio.run(score_all())[1:]


def numbered(**acts: str) -> Calls:
    """Eight calls, of which those named do something."""
    return [(acts.get(f"at_{number}", ""), float(number)) for number in range(8)]


def test_what_comes_in_one_round_of_a_loop_goes_in_few_messages(actor: Guarded, sizes: list[int]) -> None:
    assert [scored.value for scored in together(actor, [("", float(number)) for number in range(64)])] == [*range(64)]
    assert sizes == [1, *[16] * 4]


@pytest.mark.usefixtures("cores_to_spare")
@pytest.mark.parametrize(
    ("how", "status", "place"),
    [
        *(("die", Failure.CRASHED, place) for place in (0, 3, 7)),
        *((how, Failure.TIMEOUT, 3) for how in ("spin", "sleep", "say nothing")),
        *(("say more", Failure.CRASHED, place) for place in (0, 3, 7)),
        *(("nap", "ok", place) for place in (0, 3, 7)),
    ],
)
def test_neighbors_in_a_message_do_not_notice(
    actor: Guarded, sizes: list[int], how: str, status: str, place: int
) -> None:
    calls = numbered(**{f"at_{place}": how})
    scored = together(actor, calls)
    assert sizes[:2] == [1, 8]
    # A nap is slow and no more; after all else each has been asked alone.
    assert (sizes.count(1) > 8) == (how != "nap")
    own = scored.pop(place)
    assert [each.value for each in scored] == [value for _, value in calls if value != place]
    assert (own.status, own.excused) == (status, False)


def test_what_a_job_says_beside_its_reply_is_not_the_value_of_a_later_one(actor: Guarded) -> None:
    assert [actor.score(*call).value for call in [("say more", 3.0), ("", 4.0), ("", 5.0)]] == [None, 4.0, 5.0]


def test_a_slow_job_has_a_message_of_its_own(actor: Guarded, sizes: list[int]) -> None:
    def is_slow() -> bool:
        actor.score("work", 1.0)
        return not actor._pool._idle[0].is_quick(actor._target)

    assert wait_until(is_slow)
    del sizes[:]
    assert [scored.value for scored in together(actor, [("work", 1.0)] * 4, before=("work", 1.0))] == [1.0] * 4
    assert sizes == [1] * 5


def test_a_fresh_process_has_one_job(sizes: list[int]) -> None:
    with guarded(functions.act, workers=2) as scorer:
        assert [scored.value for scored in together(scorer, numbered())] == [*range(8)]
    assert sizes == [1] * 9


@pytest.mark.parametrize("cancelled", [{0}, {3}, {7}, {0, 1, 5}, {1, 2, 3, 4, 5, 6, 7}, {*range(8)}])
def test_jobs_that_are_given_up_take_nothing_from_their_neighbors(
    actor: Guarded, sizes: list[int], cancelled: set[int]
) -> None:
    async def give_up() -> list[Any]:
        tasks = [asyncio.create_task(actor.ascore(*call)) for call in [("", 0.0), *numbered(at_0="nap")]]
        while len(sizes) < 2:  # the message is on its way
            await asyncio.sleep(0.001)
        for number in cancelled:
            tasks[1 + number].cancel()
        return (await asyncio.gather(*tasks, return_exceptions=True))[1:]

    for number, outcome in enumerate(asyncio.run(give_up())):
        if number in cancelled:
            assert isinstance(outcome, asyncio.CancelledError)
        else:
            assert outcome.value == number
    assert sizes[:2] == [1, 8]
    assert [scored.value for scored in together(actor, numbered())] == [*range(8)], "the next ones have a worker"


@pytest.mark.parametrize("cancelled", [{1}, {1, 2, 3}, {2, 9}])
def test_jobs_that_are_given_up_while_they_wait_hold_up_nobody(actor: Guarded, cancelled: set[int]) -> None:
    async def give_up() -> list[Any]:
        first = asyncio.create_task(actor.ascore("nap", 0.0))
        await asyncio.sleep(0.1)
        tasks = [asyncio.create_task(actor.ascore("", float(number))) for number in range(12)]
        await asyncio.sleep(0.01)
        for number in cancelled:
            tasks[number].cancel()
        return await asyncio.gather(first, *tasks, return_exceptions=True)

    _, *outcomes = asyncio.run(give_up())
    values = [None if isinstance(outcome, asyncio.CancelledError) else outcome.value for outcome in outcomes]
    assert values == [None if number in cancelled else float(number) for number in range(12)]


def test_closing_ends_a_message_with_all_its_jobs(actor: Guarded, sizes: list[int]) -> None:
    async def close() -> list[Any]:
        tasks = [asyncio.create_task(actor.ascore(*call)) for call in numbered(at_3="sleep")]
        while len(sizes) < 2:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(actor.close)
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, *outcomes = asyncio.run(close())
    assert first.value == 0.0
    assert {type(outcome) for outcome in outcomes} == {ScorerPoolError}


def test_a_reply_that_is_refused_spoils_its_message_only(actor: Guarded, sizes: list[int]) -> None:
    """The worker has said something that is no result of one of the jobs."""
    refused: list[object] = []

    def check(reply: object) -> object:
        if reply == 3.0 and not refused:
            refused.append(reply)
            raise ProtocolError("refused")
        return reply

    async def run_all() -> list[object]:
        pool, target = actor._pool, actor._target
        calls = [pool.run(target, pickle.dumps(call), check) for call in numbered()]
        return await asyncio.gather(*calls)

    assert handover.wait(run_all()) == [*range(8)]
    assert sizes == [1, 7, *[1] * 7]


# -- the inbox of a loop


def test_a_loop_is_woken_once_for_all_that_comes_before_it_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, inbox = asyncio.new_event_loop(), handover._Inbox()
    wake = loop.call_soon_threadsafe
    woken: list[object] = []
    seen: list[int] = []

    def note(*arguments: Any, **named: Any) -> Any:
        woken.append(arguments)
        return wake(*arguments, **named)

    def put(*calls: Callable[[], object]) -> None:
        for call in calls:
            inbox.put(call)
            inbox.wake(loop)
        loop.run_until_complete(asyncio.sleep(0.01))

    def fail() -> None:
        raise MemoryError

    monkeypatch.setattr(loop, "call_soon_threadsafe", note)
    loop.set_exception_handler(lambda *_: None)
    put(*(partial(seen.append, number) for number in range(3)))
    assert (seen, len(woken)) == ([0, 1, 2], 1)
    put(partial(seen.append, 3))
    assert (seen, len(woken)) == ([0, 1, 2, 3], 2)
    put(fail, partial(seen.append, 4))
    assert seen == [0, 1, 2, 3, 4], "one that raises stops no other"
    loop.close()


def test_a_loop_that_is_closed_while_it_waits_is_not_kept(actor: Guarded) -> None:
    """Nor is the result that nobody waits for any more."""
    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(actor.ascore(*call)) for call in [("", 0.0), *numbered(at_0="nap")]]
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()
    closed = weakref.ref(loop)
    del loop, tasks
    gc.collect()
    assert actor.score("", 1.0).value == 1.0, "after all others"
    gc.collect()
    assert closed() is None


class Dialog:
    """What a call has in its context: in a trainer, megabytes of text."""


_DIALOG: ContextVar[Dialog] = ContextVar("_DIALOG")


def kept_by(call: Callable[[], Coroutine[Any, Any, object]]) -> Dialog | None:
    """The dialog of a call that has ended, if something keeps it."""

    async def run() -> weakref.ref[Dialog]:
        dialog = Dialog()
        _DIALOG.set(dialog)
        await call()
        return weakref.ref(dialog)

    reference = asyncio.run(run())
    gc.collect()
    return reference()


def test_nothing_keeps_the_context_of_a_call() -> None:
    """Not the worker that it started, nor the look at that, once a second."""
    with guarded(functions.double, workers=1, fresh=False) as scorer:
        assert kept_by(lambda: scorer.ascore(2.0)) is None
