"""The token records of a training batch, as a table.

Invariant: a row of the table is a row that the step consumed, in its order; the rows that SkyRL padded are left out,
and so is the padding of every row. The advantages are those that were computed from the rewards, before SkyRL
normalizes them over a mini-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
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
    attention = fields["attention_mask"][:count].bool()
    response = fields["response_mask"][:count].bool()
    prompt = attention.clone()
    prompt[:, -response.shape[1] :] &= ~response
    sequences = fields["sequences"][:count]
    said = sequences[:, -response.shape[1] :]
    columns = dict(zip(("group_id", "repetition", "turn", "copy"), zip(*map(astuple, rows), strict=True), strict=True))
    table: dict[str, Any] = {name: pa.array(values) for name, values in columns.items()}
    table |= {"prompt_ids": _ragged(sequences, prompt, pa.int32()), "response_ids": _ragged(said, response, pa.int32())}
    for name, (field, kind) in _LISTS.items():
        values = fields[field]
        nothing = pa.nulls(count, pa.list_(kind))
        table[name] = nothing if values is None else _ragged(values[:count], response, kind)
    return pa.table(table)


def _ragged(values: torch.Tensor, mask: torch.Tensor, kind: pa.DataType) -> pa.ListArray:
    """The values of each row where the mask is True."""
    flat = values[mask].detach().cpu()
    numbers = (flat.float() if flat.is_floating_point() else flat).numpy().astype(kind.to_pandas_dtype())
    offsets = np.concatenate([[0], mask.sum(dim=1).cumsum(0).cpu().numpy()]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(numbers))
