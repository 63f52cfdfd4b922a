"""What goes through the socket of a worker, whatever the worker does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import pickle
import socket
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rg_env.errors import one_line
from rg_env.scoring.scorer import _forms
from rg_env.scoring.types import Form
from rg_env.scoring.workers import pool
from rg_env.scoring.workers.pool import ForkServer, ProtocolError, Worker
from rg_env.scoring.workers.waiting import Blocking, blocking

forms = st.floats(0, 1) | st.text(min_size=1).filter(str.strip).map(lambda text: one_line(text, 200))


@contextlib.contextmanager
def pair() -> Iterator[tuple[Worker, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Worker(ours, cast("ForkServer", None)), theirs


def received(sent: bytes) -> tuple[Form, Form]:
    with pair() as (worker, theirs):
        theirs.sendall(sent)
        return _forms(worker._receive())


@given(forms, forms)
@example("\U0001f600" * 200, "\U0001f600" * 200)
@example("\x1f" * 200, "x" * 200)
def test_what_a_worker_says_arrives_and_can_be_written_to_a_file(raw: Form, tagged: Form) -> None:
    encoded = json.dumps([raw, tagged]).encode() + b"\n"
    assert len(encoded) <= pool._MAX_REPLY_BYTES
    for before, after in zip((raw, tagged), received(encoded), strict=True):
        if isinstance(before, float):
            assert after == before
        else:
            assert isinstance(after, str)
            assert after
            assert "\n" not in after
            after.encode("utf-8")


@given(st.binary(min_size=1, max_size=60) | st.from_regex(rb"[\[\]\-0-9eNaInfity\",. ]{1,40}\n", fullmatch=True))
@example(b"[" * 4000 + b"\n")
@example(b"[1.0000000001, 0.5]\n")
@example(b"[NaN, 0.5]\n")
@example(b"[-Infinity, 0.5]\n")
@example(b"[true, 0.5]\n")
@example(b"[0.5]\n")
@example(b'{"raw": 1.0}\n')
@example(b"[1.0, 1.0]\n[1.0, 1.0]\n")
@example(b"[1.0,")
@example(b"x" * 9000)
def test_any_other_bytes_are_two_valid_forms_or_refused(payload: bytes) -> None:
    try:
        reply = received(payload)
    except ProtocolError:
        return
    for form in reply:
        assert isinstance(form, str) or (math.isfinite(form) and 0 <= form <= 1)


@pytest.mark.parametrize("sent", [b"[1.0,", b"x" * 9000, b"[1.0, 1.0]\n[1.0, 1.0]\n", b"[1.0, 2.0]\n", b"GARBAGE.\n"])
def test_replies_that_nobody_should_send_are_refused(sent: bytes) -> None:
    with pytest.raises(ProtocolError):
        received(sent)


def test_an_end_is_an_end() -> None:
    with pair() as (worker, theirs):
        theirs.close()
        with pytest.raises(EOFError):
            worker._receive()


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
def test_requests_of_all_sizes_arrive_whole(size: int) -> None:
    with pair() as (worker, theirs), theirs.makefile("rb") as requests:
        request: Any = (pickle.dumps(bytes(size)), Blocking(), monotonic() + 60)
        sender = threading.Thread(target=lambda: blocking(worker._send(*request)))
        sender.start()
        assert pickle.load(requests) == bytes(size)
        sender.join()


@pytest.mark.parametrize("seconds", [-1.0, 0.05])
def test_a_worker_that_does_not_read_stops_the_sender_at_the_deadline(seconds: float) -> None:
    with pair() as (worker, _):
        blocking(worker._send(bytes(3_000_000), Blocking(), monotonic() + seconds))


def test_what_suspends_is_not_run_in_a_thread() -> None:
    with pytest.raises(RuntimeError, match="suspends"):
        blocking(asyncio.sleep(0))
