"""Clients that send slowly, send nothing, or read nothing, against a real server in this process."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import uvicorn
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from rg_env.scoring import Scorer
from rg_env.serve import connections, desk, http_app
from rg_env.serve.connections import LimitedProtocol
from rg_env.serve.desk import Desk
from rg_env.serve.fairness import Rounds
from rg_env.serve.http_app import make_server

SOON = 0.2
"""A limit that a test waits for."""
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
SOCKET = "ws://localhost/ws"
HALF_A_BODY = b"POST /verify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"

Connect = Callable[[], contextlib.AbstractContextManager[socket.socket]]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes connections to a server of its own, which has not scored anything."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = make_server(Desk(Scorer(1)), lambda: None)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()

    @contextmanager
    def connected() -> Iterator[socket.socket]:
        with socket.socket() as connection:
            connection.settimeout(60)
            connection.connect(listener.getsockname())
            yield connection

    yield connected
    server.should_exit = True
    thread.join(60)
    assert not thread.is_alive()


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes without a word. Waits until it does something."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def is_answered(connection: socket.socket) -> bool:
    connection.sendall(HEALTH)
    reply = b""
    while not reply.endswith(b"}"):  # of its body
        reply += connection.recv(1 << 16)
    return reply.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("start", [b"", HEALTH[:30], HEALTH + HEALTH[:30]], ids=["nothing", "half", "second"])
def test_a_head_that_is_not_finished_ends_the_connection(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", SOON)
    with connect() as connection:
        if start.startswith(HEALTH):
            assert is_answered(connection)
            start = start.removeprefix(HEALTH)
        connection.sendall(start)
        assert is_closed(connection)


def test_a_slow_body_is_no_slow_head(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", SOON)
    with connect() as connection:
        connection.sendall(HALF_A_BODY)
        time.sleep(2 * SOON)
        connection.sendall(b" " * 999)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 4")


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such limit")
def test_a_client_that_takes_nothing_of_its_replies_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_app, "_REPLY_SECONDS", 1)
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()
    server: list[uvicorn.Server] = []

    def make(desk: Desk, at_end: Callable[[], None]) -> uvicorn.Server:
        server.append(make_server(desk, at_end))
        return server[0]

    monkeypatch.setattr(http_app, "make_server", make)
    thread = threading.Thread(target=http_app.run, args=(Desk(Scorer(1)), listener, ended.set))
    thread.start()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(60)
        connection.connect(listener.getsockname())
        # More than the system keeps for both sides.
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400)
        deadline = time.monotonic() + 60
        while not (server and server[0].server_state.connections) and time.monotonic() < deadline:
            time.sleep(0.01)
        while server[0].server_state.connections and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not server[0].server_state.connections
    server[0].should_exit = True
    thread.join(60)
    assert ended.is_set()


def test_a_reply_in_two_parts_does_not_wait_for_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a client that keeps its connection, the system confirms the first part only after 40 ms."""
    monkeypatch.setattr(http_app, "make_server", lambda *_: SimpleNamespace(run=lambda sockets: None))
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        http_app.run(Desk(Scorer(1)), listener, lambda: None)
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_bodies_have_a_bounded_size_together(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    # Half of it is for one address: once the greatest size.
    monkeypatch.setattr(desk, "_BODIES", 2)
    size = 3_000_000
    post = b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    half = post + f"Content-Length: {size}\r\n\r\n".encode() + b" " * (size - 1)
    with connect() as first, connect() as second, connect() as third:
        first.sendall(half)
        second.sendall(half)
        (refused,), _, _ = select.select([first, second], [], [], 60)
        reply = refused.recv(1 << 16)
        assert reply.startswith(b"HTTP/1.1 503") and b"retry-after" in reply and b"connection: close" in reply
        taken = second if refused is first else first
        taken.sendall(b"1")
        assert taken.recv(1 << 16).startswith(b"HTTP/1.1 422")
        # What was held is free again.
        third.sendall(half + b"1")
        assert third.recv(1 << 16).startswith(b"HTTP/1.1 422")


def test_a_refused_body_is_not_read(connect: Connect) -> None:
    with connect() as connection:
        connection.sendall(b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000000\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 413")
        with pytest.raises(ConnectionError):
            for _ in range(100):
                connection.sendall(b" " * (1 << 20))


def test_who_has_left_before_its_turn_is_not_read(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    waiting: list[Callable[[], None]] = []
    lost: list[LimitedProtocol] = []
    connection_lost = LimitedProtocol.connection_lost

    def note_lost(protocol: LimitedProtocol, exc: Exception | None) -> None:
        connection_lost(protocol, exc)
        lost.append(protocol)

    monkeypatch.setattr(LimitedProtocol, "connection_lost", note_lost)
    monkeypatch.setattr(Rounds, "add", lambda _, __, work: waiting.append(work))
    monkeypatch.setattr(LimitedProtocol, "_read_as_http", lambda _, data: read.append(data))
    with connect() as leaving:
        leaving.sendall(HEALTH)
        while not waiting:
            time.sleep(0.01)
    while not lost:
        time.sleep(0.01)
    waiting[0]()
    assert not read


@pytest.mark.parametrize("limit", ["_PAUSE_SECONDS", "_BODY_SECONDS"])
def test_a_body_that_does_not_come_is_told(connect: Connect, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(http_app, limit, SOON)
    with connect() as connection:
        connection.sendall(HALF_A_BODY)
        if limit == "_BODY_SECONDS":  # also if it never stops for long
            connection.settimeout(SOON / 10)
            for _ in range(900):
                with contextlib.suppress(TimeoutError):
                    reply = connection.recv(1 << 16)
                    break
                connection.sendall(b" ")
        else:
            reply = connection.recv(1 << 16)
        assert reply.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    ("token", "headers", "enters"),
    [
        ("", {}, True),
        ("", {"Origin": "http://localhost:3000"}, True),
        ("", {"Origin": "https://evil.example"}, False),
        ("", {"Origin": "null"}, False),
        ("", {"Host": "evil.example"}, False),
        ("secret", {}, False),
        ("secret", {"Authorization": "Bearer wrong"}, False),
        ("secret", {"Authorization": "Bearer secret", "Origin": "https://ours.example"}, True),
    ],
)
def test_who_may_open_a_websocket(token: str, headers: dict[str, str], enters: bool) -> None:
    client = TestClient(http_app.make_app(Desk(Scorer(1), token=token)))
    if enters:
        with client.websocket_connect(SOCKET, headers=headers) as connection:
            connection.send_json({"type": "nothing"})
            assert connection.receive_json()["data"]["code"] == "UNKNOWN_TYPE"
    else:
        with (
            pytest.raises(WebSocketDisconnect) as refused,
            client.websocket_connect(SOCKET, headers=headers),
        ):
            pass
        assert refused.value.code == 1008


@pytest.mark.parametrize(
    ("message", "code", "why"),
    [
        ("{", "INVALID_JSON", "the message is not valid JSON"),
        ("[1]", "INVALID_JSON", "the message must be a JSON object"),
        ('{"type": "reset", "data": {"seed": "x"}}', "VALIDATION_ERROR", "data.seed: Input should be a valid integer"),
        ('{"type": "reset", "data": [1]}', "VALIDATION_ERROR", "data: Input should be a valid dictionary"),
        (
            '{"type": "step", "data": {"anwser": "1"}}',
            "VALIDATION_ERROR",
            "data.anwser: Extra inputs are not permitted",
        ),
        ('{"type": "step", "data": {"answer": "1"}}', "EXECUTION_ERROR", "no such episode"),
        ('{"type": "reset", "data": {"split": "x"}}', "VALIDATION_ERROR", "split must be train or eval"),
    ],
)
def test_a_wrong_message_of_a_websocket_is_one_line(message: str, code: str, why: str) -> None:
    client = TestClient(http_app.make_app(Desk(Scorer(1))))
    with client.websocket_connect(SOCKET) as connection:
        for _ in range(2):  # the connection stays
            connection.send_text(message)
            data = connection.receive_json()["data"]
            assert data["code"] == code and why in data["message"] and "\n" not in data["message"]
