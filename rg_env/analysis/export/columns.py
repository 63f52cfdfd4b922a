"""Columns that the kinds of data sets share, as Arrow types, and where a line comes from."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rg_env.dump.schema import GroupRecord

TEXT = pa.string()
NUMBER = pa.float64()
MESSAGES = pa.list_(pa.struct([("role", TEXT), ("content", TEXT)]))
"""A conversation, or a part of one, as TRL's conversational formats have it."""

ORIGIN: list[tuple[str, pa.DataType]] = [
    ("task", TEXT),
    ("item_id", TEXT),
    ("group_id", TEXT),
    ("phase", TEXT),
    ("step", pa.int64()),
]


def origin(group: GroupRecord) -> dict[str, Any]:
    """The columns `ORIGIN` of a group."""
    return {
        "task": group.task,
        "item_id": group.item_id,
        "group_id": group.group_id,
        "phase": group.phase,
        "step": group.step,
    }
