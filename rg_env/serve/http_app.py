"""`rg-env serve`: the scorers of this machine for programs elsewhere, over HTTP.

Invariant: a request gets the verdict of its answer or an error, never a score of 0 that the answer did not earn. Every
error is one line, `{"error": …}`: 4xx for what cannot be scored, which a retry cannot change, and 503 for a full
queue and a failure of the machine. Nothing in a request hangs, crashes or changes the server, as nowhere in
`rg_env.scoring`.

The kinds of requests are in `dialects`. Not covered: encryption, and the arguments of a function of the user's
(`--scorer`), which has its processes and deadlines, but no guard.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from loguru import logger
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rg_env import __version__
from rg_env.base.errors import RGEnvError, describe, one_line
from rg_env.serve.bodies import LARGE_BODIES, NOT_JSON, RefusedError, is_json
from rg_env.serve.connections import KEEP_ALIVE_SECONDS, LimitedProtocol, allow_connections
from rg_env.serve.desk import CLIENT, Desk, JsonReply, explain
from rg_env.serve.dialects import nemo_gym, openenv, ors, own_scores, reward_models
from rg_env.serve.episodes import Episodes

DIALECTS: tuple[Callable[[Desk], APIRouter], ...] = (own_scores.routes, nemo_gym.routes, reward_models.routes)
DIALECTS_WITH_SESSIONS: tuple[Callable[[Episodes], APIRouter], ...] = (ors.routes, openenv.routes)
_ALL_REQUESTS = "GET /openapi.json describes all requests"
_RETRY_SECONDS = 2
"""After which a client should ask again that has got a 503."""
GRACE_SECONDS = 8
"""How long SIGTERM waits for the answers that are being scored."""
_SWITCH_SECONDS = 0.0005
"""For how long another thread, such as that of the scorers, keeps Python's lock while requests wait. Python's default
is 5 ms."""
_PAUSE_SECONDS = 30
"""After which a client that sends no more of its body is given up."""
_BODY_SECONDS = 120
"""After which a client that has not sent all of its body is given up, however steadily it sends."""
_REPLY_SECONDS = 120
"""After which the system gives up a client that takes nothing of what it is sent."""
_LINGER_SECONDS = 0.5
"""In which a refused client should have taken its reply."""
_LARGE = frozenset(["/score", "/verify", "/reward", "/aggregate_metrics"])
"""Paths of requests with entries, answers or rows, which `bodies` reads."""
_MOST_SMALL_BYTES = 1 << 20
"""Of all other requests, and of messages over a WebSocket: their JSON becomes objects here."""


class _Server(uvicorn.Server):
    """uvicorn, and what is to be said at its end: it raises its signal again before `run` returns."""

    def __init__(self, config: uvicorn.Config, at_end: Callable[[], None]) -> None:
        super().__init__(config)
        self._at_end = at_end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._at_end()


def run(desk: Desk, listener: socket.socket, at_end: Callable[[], None]) -> None:
    """Serve on this socket until SIGTERM or Ctrl-C, then call `at_end`."""
    # Connections have options from the socket that accepts them. asyncio sets this one only for sockets that name TCP.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _REPLY_SECONDS * 1000)
    sys.setswitchinterval(_SWITCH_SECONDS)
    make_server(desk, at_end).run(sockets=[listener])


def make_server(desk: Desk, at_end: Callable[[], None]) -> uvicorn.Server:
    """uvicorn with all limits."""
    config = uvicorn.Config(
        make_app(desk),
        http=LimitedProtocol,
        limit_concurrency=allow_connections(),
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws_max_size=_MOST_SMALL_BYTES,
        log_level="warning",
        access_log=False,
    )
    return _Server(config, at_end)


def make_app(desk: Desk, episodes: Episodes | None = None) -> FastAPI:
    """The server over these scorers, which it closes at its end."""

    @asynccontextmanager
    async def close_at_the_end(_: FastAPI) -> AsyncIterator[None]:
        yield
        desk.scorer.close()
        desk.makers.close()
        if desk.function:
            desk.function.close()

    # FastAPI's own pages of documentation load their JavaScript from the network.
    app = FastAPI(title="rg_env", version=__version__, docs_url=None, redoc_url=None, lifespan=close_at_the_end)
    app.add_middleware(_Gate, desk=desk)
    app.add_exception_handler(HTTPException, _refuse_route)
    app.add_exception_handler(RequestValidationError, _refuse_body)

    @app.get("/", response_model=None)
    async def requests() -> PlainTextResponse:
        """Where all requests are described."""
        return PlainTextResponse(f"{_ALL_REQUESTS}\n")

    @app.get("/health", response_model=None)
    async def health() -> JsonReply:
        """Workers, waiting answers, counts by status, and whether a function of yours still knows its examples."""
        facts: dict[str, Any] = {
            "status": "healthy",
            "workers": desk.scorer.workers,
            "waiting": desk.waiting,
            "scored": dict(desk.scored),
        }
        if desk.function is not None and desk.function.examples:
            failed = await desk.function.afailed_examples()
            facts["examples"] = {"scored": len(desk.function.examples), "failed": failed}
            if failed:
                facts["status"] = "unhealthy"
        return JsonReply(facts)

    if desk.function is not None:
        app.include_router(own_scores.function_routes(desk, desk.function))
        return app
    for routes in DIALECTS:
        app.include_router(routes(desk))
    if episodes is None:
        episodes = Episodes(desk)
    for routes_of in DIALECTS_WITH_SESSIONS:
        app.include_router(routes_of(episodes))
    # FastAPI keeps what it returns here for /openapi.json.
    app.openapi()["components"]["schemas"].update(LARGE_BODIES)
    return app


def error_reply(status: int, why: object, headers: Mapping[str, str] | None = None) -> JsonReply:
    """`{"error": …}`, with `Retry-After` if the client should ask again."""
    if status == 503:
        headers = {**(headers or {}), "Retry-After": str(_RETRY_SECONDS)}
    return JsonReply({"error": one_line(why)}, status, headers)


def _refuse_route(_: Request, error: Exception) -> Response:
    """Refuse a path or a method that does not exist, or a body that FastAPI cannot read."""
    assert isinstance(error, HTTPException)
    why = error.detail
    if error.status_code in (404, 405):
        why = f"{why}: {_ALL_REQUESTS}"
    return error_reply(error.status_code, why, error.headers)


def _refuse_body(request: Request, error: Exception) -> Response:
    """Refuse a body that is not JSON, or not what the route takes."""
    assert isinstance(error, RequestValidationError)
    if not is_json(request):
        return error_reply(422, NOT_JSON)
    return error_reply(422, explain(error.errors()))


def _closing_later(send: Send) -> Send:
    """Return `send` with a pause before the end of the reply, at which uvicorn closes the connection: what the client
    has sent and nobody reads makes the system drop a reply that is still on its way."""

    async def send_and_wait(message: Message) -> None:
        if message["type"] == "http.response.body":
            await send({**message, "more_body": True})
            await asyncio.sleep(_LINGER_SECONDS)
            message = {"type": "http.response.body"}
        await send(message)

    return send_and_wait


class _Gate:
    """Around all routes: who may ask, how much, for how long, and what a failure is called.

    A body is read here, before a route begins, so that the limit holds however it is sent, and so that the route can be
    cancelled as soon as its client has left.
    """

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self._app, self._desk = app, desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = scope.get("client")
        CLIENT.set(address[0] if address else "")
        if scope["type"] == "websocket":
            await self._pass_socket(scope, receive, send)
            return
        if scope["type"] != "http":  # the beginning and the end of the server
            await self._app(scope, receive, send)
            return
        # An error can be sent only while no reply has begun.
        has_replied = False

        async def note_and_send(message: Message) -> None:
            nonlocal has_replied
            has_replied = True
            await send(message)

        try:
            self._check(Headers(scope=scope))
            error = None
            with self._desk.holding() as hold:
                body = await self._read(scope, receive, hold)
                if body is not None:
                    error = await _answer(self._app, scope, body, receive, note_and_send)
        except RefusedError as refused:
            # Closed, so that what else comes of the body is not read.
            error = error_reply(refused.status, refused, {"Connection": "close"})
            send = _closing_later(send)
        except asyncio.CancelledError:  # by uvicorn, GRACE_SECONDS after SIGTERM
            error = error_reply(503, "the server is shutting down")
        if error is not None and not has_replied:
            await error(scope, receive, send)

    async def _pass_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a WebSocket in if its client may ask."""
        headers = Headers(scope=scope)
        try:
            self._check(headers)
            # A page of anywhere may try to open a WebSocket, and says where it is from; programs say nothing.
            if not self._desk.token and "origin" in headers:
                name = urlsplit(headers["origin"]).hostname or ""
                if name not in ("localhost", "127.0.0.1", "::1", self._desk.host):
                    raise RefusedError(403, "cross-origin WebSocket connections are not allowed")
        except RefusedError:
            await send({"type": "websocket.close", "code": 1008})  # before it is accepted: HTTP's 403
            return
        try:
            await self._app(scope, receive, send)
        except Exception as error:  # something that we did not think of
            logger.warning("a WebSocket could not be served: {}", describe(error))
            with suppress(RuntimeError):  # it is closed
                await send({"type": "websocket.close", "code": 1011})

    def _check(self, headers: Headers) -> None:
        """Refuse who may not ask."""
        token = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", "")
        # A token alone decides who may ask. Without one, the name in the request keeps pages of other sites out.
        if not self._desk.token:
            _check_host(headers.get("host"), self._desk.host)
        # As bytes: `compare_digest` refuses a str that is not ASCII.
        elif not hmac.compare_digest(token.encode(), self._desk.token.encode()):
            raise RefusedError(401, "send the header `Authorization: Bearer TOKEN`")

    async def _read(self, scope: Scope, receive: Receive, hold: Callable[[int], None]) -> bytes | None:
        """Return the body, whose bytes `hold` counts; None if the client has left."""
        most = self._desk.most_bytes if scope["path"] in _LARGE else min(self._desk.most_bytes, _MOST_SMALL_BYTES)
        too_long = RefusedError(413, f"a request has at most {most:,} bytes here")
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise too_long
        parts: list[bytes] = []
        size = 0
        deadline = time.monotonic() + _BODY_SECONDS
        while True:
            try:
                message = await asyncio.wait_for(receive(), min(_PAUSE_SECONDS, deadline - time.monotonic()))
            except TimeoutError:
                raise RefusedError(
                    408, f"timed out reading the body: no data for {_PAUSE_SECONDS} s, or over {_BODY_SECONDS} s in all"
                ) from None
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            size += len(part)
            if size > most:  # a body in chunks has any Content-Length, or none
                raise too_long
            hold(len(part))
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)


