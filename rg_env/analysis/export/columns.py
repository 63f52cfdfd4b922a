"""Columns that the kinds of data sets share, as Arrow types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rg_env.dump.schema import GroupRecord

TEXT = pa.string()
NUMBER = pa.float64()
MESSAGES = pa.list_(pa.struct([("role", TEXT), ("content", TEXT)]))
"""A conversation, or a part of one, as in TRL's conversational formats."""

ORIGIN = [(name, TEXT) for name in ("task", "item", "group_id", "phase")] + [("step", pa.int64())]
"""Where a line comes from."""


def origin(group: GroupRecord) -> dict[str, Any]:
    """The columns `ORIGIN` of a group."""
    return {name: getattr(group, name) for name, _ in ORIGIN}
