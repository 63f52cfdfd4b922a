"""Replies of the server: JSON that any text fits into, and errors of one line."""

from __future__ import annotations

import json
from typing import Any

from fastapi.responses import JSONResponse

from rg_env.errors import one_line

RETRY_SECONDS = 2


class Reply(JSONResponse):
    """JSON in ASCII. A text may be half of a surrogate pair, which UTF-8 has no bytes for."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def error_reply(status: int, why: object) -> Reply:
    """`{"error": …}`, with `Retry-After` if the client should ask again."""
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else None
    return Reply({"error": one_line(why)}, status, headers)
