"""The sandbox and the lifetime of processes are tested with Reasoning Gym's scorers, too."""

from tests.scoring.conftest import item, scorer

__all__ = ["item", "scorer"]