def _check_host(host: str | None, own: str) -> None:
    """Refuse a page in a browser on this machine whose own name was made to lead here (DNS rebinding).

    Such a page cannot use an address as its name. Programs other than browsers may send no name at all.
    """
    if host is None:
        return
    with suppress(ValueError):
        name = urlsplit(f"//{host}").hostname or ""
        # Names below localhost lead to this machine by definition (RFC 6761); the SDK of ORS puts a name in front.
        if name in ("localhost", own) or name.endswith(".localhost"):
            return
        ipaddress.ip_address(name)
        return
    raise RefusedError(403, "without a token, only requests to 127.0.0.1 or localhost are answered")


async def _answer(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> JsonReply | None:
    """Call the route, and cancel it if its client leaves before the reply. Returns an error if the route raised."""

    leaving = asyncio.ensure_future(_until_gone(receive))
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        if parts:
            return parts.pop()
        # A streaming reply asks for more until the client has left.
        await asyncio.shield(leaving)
        return {"type": "http.disconnect"}

    asking = asyncio.ensure_future(_reply_or_error(app(scope, replay, send)))
    try:
        await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else None
    finally:
        asking.cancel()
        leaving.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _reply_or_error(reply: Awaitable[None]) -> JsonReply | None:
    """Await a route. Returns what it could not say itself: why it raised."""
    try:
        await reply
    except RefusedError as refused:
        return error_reply(refused.status, refused)
    except (RGEnvError, OSError, MemoryError) as error:  # of the machine
        return error_reply(503, error)
    except RecursionError:
        return error_reply(422, "the body is nested too deeply")
    except Exception as error:
        # Something that we did not think of. The same request would fail again, so it is no 5xx.
        logger.opt(exception=error).warning("a request could not be answered: {}", describe(error))
        return error_reply(422, f"this request cannot be answered: {describe(error)}")
    return None
