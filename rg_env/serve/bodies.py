"""Bodies of requests, of which only what a route needs is read.

Invariant: a body takes some ns for each byte, whatever its JSON has. What a route does not know makes no object,
entries stay JSON for the workers, and a list with too many texts is refused before it is one.

Half of a surrogate pair, which msgspec refuses, is read as a NUL character: the guard rejects answers with either.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from fastapi import Request

LARGE_BODIES: dict[str, Any] = {}
"""Name → schema of what the routes take that read their bodies here."""
Json = Annotated[msgspec.Raw, msgspec.Meta(description="read later, or by a worker")]
Texts = Annotated[msgspec.Raw, msgspec.Meta(description="a string or a list of strings")]
_LONGEST_MISTAKE, _MOST_ESCAPES = 200, 50_000
_HALF = "[89a-f][0-9a-f]{2}"
_ESCAPES = re.compile(rf"\\\\|\\ud[89ab][0-9a-f]{{2}}\\ud[c-f][0-9a-f]{{2}}|(\\ud{_HALF})".encode(), re.IGNORECASE)


class RefusedError(Exception):
    """A request that gets no score: the HTTP status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def too_many(most: int) -> RefusedError:
    return RefusedError(413, f"a request has at most {most:,} answers; send several requests")


def absent() -> Any:
    """Make the default of a field that stays JSON."""
    return msgspec.field(default_factory=msgspec.Raw)


def described(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return what /openapi.json says of a route that takes this body."""
    _, schemas = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
    LARGE_BODIES.update(schemas)
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
    return {"requestBody": {"required": True, "content": content}}


NOT_JSON = "send the body as JSON, with the header Content-Type: application/json"


def is_json(request: Request) -> bool:
    """Return whether a request declares its body as JSON."""
    return "json" in request.headers.get("content-type", "")


async def json_of(request: Request) -> bytes:
    """Return the body. Raises RefusedError: it is not declared as JSON."""
    if not is_json(request):
        raise RefusedError(422, NOT_JSON)
    return await request.body()


def decode[T](content: bytes | msgspec.Raw, kind: type[T], what: str = "the body") -> T:
    """Return what JSON has. Raises RefusedError: it is something else, or no JSON."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise RefusedError(422, f"{what}: {error}"[:_LONGEST_MISTAKE]) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        written = bytes(content)
        if b"\\u" in written and written.count(b"\\") < _MOST_ESCAPES:
            whole = _ESCAPES.sub(lambda escape: b"\\u0000" if escape[1] else escape[0], written)
            if whole != written:
                return decode(whole, kind, what)
        raise RefusedError(422, f"{what} is not valid JSON: {error}"[:_LONGEST_MISTAKE]) from None


def texts(content: msgspec.Raw, most: int, what: str) -> list[str] | None:
    """Return the texts of a field, or the only one; None without any. Raises RefusedError: there are too many."""
    written = bytes(content)
    if written in (b"", b"null"):
        return None
    # A text has two quotes that no backslash escapes. After `\\` there is one more of them.
    if written.count(b'"') - written.count(b'\\"') > 2 * most:
        raise too_many(most)
    given = decode(content, str | list[str], what)  # type: ignore[arg-type]
    return [given] if isinstance(given, str) else given
