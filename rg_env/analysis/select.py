"""A dump reduced to what matches conditions: `Dump.where`."""

from __future__ import annotations

from collections.abc import Sequence

from rg_env.dump import Dump


def select(dump: Dump, where: Sequence[str]) -> Dump:
    """The rollouts that match all conditions; the dump itself without any.

    Raises:
        ConditionError: a condition is invalid; readers raise it if nothing matches.
    """
    return dump.where(where)
