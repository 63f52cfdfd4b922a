from __future__ import annotations

import contextlib
import math
import socket
import struct
import threading
from collections.abc import Iterator
from time import monotonic

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rg_env.scoring.sandbox.sandbox import Measure
from rg_env.scoring.workers.protocol import (
    MAX_REPLY_BYTES,
    Form,
    ProtocolError,
    decode_measures,
    decode_reply,
    encode_measures,
    encode_reply,
    recv_frame,
    send_frame,
)

forms = st.floats(0, 1) | st.text(min_size=1).filter(str.strip)


@given(forms, forms)
@example("\U0001f600" * 300, "\U0001f600" * 300)
@example("\x1f" * 300, "\ud800" * 300)
def test_what_a_worker_says_arrives_and_can_be_written_to_a_file(raw: Form, tagged: Form) -> None:
    encoded = encode_reply(raw, tagged)
    assert len(encoded) <= MAX_REPLY_BYTES
    for before, after in zip((raw, tagged), decode_reply(encoded), strict=True):
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
        reply = decode_reply(payload)
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
def test_frames_of_all_sizes_arrive_whole(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    with pair() as (ours, theirs):
        sender = threading.Thread(target=send_frame, args=(theirs, payload[:size]))
        sender.start()
        assert recv_frame(ours, 1 << 22) == payload[:size]
        sender.join()


def test_silence_ends_at_the_deadline() -> None:
    with pair() as (ours, theirs):
        with pytest.raises(TimeoutError):
            recv_frame(ours, 100, monotonic() + 0.05)
        theirs.sendall(b"\0\0")
        with pytest.raises(TimeoutError):
            recv_frame(ours, 100, monotonic() + 0.05)


def test_a_late_reader_still_takes_what_came_in_time() -> None:
    with pair() as (ours, theirs):
        send_frame(theirs, b"score")
        assert recv_frame(ours, 100, monotonic() - 60) == b"score"


@pytest.mark.parametrize("seconds", [-1.0, 0.05])
def test_a_reader_that_does_not_read_stops_the_sender_at_the_deadline(seconds: float) -> None:
    with pair() as (_, theirs), pytest.raises(TimeoutError):
        send_frame(theirs, bytes(3_000_000), monotonic() + seconds)


def test_an_end_is_an_end() -> None:
    with pair() as (ours, theirs):
        theirs.sendall(b"\0\0")
        theirs.close()
        with pytest.raises(EOFError):
            recv_frame(ours, 100)


@pytest.mark.parametrize(
    "sent", [struct.pack("!I", 1 << 31), struct.pack("!I", 97), b"\0\0\0\1ab", b"\0\0\0\0\0\0\0\0"]
)
def test_frames_that_nobody_should_send_are_refused(sent: bytes) -> None:
    with pair() as (ours, theirs):
        theirs.sendall(sent)
        with pytest.raises(ProtocolError):
            recv_frame(ours, 100, monotonic() + 5)


def test_the_report_on_the_sandbox_arrives_as_it_was_sent() -> None:
    measures = [Measure("one", True), Measure("zwei", False, "nicht hier: ✗")]
    assert decode_measures(encode_measures(measures)) == measures
