"""What `rg-env serve --scorer` serves in tests."""

import time


def sleeper(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def burner(_: str) -> float:
    while True:
        pass


def is_same_city(answer: str, row: dict[str, str]) -> float:
    return float(answer.lower() == row["answer"].lower())
