"""What `rg-env serve --scorer` serves in tests."""

import time
from pathlib import Path


def sleeper(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def burner(_: str) -> float:
    while True:
        pass


def is_same_city(answer: str, row: dict[str, str]) -> float:
    return float(answer.lower() == row["answer"].lower())


def number_in(path: str) -> float:
    """What a file says, such as a table of prices that somebody changes while the server runs."""
    return float(Path(path).read_text())
