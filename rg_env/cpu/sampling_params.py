"""One request's sampling parameters: vLLM's names in, a frozen dataclass out. Importable without torch.

Invariant: accepted parameters mean the same as in vLLM. Parameters that are not implemented, or that would make the
recorded logprobs wrong, are refused with one line: by `check_cpu` before a run, and for every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rg_env.errors import need, need_number

GREEDY_BELOW = 1e-5
"""A temperature below this means argmax, as in vLLM."""

_NAME = "sampling parameter "
_LIMITS: dict[str, dict[str, Any]] = {
    "max_tokens": {"whole": True, "at_least": 1},
    "top_k": {"whole": True, "at_least": -1},
    "temperature": {"at_least": 0},
    "top_p": {"above": 0, "at_most": 1},
    "min_p": {"at_least": 0, "at_most": 1},
}
_FIXED = {"min_tokens": 1, "skip_special_tokens": True, "include_stop_str_in_output": True, "repetition_penalty": 1}
"""What SkyRL sends with every request; the sampler has no other values."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request is sampled. The first token never ends a response.

    Attributes:
        max_tokens: maximum number of generated tokens including the end-of-sequence token, at least 1.
        temperature: at least 0; below `GREEDY_BELOW` the most likely token is taken.
        top_p, top_k, min_p: cut the distribution that is sampled from, not the one whose logprobs are recorded.
        stop: strings that end the response and stay in its text; they need not align with token boundaries.
        logprobs: whether the caller wants the logprob of each token.
    """

    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    stop: tuple[str, ...] = ()
    logprobs: bool = False

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @classmethod
    def from_vllm(cls, params: Mapping[str, Any]) -> SamplingParams:
        """Convert the result of SkyRL's `get_sampling_params_for_backend("vllm", …)`.

        Raises:
            ConfigError: naming the parameter, its value and how to fix it.
        """
        given = {name: value for name, value in params.items() if value is not None}
        for name, value in given.items():
            ours = name in cls.__slots__ or (name in _FIXED and value == _FIXED[name])
            need(ours, _NAME + name, value, "the CPU sampler has no such parameter; leave it out")
            if name in _LIMITS:
                need_number(_NAME + name, value, **_LIMITS[name])
        count, stop = given.pop("logprobs", None), given.pop("stop", ())
        right = "must be null, 0 or 1: only the chosen token's logprob is recorded"
        need(count in (None, 0, 1), f"{_NAME}logprobs", count, right)
        stop = (stop,) if isinstance(stop, str) else tuple(stop)
        right = "must be a list of non-empty strings"
        need(all(isinstance(text, str) and text for text in stop), f"{_NAME}stop", stop, right)
        fields = {name: value for name, value in given.items() if name not in _FIXED}
        return cls(**fields, stop=stop, logprobs=count is not None)
