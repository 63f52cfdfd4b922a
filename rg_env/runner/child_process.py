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

Reply = float | str | list[float | str] | dict[str, float]
"""What a worker can say about a job: JSON of numbers and short texts. The caller checks which of them fit."""
Answerer = Callable[[bytes], Reply]
"""What a target makes in a child: pickled arguments → reply. It raises for nothing that a model wrote."""


def serve_requests(connection: socket.socket, answerers: dict[bytes, Answerer]) -> None:
    """Serve requests, pickled pairs of target and arguments, until the other end closes (EOFError).

    A request without arguments makes the target ready, once; the reply is 0.0, or the reason why it cannot. Every other
    reply is that of the answerer.

    Args:
        answerers: of the targets that are ready already.
    """
    requests = connection.makefile("rb")
    while True:
        target, arguments = pickle.load(requests)
        if arguments:
            send(connection, answerers[target](arguments))
            continue
        try:
            answerers[target] = make_ready(target)
            send(connection, 0.0)
        except Exception as error:
            send(connection, describe(error, LONGEST_REASON))


def make_ready(target: bytes) -> Answerer:
    """What answers a target, a pickle of (module, function, …): the function makes it of the rest."""
    module, function, *rest = pickle.loads(target)
    answerer: Answerer = getattr(importlib.import_module(module), function)(*rest)
    return answerer


def send(connection: socket.socket, message: object) -> None:
    """Send one line of JSON."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def number_of(value: Any) -> float | None:
    """A finite number as a float, whatever type of number or scalar array it is; None for anything else.

    >>> number_of(True), number_of(Decimal("0.5")), number_of(float("nan")), number_of("1.0")
    (1.0, 0.5, None, None)
    """
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value  # NumPy, torch
    if not isinstance(value, (numbers.Real, Decimal)):
        return None
    with suppress(OverflowError, ValueError):  # a signaling NaN
        return number if math.isfinite(number := float(value)) else None
    return None
