"""Which requests the server answers: for `GET /`, `/docs`, and whoever asks for something else.

It is read from the description that FastAPI makes of the routes, so a new dialect is listed without a change here.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rg_env.errors import did_you_mean


@dataclass(frozen=True)
class RequestKind:
    """A request: its method and path, what its body may have, and what it is for."""

    method: str
    path: str
    fields: tuple[str, ...]
    about: str

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


def kinds_of(openapi: Mapping[str, Any]) -> list[RequestKind]:
    """All requests of an OpenAPI description, in its order."""
    kinds = []
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            fields = tuple(dict.fromkeys(_fields(openapi, schema)))
            # The first paragraph of the route's docstring.
            about = operation.get("description", "").partition("\n\n")[0].replace("\n", " ")
            kinds.append(RequestKind(method.upper(), path, fields, about))
    return kinds


def _fields(openapi: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """The names in a body, of all its alternatives."""
    # FastAPI describes each model once and refers to it.
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        schema = openapi["components"]["schemas"][name]
    yield from schema.get("properties", ())
    for alternative in schema.get("oneOf", schema.get("anyOf", ())):
        yield from _fields(openapi, alternative)


def fields_at(kinds: Sequence[RequestKind], method: str, path: str) -> tuple[str, ...]:
    """What the body of this request may have."""
    return next((kind.fields for kind in kinds if (kind.method, kind.path) == (method, path)), ())


def advise(kinds: Sequence[RequestKind], method: str, path: str) -> str:
    """One line for a request that there is not."""
    methods = [kind.method for kind in kinds if kind.path == path]
    if methods:
        return f"{path} takes {' and '.join(methods)}, not {method}"
    paths = list(dict.fromkeys(kind.path for kind in kinds))
    hint = did_you_mean(path, paths, "there are")
    listed = ", ".join(kind.name for kind in kinds)
    return f"no such path{hint} {listed}" if hint.endswith("there are") else f"no such path{hint} GET / lists all"


def as_json(kinds: Sequence[RequestKind]) -> list[dict[str, Any]]:
    return [asdict(kind) for kind in kinds]


def as_page(kinds: Sequence[RequestKind]) -> str:
    """A page that needs no network and no JavaScript."""
    rows = []
    for kind in kinds:
        cells = [f"<code>{html.escape(kind.name)}</code>", html.escape(kind.about), html.escape(", ".join(kind.fields))]
        rows.append("".join(f"<td>{cell}</td>" for cell in cells))
    table = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        "<!doctype html><meta charset=utf-8><title>rg-env serve</title>"
        "<style>body{font:15px sans-serif;margin:2em}td,th{text-align:left;padding:.3em 1em .3em 0;vertical-align:top}"
        "</style><h1>rg-env serve</h1><table><tr><th>request<th>what it is for<th>its body has"
        f"{table}</table><p>Types of all fields: <a href=/openapi.json>openapi.json</a>. "
        "What they mean: docs/verifier.md.</p>"
    )
