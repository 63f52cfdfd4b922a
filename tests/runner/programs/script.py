"""A script without a main guard."""

import sys

sys.exit()


def score() -> float:
    return 1.0
