"""What `rg-env serve --scorer` serves in tests."""

import time


def sleeper(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def burner(_: str) -> float:
    while True:
        pass
