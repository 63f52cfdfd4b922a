"""Which requests the server answers: for `GET /`, and whoever asks for something else.

It is read from the description that FastAPI makes of the routes, so a new dialect is listed without a change here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rg_env.errors import did_you_mean


class RequestKind(NamedTuple):
    """A request: its method and path, what its body may have, and what it is for."""

    method: str
    path: str
    fields: tuple[str, ...]
    about: str

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


def kinds_of(openapi: Mapping[str, Any]) -> list[RequestKind]:
    """Return all requests of an OpenAPI description, in its order."""
    kinds = []
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            # The first paragraph of the route's docstring.
            about = operation.get("description", "").partition("\n\n")[0].replace("\n", " ")
            kinds.append(RequestKind(method.upper(), path, _fields(openapi, operation), about))
    return kinds


def _fields(openapi: Mapping[str, Any], operation: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names in a body; none where any object is taken."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    # FastAPI describes each model once and refers to it.
    name = schema.get("$ref", "").rpartition("/")[2]
    model = openapi["components"]["schemas"].get(name, {})
    return tuple(model.get("properties", ()))


def fields_at(kinds: Sequence[RequestKind], method: str, path: str) -> tuple[str, ...]:
    """Return what the body of this request may have."""
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


def as_text(kinds: Sequence[RequestKind]) -> str:
    """Return a line for each request, and one for what its body has."""
    width = max(len(kind.name) for kind in kinds)
    lines = []
    for kind in kinds:
        lines.append(f"{kind.name:{width}}  {kind.about}")
        if kind.fields:
            lines.append(f"{'':{width}}  body: {', '.join(kind.fields)}")
    lines += ["", "GET /openapi.json has the types of all fields; docs/verifier.md says what they mean."]
    return "\n".join(lines) + "\n"
