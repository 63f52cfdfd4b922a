"""What goes through the socket of a worker, whatever the worker does."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import pickle
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rg_env.base.errors import one_line
from rg_env.runner import caller_worker
from rg_env.runner.caller_worker import Limit, Worker
from rg_env.runner.child_process import serve_requests
from rg_env.runner.failures import JobFailedError, ProtocolError
from rg_env.runner.handover import wait
from rg_env.scoring import AnswerScore, Status
from rg_env.scoring.scorer import scores_of_reply
from rg_env.scoring.upstream import FormScore

forms = st.floats(0, 1) | st.text(min_size=1).filter(str.strip).map(lambda text: one_line(text, 200))

MINUTE = Limit(60, 60)


def with_worker[T](
    act: Callable[[Worker, socket.socket], Coroutine[Any, Any, T]], missing: dict[str, str] | None = None
) -> T:
    """What a coroutine returns that gets a started worker and the other end of its socket."""

    async def run() -> T:
        ours, theirs = socket.socketpair()
        worker = Worker(ours, lambda: None)
        with theirs:
            theirs.sendall(json.dumps([os.getpid(), missing or {}, False]).encode())
            await worker.start(lambda: False)
            try:
                return await act(worker, theirs)
            finally:
                worker.discard()

    return wait(run())


def received(sent: bytes) -> AnswerScore:
    """The score in a reply that has these bytes in the place of `[raw, tagged]` and the end of the line."""

    async def ask(worker: Worker, theirs: socket.socket) -> object:
        def reply() -> None:
            _, _, word = pickle.loads(theirs.recv(10_000))
            line, end = sent.removesuffix(b"\n"), sent[len(sent.removesuffix(b"\n")) :]
            theirs.sendall(b'["%s", %s]%s' % (word.encode(), line, end))

        asyncio.get_running_loop().call_soon(reply)
        return await worker.ask(b"target", b"arguments", MINUTE)

    return scores_of_reply(with_worker(ask))


@given(forms, forms)
@example("\U0001f600" * 200, "\U0001f600" * 200)
@example("\x1f" * 200, "x" * 200)
def test_what_a_worker_says_arrives_and_can_be_written_to_a_file(raw: FormScore, tagged: FormScore) -> None:
    encoded = json.dumps([raw, tagged]).encode() + b"\n"
    assert len(encoded) + 100 <= caller_worker._MAX_REPLY_BYTES
    scored = received(encoded)
    for name, before, after in (("raw", raw, scored.raw), ("tagged", tagged, scored.tagged)):
        assert after == (before if isinstance(before, float) else 0.0)
        assert isinstance(before, float) or f"{name}: " in scored.detail
    assert "\n" not in scored.detail
    scored.detail.encode("utf-8")


@given(st.binary(min_size=1, max_size=60) | st.from_regex(rb"[\[\]\-0-9eNaInfity\",. ]{1,40}\n", fullmatch=True))
def test_any_other_bytes_are_a_valid_result_or_refused(payload: bytes) -> None:
    try:
        scored = received(payload)
    except ProtocolError:
        return
    scores = (scored.raw, scored.tagged)
    if scored.status is Status.OK:
        assert all(score is not None and math.isfinite(score) and 0 <= score <= 1 for score in scores)
    else:
        assert scores == (None, None) and scored.detail


@pytest.mark.parametrize(
    "sent",
    [
        *(b"[1.0,", b"x" * 9000, b"[1.0, 1.0]\n[1.0, 1.0]\n", b"[1.0, 2.0]\n", b"GARBAGE.\n", b"[" * 4000 + b"\n"),
        *(b"[1.0000000001, 0.5]\n", b"[NaN, 0.5]\n", b"[-Infinity, 0.5]\n", b"[true, 0.5]\n", b"[0.5]\n", b"{}\n"),
    ],
)
def test_replies_that_nobody_should_send_are_refused(sent: bytes) -> None:
    with pytest.raises(ProtocolError):
        received(sent)


@pytest.mark.parametrize("sent", [b"[1.0, 1.0]\n", b'["0123456789abcdef", [1.0, 1.0]]\n', b'["", [1.0, 1.0]]\n'])
def test_a_reply_to_another_message_is_refused(sent: bytes) -> None:
    async def ask(worker: Worker, theirs: socket.socket) -> object:
        asyncio.get_running_loop().call_soon(theirs.sendall, sent)
        return await worker.ask(b"target", b"arguments", MINUTE)

    with pytest.raises(ProtocolError, match="not to this message"):
        with_worker(ask)


def test_what_the_sandbox_of_a_worker_lacks_is_said_once(warnings: list[str]) -> None:
    async def nothing(worker: Worker, theirs: socket.socket) -> None:
        pass

    for _ in range(3):
        with_worker(nothing, {"seccomp": f"made up by {__name__}"})
    (said,) = warnings
    assert f"without seccomp (made up by {__name__})" in said


@pytest.mark.parametrize("early", [b"[1.0, 1.0]\n", None])
def test_a_worker_that_speaks_unasked_or_ends_is_not_used_again(early: bytes | None) -> None:
    async def look(worker: Worker, theirs: socket.socket) -> list[bool]:
        before = worker.is_usable()
        if early is None:
            theirs.close()
        else:
            theirs.sendall(early)
        return [before, worker.is_usable()]

    async def end(worker: Worker, theirs: socket.socket) -> object:
        asyncio.get_running_loop().call_soon(theirs.close)
        return await worker.ask(b"target", b"arguments", MINUTE)

    assert with_worker(look) == [True, False]
    with pytest.raises(EOFError):
        with_worker(end)


def test_a_worker_that_is_stopped_before_it_says_a_word_is_given_up_with_its_server() -> None:
    """It keeps its socket open."""

    async def start() -> None:
        ours, theirs = socket.socketpair()
        worker = Worker(ours, lambda: None)
        with theirs:
            try:
                await worker.start(lambda: True)
            finally:
                worker.discard()

    with pytest.raises(EOFError, match="server"):
        wait(start())


@pytest.mark.parametrize("first", [b"[17, {}\n", b"[17]\n", b"17\n"])
def test_a_worker_that_cannot_say_its_pid_is_one_that_did_not_start(first: bytes) -> None:
    async def start() -> None:
        ours, theirs = socket.socketpair()
        worker = Worker(ours, lambda: None)
        with theirs:
            theirs.sendall(first)
            try:
                await worker.start(lambda: False)
            finally:
                worker.discard()

    with pytest.raises(EOFError, match="did not say its pid"):
        wait(start())


@pytest.mark.parametrize("size", [1, 70_000, 3_000_000])
def test_requests_of_all_sizes_arrive_whole(size: int) -> None:
    target = pickle.dumps(("functools", "partial", len))

    async def ask(worker: Worker, theirs: socket.socket) -> list[object]:
        threading.Thread(target=serve_until_closed, args=(theirs.dup(),), daemon=True).start()
        replies = [await worker.ask(target, b"", MINUTE)]
        return [*replies, await worker.ask(target, bytes(size), MINUTE)]

    assert with_worker(ask) == [0.0, size]


def serve_until_closed(connection: socket.socket) -> None:
    with connection, pytest.raises(EOFError):
        serve_requests(connection, {})


@pytest.mark.parametrize("seconds", [-1.0, 0.05])
def test_a_worker_that_does_not_read_is_too_late(seconds: float) -> None:
    async def ask(worker: Worker, theirs: socket.socket) -> object:
        return await worker.ask(b"target", bytes(3_000_000), Limit(seconds, seconds))

    with pytest.raises(JobFailedError):
        with_worker(ask)


def test_a_worker_that_ends_before_it_has_read_all_is_one_error(caplog: pytest.LogCaptureFixture) -> None:
    async def ask(worker: Worker, theirs: socket.socket) -> object:
        asyncio.get_running_loop().call_later(0.05, theirs.close)
        return await worker.ask(b"target", bytes(20_000_000), MINUTE)

    with pytest.raises(OSError):
        with_worker(ask)
    gc.collect()
    assert not caplog.records, "asyncio logs errors that nobody has seen, with a traceback"
