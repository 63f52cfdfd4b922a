"""The sandbox and the lifetime of processes are tested with Reasoning Gym's scorers, which evaluate text."""

from tests.scoring.conftest import item, scorer, unguarded

__all__ = ["item", "scorer", "unguarded"]
