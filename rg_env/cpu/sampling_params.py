"""One request's sampling parameters: vLLM's names in, a frozen dataclass out.

Invariant: accepted parameters mean the same as in vLLM 0.23. Parameters that are not implemented, or that would make
the recorded logprobs wrong, are refused with one line: by `check_cpu` before a run, and for every request. Importable
without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rg_env.errors import need, need_number, refuse

GREEDY_BELOW = 1e-5
"""A temperature below this means argmax, as in vLLM."""

_GROUP_SIZE = "use generator.n_samples_per_prompt"
_NO_PENALTY = "the trainer's logprobs have no penalty"
_LEAVE_OUT = "leave it out"
_UNSUPPORTED: dict[str, tuple[tuple[Any, ...], str]] = {
    "n": ((None, 1), _GROUP_SIZE),
    "best_of": ((None, 1), _GROUP_SIZE),
    "repetition_penalty": ((None, 1), _NO_PENALTY),
    "presence_penalty": ((None, 0), _NO_PENALTY),
    "frequency_penalty": ((None, 0), _NO_PENALTY),
    "prompt_logprobs": ((None,), _LEAVE_OUT),
    "logit_bias": ((None, {}), _LEAVE_OUT),
    "bad_words": ((None, []), _LEAVE_OUT),
    "allowed_token_ids": ((None,), _LEAVE_OUT),
}
"""Parameters that this sampler does not support: values that have no effect in vLLM, and advice for all others."""

_PARAMETER = "sampling parameter "
_LIMITS: dict[str, dict[str, Any]] = {
    "max_tokens": {"whole": True, "at_least": 1},
    "min_tokens": {"whole": True, "at_least": 0},
    "top_k": {"whole": True, "at_least": -1},
    "temperature": {"at_least": 0},
    "top_p": {"above": 0, "at_most": 1},
    "min_p": {"at_least": 0, "at_most": 1},
}


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request is sampled.

    Attributes:
        max_tokens: maximum number of generated tokens including the end-of-sequence token, at least 1.
        min_tokens: minimum number of tokens before an end-of-sequence token or a stop string may end the response.
        temperature: at least 0; below `GREEDY_BELOW` the most likely token is taken.
        top_p, top_k, min_p: cut the distribution that is sampled from, not the one whose logprobs are recorded.
        stop: strings that end the response; they need not align with token boundaries.
        include_stop_str_in_output: whether the text keeps the stop string (the token ids always do).
        stop_token_ids: tokens that end the response like the end-of-sequence token.
        ignore_eos: the end-of-sequence token does not end the response.
        skip_special_tokens: the text is decoded without them.
        seed: replaces the run's random stream for this request, as in vLLM: the same seed and prompt always give the
            same response.
        logprobs: whether the caller wants the logprob of each token.
    """

    max_tokens: int = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    stop: tuple[str, ...] = ()
    include_stop_str_in_output: bool = False
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    seed: int | None = None
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
        fields: dict[str, Any] = {}
        for name, value in params.items():
            if name in _UNSUPPORTED:
                neutral, advice = _UNSUPPORTED[name]
                need(value in neutral, f"{_PARAMETER}{name}", value, f"the CPU sampler has no {name}; {advice}")
            elif name not in cls.__slots__:
                refuse(f"{_PARAMETER}{name}", value, f"unknown to the CPU sampler; it knows {', '.join(cls.__slots__)}")
            elif value is not None:
                fields[name] = value

        if (count := params.get("logprobs")) not in (None, 0, 1):
            refuse(f"{_PARAMETER}logprobs", count, "must be null, 0 or 1: only the chosen token's logprob is recorded")
        fields["logprobs"] = count is not None
        stop = fields.get("stop", ())
        fields["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
        fields["stop_token_ids"] = tuple(fields.get("stop_token_ids", ()))
        made = cls(**fields)
        made._check()
        return made

    def _check(self) -> None:
        def require(ok: bool, name: str, right: str) -> None:
            need(ok, f"{_PARAMETER}{name}", getattr(self, name), right)

        for name, limits in _LIMITS.items():
            need_number(f"{_PARAMETER}{name}", getattr(self, name), **limits)
        require(self.min_tokens <= self.max_tokens, "min_tokens", f"must be at most max_tokens={self.max_tokens}")
        require(all(isinstance(s, str) and s for s in self.stop), "stop", "must be a list of non-empty strings")
        require(all(isinstance(t, int) for t in self.stop_token_ids), "stop_token_ids", "must be a list of token ids")
        require(self.seed is None or isinstance(self.seed, int), "seed", "must be a whole number or null")
