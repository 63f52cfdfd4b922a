"""A KV cache that does not copy itself at every token.

transformers' `DynamicLayer` concatenates, which costs as much as a small model itself. Here the memory for the whole
response is reserved at once, and each step writes its column: keys and values are views of the columns filled so far.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer


class _ReservedLayer(DynamicLayer):
    """A full-attention layer with room for `room` more tokens; `rows[i]` of the source becomes row i."""

    def __init__(self, source: DynamicLayer, rows: torch.Tensor, room: int) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = source.dtype, source.device, True
        self._filled = source.keys.shape[2]
        self._buffers = [self._reserve(tensor, rows, room) for tensor in (source.keys, source.values)]
        self._show()

    @staticmethod
    def _reserve(tensor: torch.Tensor, rows: torch.Tensor, room: int) -> torch.Tensor:
        _, heads, length, width = tensor.shape
        buffer = tensor.new_empty(len(rows), heads, length + room, width)
        torch.index_select(tensor, 0, rows, out=buffer[:, :, :length])
        return buffer

    def _show(self) -> None:
        self.keys, self.values = (buffer[:, :, : self._filled] for buffer in self._buffers)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        end = self._filled + key_states.shape[2]
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, self._filled : end] = new
        self._filled = end
        self._show()
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        room = self._buffers[0].shape[2] - self._filled
        self._buffers = [self._reserve(buffer[:, :, : self._filled], beam_idx, room) for buffer in self._buffers]
        self._show()


def expand_cache(cache: DynamicCache, rows: torch.Tensor, room: int) -> None:
    """Turn the cache of some prompts into that of a batch, in place.

    Args:
        cache: the cache after the prompts went through the model.
        rows: shape [batch], the prompt of each row of the batch.
        room: maximum number of tokens that will be added. Layers other than plain full attention (such as a sliding
            window) keep their class and ignore it.
    """
    for number, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            cache.layers[number] = _ReservedLayer(layer, rows, room)
        else:
            layer.reorder_cache(rows)
