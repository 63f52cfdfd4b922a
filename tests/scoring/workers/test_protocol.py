from __future__ import annotations

import asyncio
import contextlib
import math
import pickle
import socket
import threading
from collections.abc import Iterator
from time import monotonic

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rg_env.scoring.types import Form
from rg_env.scoring.workers import protocol
from rg_env.scoring.workers.protocol import Blocking, ProtocolError, blocking, forms_of, read_reply, reply_of, send

forms = st.floats(0, 1) | st.text(min_size=1).filter(str.strip)


@given(forms, forms)
@example("\U0001f600" * 300, "\U0001f600" * 300)
@example("\x1f" * 300, "\ud800" * 300)
def test_what_a_worker_says_arrives_and_can_be_written_to_a_file(raw: Form, tagged: Form) -> None:
    encoded = reply_of(raw, tagged)
    assert len(encoded) <= protocol._MAX_REPLY_BYTES
    for before, after in zip((raw, tagged), forms_of(encoded), strict=True):
        if isinstance(before, float):
            assert after == before
        else:
            assert isinstance(after, str)
            assert after
            assert "\n" not in after
            after.encode("utf-8")


@given(st.binary(max_size=60) | st.from_regex(rb"[\[\]\-0-9eNaInfity\",. ]{0,40}", fullmatch=True))
@example(b"[" * 4000)
@example(b"[1.0000000001, 0.5]")
@example(b"[NaN, 0.5]")
@example(b"[-Infinity, 0.5]")
@example(b"[true, 0.5]")
@example(b"[0.5]")
@example(b'{"raw": 1.0}')
def test_any_other_bytes_are_two_valid_forms_or_refused(payload: bytes) -> None:
    try:
        reply = forms_of(payload)
    except ProtocolError:
        return
    for form in reply:
        assert isinstance(form, str) or (math.isfinite(form) and 0 <= form <= 1)


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
def test_requests_of_all_sizes_arrive_whole(size: int) -> None:
    with pair() as (ours, theirs), theirs.makefile("rb") as requests:
        arguments = (ours, pickle.dumps(bytes(size)), Blocking(), monotonic() + 60)
        sender = threading.Thread(target=lambda: blocking(send(*arguments)))
        sender.start()
        assert pickle.load(requests) == bytes(size)
        sender.join()


@pytest.mark.parametrize("seconds", [-1.0, 0.05])
def test_a_worker_that_does_not_read_stops_the_sender_at_the_deadline(seconds: float) -> None:
    with pair() as (ours, _):
        blocking(send(ours, bytes(3_000_000), Blocking(), monotonic() + seconds))


def test_a_reply_in_parts_is_read_and_an_end_is_an_end() -> None:
    with pair() as (ours, theirs):
        theirs.sendall(b"[1.0,")
        threading.Timer(0.05, theirs.sendall, (b" 0.5]\n",)).start()
        assert blocking(read_reply(ours, Blocking())) == (1.0, 0.5)
        theirs.close()
        with pytest.raises(EOFError):
            blocking(read_reply(ours, Blocking()))


@pytest.mark.parametrize("sent", [b"[1.0,", b"x" * 9000, b"[1.0, 1.0]\n[1.0, 1.0]\n", b"[1.0, 2.0]\n", b"GARBAGE.\n"])
def test_replies_that_nobody_should_send_are_refused(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_REST_OF_A_REPLY", 0.05)
    with pair() as (ours, theirs):
        theirs.sendall(sent)
        with pytest.raises(ProtocolError):
            blocking(read_reply(ours, Blocking()))


def test_what_suspends_is_not_run_in_a_thread() -> None:
    with pytest.raises(RuntimeError, match="suspends"):
        blocking(asyncio.sleep(0))
