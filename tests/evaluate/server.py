"""A scripted OpenAI-compatible server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rg_env.dump import FileKind
from tests.dump.records import lines_of

CUT = "cut the connection"
HANG = "never answer"


@dataclass
class Answer:
    """An answer: a status with a body, or `CUT` or `HANG` in place of the status."""

    status: int | str = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


def completion(content: str | None, *, finish: str = "stop", tokens: int | None = 7, **message: Any) -> Answer:
    """A completion of `tokens` tokens to a prompt of 11."""
    usage = None if tokens is None else {"prompt_tokens": 11, "completion_tokens": tokens, "total_tokens": 11 + tokens}
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
    return Answer(
        body={"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
    )


def error(status: int, message: str, code: str | None = None, **headers: str) -> Answer:
    return Answer(
        status, {"error": {"message": message, "type": "error", "code": code}}, {"retry-after-ms": "1", **headers}
    )


Script = Callable[[int, dict[str, Any]], Answer]
"""Number of the request, from 0, and its body → the answer."""


class Server(ThreadingHTTPServer):
    """Answers as `script` says.

    Attributes:
        requests: the bodies received.
        keys: the values of the header `Authorization`.
    """

    daemon_threads = True
    request_queue_size = 128  # with the default of 5, the system refuses connections that arrive at once
    block_on_close = False

    def __init__(self, script: Script, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that were killed are no error."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(Answer() if self.path == "/health" else Answer(404, {"error": {"message": "no such route"}}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append(body)
            self.server.keys.add(self.headers.get("authorization"))
        reply = self.server.script(number, body)
        if reply.status == HANG:
            time.sleep(60)
        if isinstance(reply.status, str):
            self.close_connection = True
            self.connection.close()
            return
        self._send(reply)

    def _send(self, reply: Answer) -> None:
        content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(int(reply.status))
        for name, value in {"content-type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving(script: Script) -> Iterator[Server]:
    server = Server(script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def wait_for_groups(folder: Path, count: int) -> None:
    """Wait until the ledger of a run has so many groups; a busy machine takes a minute to start Python."""
    deadline = time.monotonic() + 280
    while len(lines_of(folder, FileKind.LEDGER) if folder.is_dir() else []) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)
