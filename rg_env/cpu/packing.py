"""The logprobs of responses with each prompt of a batch through the model once, and no padding between.

SkyRL's model wrapper gives every response a row with its own copy of the prompt, padded to the longest, and computes
logits over the whole vocabulary for prompts and padding too. On a CPU that is most of a training step. Here the
responses to one prompt stand in one row behind it:

    prompt | response 1 | response 2 | …

with positions that count on from the prompt, and a mask under which a response sees the prompt and itself. Invariant:
logprobs, entropies and gradients are those of SkyRL's own wrapper, up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from rg_env.cpu.shims import flash_attn_stub

with flash_attn_stub():
    from skyrl.backends.skyrl_train.workers.model_wrapper import HFModelWrapper

PACKABLE = ("llama", "qwen2", "qwen3")
"""Architectures whose attention is known to go by the mask and the positions alone. Others run as SkyRL does it."""

LONGEST_RESPONSES = 1024
"""Most response tokens in a row: attention grows with the square of a row's length."""

ENTROPY_CHUNK = 128
"""Positions whose entropy is computed at once: bounds the memory for it."""


class PackedModelWrapper(HFModelWrapper):
    """SkyRL's wrapper around a policy or reference model, with packed rows where the architecture allows it."""

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
        """As SkyRL's: logprobs of the last `num_actions` columns, shape [batch, num_actions]; 0.0 for padding.

        With `return_output`, a pair with `{"entropy": …}`, shape [batch, columns], each at the column before its token.
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
        # At the end of a prompt one logsumexp serves the first token of all its responses.
        normaliser = logits.logsumexp(-1)
        labels = sequences[:, -num_actions:]
        logprobs = logits[pack.rows, pack.columns, labels] - normaliser[pack.rows, pack.columns]
        logprobs = logprobs.where(pack.real, 0.0)
        if not return_output:
            return logprobs
        output = {}
        if compute_entropy:
            entropy = self.chunked_entropy_from_logits_fn(
                logits, requires_grad=entropy_requires_grad, chunk_size=ENTROPY_CHUNK
            )
            output["entropy"] = logprobs.new_zeros(sequences.shape)
            output["entropy"][:, -num_actions - 1 : -1] = entropy[pack.rows, pack.columns].where(pack.real, 0.0)
        return logprobs, output


def can_pack(config: Any) -> bool:
    """Whether a model's attention is full attention under whatever mask it is given."""
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    return config.model_type in PACKABLE and set(kinds) == {"full_attention"}


@dataclass(frozen=True, slots=True)
class Pack:
    """A batch in packed rows.

    Attributes:
        tokens, positions: shape [rows, length].
        mask: shape [rows, 1, length, length], True where a token (third axis) sees another.
        kept: how many columns, from the right, logits are needed for.
        rows, columns: shape [batch, num_actions]: where among the kept logits each response token is predicted.
        real: shape [batch, num_actions], False for padding.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    kept: int
    rows: torch.Tensor
    columns: torch.Tensor
    real: torch.Tensor

    @classmethod
    def of(cls, sequences: torch.Tensor, attention: torch.Tensor, num_actions: int) -> Pack:
        """Pack a batch of SkyRL's: prompts padded on the left, responses on the right, both of one width."""
        real = attention[:, -num_actions:]
        rows: list[_Row] = []
        row_of, columns = torch.zeros_like(real, dtype=torch.long), torch.zeros_like(real, dtype=torch.long)
        open_rows: dict[tuple[int, ...], int] = {}
        for number, (prompt, response) in enumerate(_split(sequences, attention, num_actions)):
            at = open_rows.get(prompt)
            if at is None or len(rows[at].tokens) - len(prompt) + len(response) > LONGEST_RESPONSES:
                at = open_rows[prompt] = len(rows)
                rows.append(_Row(list(prompt), list(range(len(prompt))), [0] * len(prompt)))
            row_of[number] = at
            columns[number, real[number]] = torch.tensor(rows[at].add(response, len(prompt)), dtype=torch.long)
        length, first = max(len(row.tokens) for row in rows), min(len(prompt) for prompt in open_rows) - 1
        parts = _pad([row.parts for row in rows], length, -1)
        seen = (parts[:, None, :] == 0) | (parts[:, None, :] == parts[:, :, None])
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        # Padding sees its own kind: a token that sees nothing at all would have no softmax.
        return cls(
            tokens=_pad([row.tokens for row in rows], length, 0),
            positions=_pad([row.positions for row in rows], length, 0),
            mask=(seen & causal)[:, None],
            kept=length - first,
            rows=row_of,
            columns=(columns - first).clamp(min=0),
            real=real,
        )


@dataclass(slots=True)
class _Row:
    """A prompt and responses to it. `parts` tells them apart: 0 for the prompt, then 1, 2, …"""

    tokens: list[int]
    positions: list[int]
    parts: list[int]
    responses: int = field(default=0)

    def add(self, response: list[int], prompt_length: int) -> list[int]:
        """Append a response, but for its last token, after which nothing is predicted.

        Returns:
            for each of its tokens, the column that predicts it.
        """
        self.responses += 1
        start, count = len(self.tokens), max(0, len(response) - 1)
        self.tokens += response[:-1]
        self.positions += range(prompt_length, prompt_length + count)
        self.parts += [self.responses] * count
        return [prompt_length - 1, *range(start, start + count)][: len(response)]


def _split(
    sequences: torch.Tensor, attention: torch.Tensor, num_actions: int
) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    for tokens, kept in zip(sequences, attention, strict=True):
        prompt, response = tokens[:-num_actions][kept[:-num_actions]], tokens[-num_actions:][kept[-num_actions:]]
        yield tuple(prompt.tolist()), response.tolist()


def _pad(rows: list[list[int]], length: int, value: int) -> torch.Tensor:
    return torch.tensor([row + [value] * (length - len(row)) for row in rows])
