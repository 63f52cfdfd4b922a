"""What runs in a child: it makes what answers a target, and answers requests."""

from __future__ import annotations

import importlib
import json
import math
import numbers
import pickle
import socket
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any

from .failures import LONGEST_REASON, describe

_LONGEST_REPLY = 8000
"""Characters of a dict in JSON: what the caller reads at once has to hold it."""
Reply = float | str | list[float | str] | dict[str, float]
"""What a worker can say about a job: JSON of numbers and short texts. The caller checks which of them fit."""
Answerer = Callable[[bytes], Reply]
"""What a target makes in a child: pickled arguments → reply. It raises for nothing that a model wrote."""


def serve_requests(connection: socket.socket, answerers: dict[bytes, Answerer], is_last: bool = False) -> None:
    """Serve requests, as `protocol` has them, until the other end closes (EOFError).

    A request without arguments makes the target ready, once; the reply is 0.0, or the reason why it cannot. Every other
    reply is that of the answerer.

    Args:
        answerers: of the targets that are ready already.
        is_last: the first reply to arguments is the last one. Ending then is faster than waiting to be killed.
    """
    # Unpickling is safe in this direction: only the process that asks can write to this socket, and it is trusted.
    requests = connection.makefile("rb")
    while True:
        target, arguments, word = pickle.load(requests)
        if arguments:
            # An answerer catches what the function raises. What it does not catch ends the worker: CRASHED.
            send(connection, [word, answerers[target](arguments)])
            if is_last:
                return
            continue
        # Setting up is a user's code (a dataset with options), and says why it fails instead of ending the worker.
        try:
            answerers[target] = make_ready(target)
            send(connection, [word, 0.0])
        except Exception as error:
            send(connection, [word, describe(error, LONGEST_REASON)])


def make_ready(target: bytes) -> Answerer:
    """Make what answers a target, a pickle of (module, function, …): the function makes it of the rest."""
    module, function, *rest = pickle.loads(target)
    answerer: Answerer = getattr(importlib.import_module(module), function)(*rest)
    return answerer


def send(connection: socket.socket, message: object) -> None:
    """Send one line of JSON."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def make_answerer(path: str) -> Callable[[bytes], Reply]:
    """Make what answers calls of a function that `guarded` has: pickled arguments → its value, or how it raised."""
    function = find_function(path)

    def answer(arguments: bytes) -> Reply:
        try:
            # Inside of the `try`: unpickling an argument runs code, and so does `float` of what the function returns.
            return plain_value(function(*pickle.loads(arguments)))
        except BaseException as error:
            return describe(error, LONGEST_REASON)

    return answer


def find_function(path: str) -> Any:
    """Find what `module:function` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def plain_value(value: Any) -> Reply:
    """Return a value as JSON has it, or the reason why it is none."""
    plain = _plain_dict(value) if isinstance(value, dict) else number_of(value)
    if plain is None:
        return f"the scorer returned {value!r:.60}, which is neither a finite number nor a small dict of finite numbers"
    return plain


def _plain_dict(values: dict[Any, Any]) -> dict[str, float] | None:
    """Return the dict with floats; None if a key is not text, a value is not a number, or the whole is too long for a
    reply."""
    # A float of its own for each, because a value may be a subclass with any behavior.
    plain: dict[str, float] = {}
    for key, value in values.items():
        number = number_of(value)
        if number is None or not isinstance(key, str):
            return None
        plain[key] = number
    return plain if len(json.dumps(plain)) < _LONGEST_REPLY else None


def number_of(value: Any) -> float | None:
    """Return a finite number as a float, whatever type of number or scalar array it is; None for anything else.

    >>> number_of(True), number_of(Decimal("0.5")), number_of(float("nan")), number_of("1.0")
    (1.0, 0.5, None, None)
    """
    if type(value) is float and math.isfinite(value):  # nearly always
        return value
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:  # a scalar of NumPy or torch
        value = value.item()
    if not isinstance(value, (numbers.Real, Decimal)):
        return None
    with suppress(OverflowError, ValueError):  # a signaling NaN
        number = float(value)
        if math.isfinite(number):
            return number
    return None
