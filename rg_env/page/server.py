"""The server of `rg-env dumps open`, and what it answers.

Invariant: only this machine can ask, with the token of the link, under a name of this machine; everything else gets an
empty 404. Nothing is written. A request may name a dump of the list, and no other path is opened for it. Answers are
the page, which needs nothing from elsewhere, and JSON.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rg_env.base.errors import DumpError, RGEnvError
from rg_env.dump.run_files import dump_folders, find_runs, folder_name
from rg_env.page.following import Following
from rg_env.page.page import as_json, page

_NAMES = ("localhost", "127.0.0.1")
"""Of this machine. A page elsewhere that made its own name lead here would ask under that."""
_MOST_FOLLOWED = 4
"""How many selections of runs are held in memory."""
_MOST_ROWS = 200
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class LivePage:
    """The page of some dumps, or of those that somebody chooses from the ones below a folder.

    Attributes:
        token: the first part of every path.
    """

    def __init__(self, paths: Sequence[Path], folder: Path) -> None:
        self.token = secrets.token_urlsafe(16)
        self._paths, self._folder = list(paths), folder
        self._followed: dict[tuple[Path, ...], Following] = {}

    def app(self) -> ASGIApp:
        """Return the application."""
        routes = {"": self._page, "state": self._state, "rows": self._rows, "group": self._group}
        inner = Starlette(routes=[Route(f"/{self.token}/{name}", answer) for name, answer in routes.items()])
        return _Door(inner, self.token)

    def close(self) -> None:
        for following in self._followed.values():
            following.close()

    def _page(self, request: Request) -> Response:
        return _response(page(None).encode(), "text/html; charset=utf-8")

    def _state(self, request: Request) -> Response:
        """How far the runs were read, and their figures if these are others than the page has."""
        following = self._following(request)
        if following is None:
            return _json({"list": self._list()})
        state = following.state() | {"paths": [str(path) for path in self._chosen(request)]}
        summary = following.summary if str(state["version"]) != request.query_params.get("version") else "null"
        return _response(as_json(state)[:-1] + b',"summary":' + summary.encode() + b"}", "application/json")

    def _rows(self, request: Request) -> Response:
        following, asked = self._following(request), request.query_params
        if following is None:
            return _json({"total": 0, "of": 0, "left": 0, "rows": []})
        first, count = _number(asked.get("first", "")), min(_MOST_ROWS, _number(asked.get("count", "")))
        try:
            return _json(following.find(asked.get("where", ""), asked.get("search", ""), first, count))
        except RGEnvError as error:
            return _json({"error": str(error)})

    def _group(self, request: Request) -> Response:
        following, asked = self._following(request), request.query_params
        group = following and following.group(asked.get("run_id", ""), asked.get("group_id", ""))
        return _json(group)

    # -- which runs

    def _list(self) -> list[dict[str, Any]]:
        """Return the dumps that can be chosen, the newest first."""
        rows = []
        for folder in self._folders():
            with suppress(DumpError):  # it has recorded nothing yet
                run = find_runs([folder])[-1]
                noted = run.noted
                facts = {
                    "run_id": run.run_id,
                    "model": run.model,
                    "kind": noted.kind,
                    "started": noted.started,
                    "state": run.state(),
                }
                rows.append({"path": str(folder), "name": folder_name(folder), **facts})
        return sorted(rows, key=lambda row: (row["started"] or "", row["run_id"]), reverse=True)

    def _folders(self) -> list[Path]:
        return dump_folders(self._folder) if os.path.isdir(self._folder) else []

    def _chosen(self, request: Request) -> list[Path]:
        """Return the dumps that the page is about."""
        names = request.query_params.getlist("run")
        if self._paths or not names:
            return self._paths
        return [folder for folder in self._folders() if str(folder) in names]

    def _following(self, request: Request) -> Following | None:
        chosen = tuple(self._chosen(request))
        if not chosen:
            return None
        if chosen not in self._followed:
            if len(self._followed) == _MOST_FOLLOWED:  # the first one that was chosen goes
                self._followed.pop(next(iter(self._followed))).close()
            self._followed[chosen] = Following(chosen)
        return self._followed[chosen]


class _Door:
    """Lets in who knows the token and asks under a name of this machine."""

    def __init__(self, inner: ASGIApp, token: str) -> None:
        self._inner, self._token = inner, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        request = Request(scope)
        name = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
        token = scope["path"][1:].partition("/")[0]
        is_known = hmac.compare_digest(token.encode(), self._token.encode())
        if name in _NAMES and is_known:
            await self._inner(scope, receive, send)
        else:
            await Response(status_code=404)(scope, receive, send)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _response(body: bytes, kind: str) -> Response:
    return Response(body, media_type=kind, headers=_HEADERS)


def _json(value: object) -> Response:
    return _response(as_json(value), "application/json")


def listen(port: int) -> socket.socket:
    """Return a socket of the loopback address; port 0 is any free one. Raises RGEnvError."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise RGEnvError(f"cannot listen on port {port}: {error.strerror}; choose another --port") from None


def serve(live: LivePage, listener: socket.socket) -> None:
    """Serve the page until Ctrl-C or SIGTERM."""
    config = uvicorn.Config(live.app(), log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        live.close()
