"""The token records of a training batch, as a table.

Invariant: a row of the table is a row that the step consumed, in its order; the rows that SkyRL padded are left out,
and so is the padding of every row. The advantages are those that were computed from the rewards, before SkyRL
normalizes them over a mini-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

_LISTS = {
    "loss_mask": ("loss_mask", pa.int8()),
    "rollout_logprobs": ("rollout_logprobs", pa.float32()),
    "logprobs": ("action_log_probs", pa.float32()),
    "advantages": ("advantages", pa.float32()),
    "rewards": ("rewards", pa.float32()),
}
"""Columns with one value per response token: the field of SkyRL's batch, and the type."""
FIELDS = ("sequences", "attention_mask", "response_mask", *(field for field, _ in _LISTS.values()))


@dataclass(frozen=True, slots=True)
class BatchRow:
    """Where a row of a training batch comes from.

    Attributes:
        turn: number of the row within its trajectory, in step-wise mode; else 0.
        copy: number of the copy of its group (dynamic sampling `replace`); else 0.
    """

    group_id: str
    repetition: int
    turn: int
    copy: int


def token_table(rows: Sequence[BatchRow], fields: dict[str, Any]) -> pa.Table:
    """The table of a batch.

    Args:
        rows: of the batch, in order, without padded ones.
        fields: `FIELDS` of the batch, tensors of (rows, tokens) or None.
    """
    count = len(rows)
    arrays: dict[str, Any] = {
        name: None if values is None else _array(values[:count]) for name, values in fields.items()
    }
    sequences, attention = arrays["sequences"], arrays["attention_mask"].astype(bool)
    response = arrays["response_mask"].astype(bool)
    width = response.shape[1]
    prompt = attention.copy()
    prompt[:, -width:] &= ~response
    table: dict[str, Any] = {name: pa.array([getattr(row, name) for row in rows]) for name in BatchRow.__slots__}
    table["prompt_ids"] = _ragged(sequences, prompt, pa.int32())
    table["response_ids"] = _ragged(sequences[:, -width:], response, pa.int32())
    for name, (field, kind) in _LISTS.items():
        values = arrays[field]
        table[name] = pa.nulls(count, pa.list_(kind)) if values is None else _ragged(values, response, kind)
    return pa.table(table)


def _array(values: torch.Tensor) -> Any:
    """As numpy, whose masks need no threads: torch's would wait for cores that the trainer uses."""
    values = values.detach().cpu()
    return (values.float() if values.is_floating_point() else values).numpy()


def _ragged(values: Any, mask: Any, kind: pa.DataType) -> pa.ListArray:
    """The values of each row where the mask is True."""
    offsets = np.concatenate([[0], mask.sum(axis=1).cumsum()]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[mask].astype(kind.to_pandas_dtype())))
