"""Messages between the trainer and its scorer processes.

Invariant: a frame is a length of four bytes and that many bytes. Requests are pickles, because a worker may trust the
trainer. Replies are JSON in small frames, checked value by value, because a worker may have run model output: whatever
bytes it sends, `decode_reply` returns two forms or raises `ProtocolError`.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Iterable
from dataclasses import asdict
from time import monotonic

from rg_env.errors import one_line
from rg_env.scoring.sandbox.sandbox import Measure
from rg_env.scoring.types import Form

MAX_REPLY_BYTES = 4096

FORK, KILL = 1, 2
COMMAND = struct.Struct("!BqQI")
"""What the trainer writes to the fork server's control socket: the command, the pid (for KILL), and for FORK, which is
sent with one socket, the memory limit in bytes and the seconds of CPU time that one answer may take."""
FORKED = struct.Struct("!q")
"""The reply to FORK: a pid, or a negative errno. KILL has no reply."""

MAX_LINE = 200
_LENGTH = struct.Struct("!I")


class ProtocolError(Exception):
    """The other side sent something invalid: do not use the connection any more."""


def send_frame(sock: socket.socket, payload: bytes, deadline: float | None = None) -> None:
    """Send one frame.

    Args:
        deadline: on the clock of `time.monotonic`; None: no limit.

    Raises:
        TimeoutError: the deadline passed.
        OSError: the other side is gone.
    """
    frame = _LENGTH.pack(len(payload)) + payload
    if deadline is not None:
        _set_timeout(sock, 0.0)
    try:
        sent = sock.send(frame, socket.MSG_DONTWAIT)
    except BlockingIOError:
        sent = 0
    if sent < len(frame):
        _set_timeout(sock, _left(deadline))
        try:
            sock.sendall(memoryview(frame)[sent:])
        except BlockingIOError:  # what a timeout of 0 raises
            raise TimeoutError from None


def recv_frame(sock: socket.socket, max_bytes: int, deadline: float | None = None) -> bytes:
    """Receive one frame. The other side must then be silent, because requests and replies alternate.

    Bytes that have arrived are read even if the deadline has passed, because then it was the reader that was late.

    Raises:
        TimeoutError: the deadline passed.
        EOFError, OSError: the other side is gone.
        ProtocolError: the frame is longer than `max_bytes`, or more than one frame was sent.
    """
    received = _recv_some(sock, deadline)
    while len(received) < _LENGTH.size:
        received += _recv_some(sock, deadline)
    end = _LENGTH.size + _LENGTH.unpack_from(received)[0]
    if end > max_bytes:
        raise ProtocolError(f"a frame of {end} bytes, more than {max_bytes}")
    while len(received) < end:
        received += _recv_some(sock, deadline)
    if len(received) > end:
        raise ProtocolError("more than one frame at once")
    return bytes(memoryview(received)[_LENGTH.size :])


def encode_reply(raw: Form, tagged: Form) -> bytes:
    """The worker's reply to a request. Lines are cut so that it always fits into `MAX_REPLY_BYTES`: JSON in UTF-8 takes
    at most six bytes per character."""
    cut = [form[:MAX_LINE] if isinstance(form, str) else form for form in (raw, tagged)]
    return json.dumps(cut, ensure_ascii=False).encode("utf-8", "surrogatepass")


def decode_reply(payload: bytes) -> tuple[Form, Form]:
    """Read a worker's reply: (raw, tagged).

    Raises:
        ProtocolError: `encode_reply` cannot have written this.
    """
    try:
        reply = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the reply is not JSON: {error}") from None
    if not isinstance(reply, list) or len(reply) != 2:
        raise ProtocolError("the reply does not have two forms")
    raw, tagged = (_checked(form) for form in reply)
    return raw, tagged


def encode_measures(measures: Iterable[Measure]) -> bytes:
    """The fork server's first frame: it is ready, and its workers will be under these measures."""
    return json.dumps([asdict(measure) for measure in measures]).encode("ascii")


def decode_measures(payload: bytes) -> list[Measure]:
    """Read the fork server's first frame. It is not checked, because the fork server runs no model output."""
    return [Measure(**measure) for measure in json.loads(payload)]


def _checked(form: object) -> Form:
    if isinstance(form, str):
        return one_line(form, MAX_LINE) or "no reason given"
    if isinstance(form, float) and math.isfinite(form) and 0 <= form <= 1:
        return form
    raise ProtocolError("a form is neither a score in [0, 1] nor a reason")


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - monotonic())


def _set_timeout(sock: socket.socket, seconds: float | None) -> None:
    if sock.gettimeout() != seconds:  # setting it is a system call, and there are several of them for every answer
        sock.settimeout(seconds)


def _recv_some(sock: socket.socket, deadline: float | None) -> bytearray:
    _set_timeout(sock, _left(deadline))
    try:
        chunk = sock.recv(1 << 16)
    except BlockingIOError:  # what a timeout of 0 raises
        raise TimeoutError from None
    if not chunk:
        raise EOFError
    return bytearray(chunk)
