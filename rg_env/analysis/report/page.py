"""The HTML page: assets, data, and a content security policy.

Invariant: statistics are embedded as JSON with `<` escaped, groups as gzip in base64, so no recorded text can end the
element that contains it. The content security policy allows only the page's own scripts, by digest, and no network:
injected markup would not run.
"""

from __future__ import annotations

import gzip
import html
import json
import math
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Any

_ASSETS = files("rg_env.analysis.report") / "assets"
_SCRIPTS = ("text.js", "charts.js", "table.js", "group.js", "browser.js", "main.js")
_VENDORED = ("d3", "d3.min.js"), ("plot", "plot.umd.min.js")
_GROUPS_PER_BLOCK = 250
_DIGITS = 6
_NUDGE = 1 + 1e-12
"""Sums differ in the 16th digit with the order of threads, but the same dump must give the same bytes. Numbers are
therefore rounded, after a tiny shift, because a mean such as 0.3040625 lies exactly between two rounded numbers."""


def page(title: str, summary: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> str:
    """The report.

    Args:
        title: of the page.
        summary: the data of charts and tables.
        groups: the data of the browser.
    """
    scripts = [*(_vendored(*which) for which in _VENDORED), _own_script()]
    return Template(_asset("page.html")).substitute(
        title=html.escape(title),
        policy=_policy(scripts),
        style=_asset("style.css"),
        summary=_json(summary, digits=_DIGITS).replace("<", "\\u003c"),
        blocks="\n".join(f'<script type="text/plain" class="block">{block}</script>' for block in _blocks(groups)),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")


def _vendored(name: str, file: str) -> str:
    """The library, preceded by its license."""
    return f"/*\n{_asset(f'vendor/{name}.LICENSE')}*/\n{_asset(f'vendor/{file}')}"


def _own_script() -> str:
    return '(() => {\n"use strict";\n' + "\n".join(map(_asset, _SCRIPTS)) + "\n})();"


def _policy(scripts: Sequence[str]) -> str:
    digests = (b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "  # a legend's ramp
        "base-uri 'none'; form-action 'none'"
    )


def _blocks(groups: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for start in range(0, len(groups), _GROUPS_PER_BLOCK):
        packed = gzip.compress(_json(groups[start : start + _GROUPS_PER_BLOCK]).encode(), compresslevel=6, mtime=0)
        yield b64encode(packed).decode()


def _json(value: object, digits: int | None = None) -> str:
    """ASCII, so that lone surrogates are allowed; numbers that are not finite become null."""
    return json.dumps(_finite(value, digits), allow_nan=False, separators=(",", ":"))


def _finite(value: Any, digits: int | None) -> Any:
    if isinstance(value, float):
        shown = value if digits is None else round(value * _NUDGE, digits)
        return shown if math.isfinite(shown) else None
    if isinstance(value, Mapping):
        return {key: _finite(child, digits) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(child, digits) for child in value]
    return value
