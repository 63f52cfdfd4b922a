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
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Any

import msgspec

_ASSETS = files("rg_env.page") / "assets"
_SCRIPTS = ("text.js", "source.js", "charts.js", "table.js", "side.js", "group.js", "browser.js", "main.js")
_VENDORED = {"d3": "d3.min.js", "plot": "plot.umd.min.js"}
_GROUPS_PER_BLOCK = 250
_ENCODER = msgspec.json.Encoder()
_NUDGE = 1 + 1e-12
"""Sums differ in the 16th digit with the order of threads, but the same dump must give the same bytes. Numbers are
therefore rounded to significant digits, after a tiny shift, because a mean may lie exactly between two of them."""


def page(summary: Mapping[str, Any] | None, groups: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the report; the summary is the data of charts and tables, the groups are that of the browser. Without a
    summary, the page that asks the server it came from for both."""
    own = "\n".join(map(_asset, _SCRIPTS))
    scripts = []
    for name, file in _VENDORED.items():
        scripts.append(f"/*\n{_asset(f'vendor/{name}.LICENSE')}*/\n{_asset(f'vendor/{file}')}")
    # Our scripts in one function, so that none of their names is global.
    scripts.append(f'(() => {{\n"use strict";\n{own}\n}})();')
    # The security policy allows these scripts by their digests, so they are embedded below byte for byte.
    digests = [f"'sha256-{_base64(sha256(script.encode()).digest())}'" for script in scripts]
    blocks = []
    for start in range(0, len(groups), _GROUPS_PER_BLOCK):
        block = as_json(groups[start : start + _GROUPS_PER_BLOCK])
        compressed = gzip.compress(block, compresslevel=6, mtime=0)  # a time would change the bytes
        blocks.append(f'<script type="text/plain" class="block">{_base64(compressed)}</script>')
    title, connect = "rg-env", "'self'"
    if summary is not None:
        title, connect = summary["title"], "'none'"
    return Template(_asset("page.html")).substitute(
        title=html.escape(title),
        digests=" ".join(digests),
        connect=connect,
        style=_asset("style.css"),
        summary=summary_json(summary).replace("<", "\\u003c"),
        blocks="\n".join(blocks),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def summary_json(summary: Mapping[str, Any] | None) -> str:
    """Return the summary as the page reads it, null for none."""
    return _json(summary, digits=7)


def as_json(value: object) -> bytes:
    """Return groups as the page reads them; NaN and infinity become null."""
    return _ENCODER.encode(value)


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _json(value: object, digits: int | None = None) -> str:
    """ASCII, so that lone surrogates are allowed; numbers that are not finite become null."""
    return json.dumps(_finite(value, digits), allow_nan=False, separators=(",", ":"))


def _finite(value: Any, digits: int | None) -> Any:
    if isinstance(value, float):
        if digits is not None:
            value = float(f"{value * _NUDGE:.{digits}g}")
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(child, digits) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(child, digits) for child in value]
    return value
