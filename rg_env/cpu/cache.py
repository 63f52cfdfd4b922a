"""A KV cache that is not copied at every token.

transformers' `DynamicLayer` concatenates, which costs as much as the forward pass of a small model. Here the memory for
the whole response is allocated up front, each step writes its column, and keys and values are views of the filled part.
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
    """Expand a cache of prompts to the rows of a batch, in place.

    Args:
        cache: the cache after the forward pass of the prompts.
        rows: shape [batch], the index of each row's prompt.
        room: maximum number of tokens that will be added. Layers other than plain full attention (such as a sliding
            window) keep their class and ignore it.
    """
    for number, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            cache.layers[number] = _ReservedLayer(layer, rows, room)
        else:
            layer.reorder_cache(rows)
