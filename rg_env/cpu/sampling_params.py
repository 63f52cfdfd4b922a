"""One request's sampling parameters: vLLM's names in, a frozen dataclass out, everything else refused.

What is accepted means here what it means in vLLM 0.23. What would make the recorded logprobs untrue, or is not
built, is refused in one line: at the start of a run by `check_cpu_config`, and again for every request.
Importable without torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rg_env.errors import ConfigError

GREEDY_BELOW = 1e-5
"""A temperature below this means argmax, as in vLLM."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "repetition_penalty": (None, 1, 1.0),
    "presence_penalty": (None, 0, 0.0),
    "frequency_penalty": (None, 0, 0.0),
    "prompt_logprobs": (None,),
    "logit_bias": (None, {}),
    "bad_words": (None, []),
    "allowed_token_ids": (None,),
}
"""Parameters that this sampler does not have, with the values at which vLLM does nothing either."""

_WHY = {
    "n": "use generator.n_samples_per_prompt",
    "best_of": "use generator.n_samples_per_prompt",
    "repetition_penalty": "the trainer's logprobs know no penalty",
    "presence_penalty": "the trainer's logprobs know no penalty",
    "frequency_penalty": "the trainer's logprobs know no penalty",
}


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request is sampled.

    Attributes:
        max_tokens: most tokens to generate, at least 1, the end-of-sequence token included.
        min_tokens: fewest tokens before an end-of-sequence token or a stop string may end the response.
        temperature: at least 0; below `GREEDY_BELOW` the most likely token is taken.
        top_p, top_k, min_p: cut the distribution that is sampled from, not the one whose logprobs are recorded.
        stop: strings that end the response; they may begin and end anywhere within tokens.
        include_stop_str_in_output: whether the text keeps the stop string (the token ids always do).
        stop_token_ids: tokens that end the response as the end-of-sequence token does.
        ignore_eos: the end-of-sequence token does not end the response.
        skip_special_tokens: the text is decoded without them.
        seed: replaces the run's random stream for this request, as in vLLM: the same seed and prompt give the
            same response, however often they are asked.
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
        """Read what SkyRL's `get_sampling_params_for_backend("vllm", …)` gives.

        Raises:
            ConfigError: naming the parameter, its value, and what would be right.
        """
        fields: dict[str, Any] = {}
        for name, value in params.items():
            if name in _NEUTRAL:
                if value not in _NEUTRAL[name]:
                    raise _refusal(name, value, f"the CPU sampler has no {name}; " + _WHY.get(name, "leave it out"))
            elif name not in cls.__slots__:
                raise _refusal(name, value, f"unknown to the CPU sampler; it knows {', '.join(cls.__slots__)}")
            elif value is not None:
                fields[name] = value

        if (count := params.get("logprobs")) not in (None, 0, 1):
            raise _refusal("logprobs", count, "must be null, 0 or 1: only the chosen token's logprob is recorded")
        fields["logprobs"] = count is not None
        stop = fields.get("stop", ())
        fields["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
        fields["stop_token_ids"] = tuple(fields.get("stop_token_ids", ()))
        made = cls(**fields)
        made._check()
        return made

    def _check(self) -> None:
        def need(ok: bool, name: str, right: str) -> None:
            if not ok:
                raise _refusal(name, getattr(self, name), right)

        def whole(name: str, low: int) -> None:
            value = getattr(self, name)
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= low
            need(ok, name, f"must be a whole number of at least {low}")

        whole("max_tokens", 1)
        whole("min_tokens", 0)
        whole("top_k", -1)
        need(self.min_tokens <= self.max_tokens, "min_tokens", f"must be at most max_tokens={self.max_tokens}")
        need(_is_number(self.temperature) and self.temperature >= 0, "temperature", "must be a number of at least 0")
        need(_is_number(self.top_p) and 0 < self.top_p <= 1, "top_p", "must be a number above 0 and at most 1")
        need(_is_number(self.min_p) and 0 <= self.min_p <= 1, "min_p", "must be a number in [0, 1]")
        need(all(isinstance(s, str) and s for s in self.stop), "stop", "must be a list of texts that are not empty")
        need(all(isinstance(t, int) for t in self.stop_token_ids), "stop_token_ids", "must be a list of token ids")
        need(self.seed is None or isinstance(self.seed, int), "seed", "must be a whole number or null")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _refusal(name: str, value: object, right: str) -> ConfigError:
    return ConfigError(f"sampling parameter {name}={value!r}: {right}")
