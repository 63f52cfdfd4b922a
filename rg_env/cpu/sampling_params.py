"""One request's sampling parameters, with vLLM's names and meaning. Importable without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rg_env.errors import ConfigError

GREEDY_BELOW = 1e-5
"""A temperature below this means argmax, as in vLLM."""
_FIXED = {"min_tokens": 1, "skip_special_tokens": True, "include_stop_str_in_output": True, "repetition_penalty": 1}
"""What SkyRL sends with every request. The sampler supports no other values: the first token never ends a response."""


class SamplingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one request is sampled; logprobs are those of the whole distribution, before top-p, top-k or min-p cut it."""

    max_tokens: Annotated[int, Meta(ge=1)] = 16
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1)] = -1
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    stop: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    logprobs: Annotated[int, Meta(ge=0, le=1)] | None = None

    @classmethod
    def from_vllm(cls, params: Mapping[str, Any]) -> SamplingParams:
        """Raises ConfigError for a parameter that the sampler does not have, and for a value out of range."""
        fields = {name: value for name, value in params.items() if value is not None and _FIXED.get(name) != value}
        if isinstance(fields.get("stop"), str):
            fields["stop"] = [fields["stop"]]
        try:
            return msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise ConfigError(f"the CPU sampler cannot use these sampling parameters: {error}, in {fields}") from None
