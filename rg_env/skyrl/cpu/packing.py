"""Logprobs of responses without padding and with shared prefixes computed once.

SkyRL's model wrapper gives every response its own row, with a copy of the prompt and padded to the longest. On a CPU
this takes most of a training step: forward and backward over a batch of the quickstart, 2.7 s of one core in place of
0.8 s. Here the sequences of a row form a prefix tree: the prompt is the trunk, and responses branch off where they
differ. Each token occurs once, keeps its position in the sequence, and attends only to its ancestors, which are the
tokens before it. Invariant: logprobs, entropies and gradients equal those of SkyRL's own wrapper, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rg_env.skyrl.own_workers import flash_attn_stub

with flash_attn_stub():
    from skyrl.backends.skyrl_train.workers.model_wrapper import HFModelWrapper

PACKABLE = ("llama", "qwen2", "qwen3")
"""Architectures whose attention is known to depend on mask and positions only. Others use SkyRL's own wrapper."""

LONGEST = 1024
"""Sequences are added to a row while it has fewer tokens than this, because attention is quadratic in the length."""

ENTROPY_CHUNK = 128
"""Positions whose entropy is computed at once, to bound memory."""


class PackedModelWrapper(HFModelWrapper):
    """SkyRL's wrapper of a policy or reference model, with packed rows if the architecture allows it."""

    def forward(
        self,
        sequences: torch.Tensor,
        num_actions: int | list[int],
        attention_mask: torch.Tensor | None = None,
        temperature: float = 1.0,
        return_output: bool = False,
        compute_entropy: bool = False,
        entropy_requires_grad: bool = True,
        **images: Any,
    ) -> Any:
        """As in SkyRL: logprobs of the last `num_actions` columns, shape [batch, num_actions]; 0 for padding.

        With `return_output` also `{"entropy": …}`, shape [batch, columns]: of a token in the column before it.
        """
        if attention_mask is None or not isinstance(num_actions, int) or not can_pack(self.model.config):
            return super().forward(
                sequences, num_actions, attention_mask, temperature, return_output, compute_entropy,
                entropy_requires_grad, **images,
            )  # fmt: skip
        pack = Pack.of(sequences, attention_mask.bool(), num_actions)
        logits = self.model(
            pack.tokens, attention_mask=pack.mask, position_ids=pack.positions, logits_to_keep=pack.kept
        ).logits.float()
        if temperature != 1:
            logits = logits / temperature
        # Tokens with the same predecessors share one logsumexp.
        normalizer = logits.logsumexp(-1)
        labels = sequences[:, -num_actions:]
        logprobs = logits[pack.rows, pack.columns, labels] - normalizer[pack.rows, pack.columns]
        logprobs = logprobs.where(pack.predicted, 0.0)
        if not return_output:
            return logprobs
        output = {}
        if compute_entropy:
            entropy = self.chunked_entropy_from_logits_fn(
                logits, requires_grad=entropy_requires_grad, chunk_size=ENTROPY_CHUNK
            )
            output["entropy"] = logprobs.new_zeros(sequences.shape)
            output["entropy"][:, -num_actions - 1 : -1] = entropy[pack.rows, pack.columns].where(pack.predicted, 0.0)
        return logprobs, output


def can_pack(config: Any) -> bool:
    """Return whether a model's attention is full attention under any given mask."""
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    return config.model_type in PACKABLE and set(kinds) == {"full_attention"}


@dataclass(frozen=True, slots=True)
class Pack:
    """A batch as trees, one per row.

    Attributes:
        tokens, positions: shape [rows, length].
        mask: shape [rows, 1, length, length], True where a token (third axis) attends to another.
        kept: number of columns, from the right, whose logits are needed.
        rows, columns: shape [batch, num_actions]: place in the kept logits that predicts each of the last tokens.
        predicted: shape [batch, num_actions], False for padding and for a token without a predecessor.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    kept: int
    rows: torch.Tensor
    columns: torch.Tensor
    predicted: torch.Tensor

    @classmethod
    def of(cls, sequences: torch.Tensor, attention: torch.Tensor, num_actions: int) -> Pack:
        """Pack a batch in SkyRL's layout: prompt and response after padding, all ending in the last column.

        Token ids and attention, False for padding, have the shape [batch, columns]; the longest response has
        `num_actions` tokens.
        """
        rows: list[_Tree] = []
        predicted = attention[:, -num_actions:].clone()
        row_of, columns = torch.zeros_like(predicted, dtype=torch.long), torch.zeros_like(predicted, dtype=torch.long)
        for number, (tokens, kept) in enumerate(zip(sequences, attention, strict=True)):
            if not rows or len(rows[-1].tokens) >= LONGEST:
                rows.append(_Tree())
            # A token is predicted at the place of the token before it, so the last one of a sequence has no place.
            path = rows[-1].add(tokens[kept].tolist())[-num_actions:]
            row_of[number] = len(rows) - 1
            # From the right, where all sequences end. A short one has fewer predicted tokens than `num_actions`.
            predicted[number, : num_actions - len(path)] = False
            columns[number, num_actions - len(path) :] = torch.tensor(path, dtype=torch.long)
        length = max(len(row.tokens) for row in rows)
        # Columns to the left of the first place that predicts anything need no logits.
        first = int(columns[predicted].min()) if predicted.any() else length - 1
        return cls(
            tokens=_pad([row.tokens for row in rows], length),
            positions=_pad([row.positions for row in rows], length),
            mask=torch.stack([row.mask(length) for row in rows])[:, None],
            kept=length - first,
            rows=row_of,
            columns=(columns - first).clamp(min=0),
            predicted=predicted,
        )


class _Tree:
    """Sequences with shared prefixes merged. A token's parent is the token before it."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self._parents: list[int] = []
        self._children: dict[tuple[int, int], int] = {}

    def add(self, sequence: list[int]) -> list[int]:
        """Add a sequence without its last token, which predicts nothing; returns the places of its tokens."""
        path, at = [], -1
        for position, token in enumerate(sequence[:-1]):
            # A new place, unless an earlier sequence of the row goes on with this token here.
            place = self._children.setdefault((at, token), len(self.tokens))
            if place == len(self.tokens):
                self.tokens.append(token)
                self.positions.append(position)
                self._parents.append(at)
            path.append(place)
            at = place
        return path

    def mask(self, length: int) -> torch.Tensor:
        """Shape [length, length]: each token attends to itself and its ancestors, padding to itself."""
        seen = torch.eye(length, dtype=torch.bool)
        rows = seen.numpy()  # a view; numpy is faster at thousands of small operations
        # A parent stands before its children, so its own row is complete already.
        for place, parent in enumerate(self._parents):
            if parent >= 0:
                rows[place] |= rows[parent]
        return seen


def _pad(rows: list[list[int]], length: int) -> torch.Tensor:
    return torch.tensor([row + [0] * (length - len(row)) for row in rows])
