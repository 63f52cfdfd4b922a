"""Scorers that tests name in settings."""

import os
import time
from collections.abc import Mapping
from typing import Any


def points(answer: str, row: Mapping[str, Any]) -> float:
    while answer == "hang":
        pass
    return float(row["points"][answer])


def acting(answer: str, row: Mapping[str, Any]) -> float:
    """Do what the answer says; else compare."""
    match answer:
        case "spin":
            while True:
                pass
        case "sleep":
            time.sleep(10**6)
        case "exit":
            os._exit(3)
        case "allocate":
            return float(len(bytearray(3 << 30)))
        case "raise":
            raise ValueError(answer)
    return float(answer == row["answer"])


def careless(answer: str, row: Mapping[str, Any]) -> float:
    return float(str(eval(answer)) == row["answer"])


def never(answer: str, row: Mapping[str, Any]) -> float:
    raise AssertionError(answer)
