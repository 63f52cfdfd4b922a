"""Batched sampling from a Hugging Face model, as SkyRL's inference engine.

Invariants: every token has a logprob, and it is the one that the trainer recomputes: temperature-scaled over the whole
vocabulary, before top-p, top-k or min-p remove anything. One call to `sample` uses one set of
weights.

Reproducibility: each request has its own random stream, determined by the seed, the session (SkyRL's name of the
rollout), the prompt, and how often both were requested before. So neither the order of arrival nor the composition of a
batch affects the stream. Not covered: another number of threads, another machine or another batch may change the last
bits of a logit, and occasionally a token.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import DynamicCache

from rg_env.cpu.cache import expand_cache
from rg_env.cpu.sampling_params import SamplingParams
from rg_env.errors import ConfigError, RGEnvError


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt, as token ids, and how to sample from it; `session` is SkyRL's name of the rollout."""

    prompt: tuple[int, ...]
    params: SamplingParams
    session: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """The result of one request.

    Attributes:
        token_ids: all generated tokens, including the one that ended the response.
        logprobs: one per token, in nats, at most 0.
        stop_reason: `stop` (an end token or a stop string) or `length`.
        text: the decoded tokens, cut at a stop string.
    """

    token_ids: list[int]
    logprobs: list[float]
    stop_reason: str
    text: str


class SamplerError(RGEnvError):
    """The sampler cannot continue: weights that do not fit, or a policy whose logits are not finite."""


class Sampler:
    """Batched sampling with a KV cache.

    A prompt that occurs several times in a batch is computed once, and finished rows are removed from the batch.

    Args:
        model: a causal language model of transformers, on the CPU.
        tokenizer: its tokenizer.
        seed: seed of the random streams.
    """

    def __init__(self, model: Any, tokenizer: Any, seed: int = 0) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._seed = seed
        self._asked: Counter[tuple[str, tuple[int, ...]]] = Counter()
        self._context = getattr(model.config, "max_position_embeddings", None)
        ends = getattr(model.generation_config, "eos_token_id", None)
        ends = ends if isinstance(ends, (list, tuple)) else [ends]
        self._eos = frozenset(t for t in (tokenizer.eos_token_id, *ends) if t is not None)

    @classmethod
    def from_pretrained(
        cls,
        path: str,
        seed: int = 0,
        config_kwargs: Mapping[str, Any] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Sampler:
        """Load model and tokenizer as SkyRL's policy worker does.

        Args:
            path: a model folder or name.
            config_kwargs: `trainer.policy.model_config_kwargs`.
            dtype: data type of the weights and activations; logprobs are computed in float32.
        """
        config = AutoConfig.from_pretrained(path, trust_remote_code=True, **(config_kwargs or {}))
        model = AutoModelForCausalLM.from_pretrained(
            path, config=config, dtype=dtype, attn_implementation="sdpa", trust_remote_code=True
        )
        return cls(model, AutoTokenizer.from_pretrained(path, trust_remote_code=True), seed)

    # ------------------------------------------------------------------ weights
    def load_weights(self, state: Mapping[str, torch.Tensor]) -> None:
        """Load all weights of a policy; on an error the old ones stay in use.

        Raises:
            SamplerError: names or shapes differ from this model's, or a tied weight has two values.
        """
        own = self._model.state_dict()
        wrong = [name for name in own.keys() | state.keys() if _shape(own, name) != _shape(state, name)]
        if wrong:
            raise SamplerError(f"the policy's weights do not fit the sampler's model: {', '.join(sorted(wrong)[:5])}")
        homes: dict[int, str] = {}
        for name, tensor in own.items():
            first = homes.setdefault(tensor.data_ptr(), name) if tensor.numel() else name
            if first != name and not torch.equal(state[first], state[name]):
                raise SamplerError(f"{first} and {name} are one weight in the sampler, but differ in the policy")
        self._model.load_state_dict(state, strict=True)

    # ------------------------------------------------------------------ sampling
    @torch.inference_mode()
    def sample(self, requests: Sequence[Request]) -> list[Response]:
        """Sample one response per request, as one batch.

        Raises:
            ConfigError: a prompt is empty or fills the model's context.
            SamplerError: the model's logits are not finite.
        """
        if not requests:
            return []
        rows = [self._start(request) for request in requests]
        live, batch = rows, _Batch(self._model, rows)
        while True:
            tokens, logprobs = _choose(batch.logits, live, batch.limits, self._eos)
            for row, token, logprob in zip(live, tokens.tolist(), logprobs.tolist(), strict=True):
                if not row.stop_reason:
                    self._accept(row, token, logprob)
            keep = [number for number, row in enumerate(live) if not row.stop_reason]
            if not keep:
                texts = [self._decode(row.tokens) if row.text is None else row.text for row in rows]
                return [
                    Response(row.tokens, row.logprobs, row.stop_reason, text)
                    for row, text in zip(rows, texts, strict=True)
                ]
            if 2 * len(keep) <= len(live):  # copying the cache costs as much as about two steps
                live = [live[number] for number in keep]
                tokens = batch.compact(torch.tensor(keep), live, tokens)
            batch.forward(tokens)

    def _start(self, request: Request) -> _Row:
        length, params = len(request.prompt), request.params
        if not length:
            raise ConfigError("the prompt is empty; give at least one token")
        room = params.max_tokens if self._context is None else min(params.max_tokens, self._context - length)
        if room < 1:
            raise ConfigError(
                f"a prompt of {length} tokens fills the model's context of {self._context}; "
                "lower trainer.max_prompt_length"
            )
        asked = (request.session, request.prompt)
        name = f"{self._seed} {self._asked[asked]} {asked}"
        self._asked[asked] += 1
        key = hashlib.blake2b(name.encode(), digest_size=16).digest()
        stream = np.random.Generator(np.random.Philox(key=np.frombuffer(key, np.uint64)))
        return _Row(request, room, stream.random(room))

    def _accept(self, row: _Row, token: int, logprob: float) -> None:
        """Add a token to a row and check whether it ends the row, in vLLM's order: end token, stop string, length."""
        if not np.isfinite(logprob):
            raise SamplerError("the policy's logits are not finite: training has diverged; lower the learning rate")
        params = row.request.params
        row.tokens.append(token)
        row.logprobs.append(logprob)
        if token in self._eos:
            row.stop_reason = "stop"
            return
        text = self._decode(row.tokens) if params.stop else ""
        if len(row.tokens) == 1:
            row.unsearched = len(text)
        for stop in params.stop if len(row.tokens) > 1 else ():  # the first of the list counts, as in vLLM
            if (at := text.find(stop, max(0, row.unsearched - len(stop) + 1))) >= 0:
                row.stop_reason, row.text = "stop", text[: at + len(stop)]
                return
        if len(row.tokens) == row.room:
            row.stop_reason = "length"

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))


@dataclass(slots=True)
class _Row:
    """An unfinished response. `uniforms[t]`, in [0, 1), determines token t."""

    request: Request
    room: int
    uniforms: np.ndarray[Any, np.dtype[np.float64]]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: str = ""
    unsearched: int = 0  # characters of the first token, where no stop string may end
    text: str | None = None


class _Batch:
    """Model inputs and outputs of a batch: padding, positions, cache, and the logits of each row's next token.

    Prompts are padded on the left, so that all rows append in the same column.
    """

    def __init__(self, model: Any, rows: list[_Row]) -> None:
        self._model = model
        number = {prompt: i for i, prompt in enumerate(dict.fromkeys(row.request.prompt for row in rows))}
        width, room = max(map(len, number)), max(row.room for row in rows)
        ids = torch.zeros(len(number), width, dtype=torch.long)
        mask = torch.zeros(len(number), width + room, dtype=torch.long)
        for prompt, i in number.items():
            ids[i, width - len(prompt) :] = torch.tensor(prompt)
            mask[i, width - len(prompt) :] = 1
        positions = (mask[:, :width].cumsum(-1) - 1).clamp(min=0)
        self._cache = DynamicCache(config=model.config)
        self._mask, self._width = mask, width
        logits = self._run(ids, positions)
        order = torch.tensor([number[row.request.prompt] for row in rows])
        expand_cache(self._cache, order, room)
        self._mask, self._positions, self.logits = mask[order], positions[order, -1:], logits[order]
        self.limits = _Limits(rows)

    def _run(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        output = self._model(
            input_ids=ids,
            attention_mask=self._mask[:, : self._width],
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits

    def forward(self, tokens: torch.Tensor) -> None:
        """Append each row's token, shape [rows]; sets `logits`, shape [rows, vocabulary]."""
        self._width += 1
        self._positions = self._positions + 1
        self.logits = self._run(tokens[:, None], self._positions)

    def compact(self, keep: torch.Tensor, rows: list[_Row], tokens: torch.Tensor) -> torch.Tensor:
        """Keep only these rows; returns their `tokens`."""
        self._cache.reorder_cache(keep)
        self._mask, self._positions = self._mask[keep], self._positions[keep]
        self.limits = _Limits(rows)
        return tokens[keep]


class _Limits:
    """The sampling parameters of a batch as columns, shape [rows, 1]; None if no row uses the parameter."""

    def __init__(self, rows: list[_Row]) -> None:
        params = [row.request.params for row in rows]

        def column(values: Iterator[float], dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.tensor(list(values), dtype=dtype)[:, None]

        self.temperature = column(1.0 if p.greedy else p.temperature for p in params)
        self.greedy = column((p.greedy for p in params), torch.bool)
        cutting = [p for p in params if not p.greedy]
        self.min_p = column(p.min_p for p in params) if any(p.min_p > 0 for p in cutting) else None
        self.top_k = column((p.top_k for p in params), torch.long) if any(p.top_k > 0 for p in cutting) else None
        self.top_p = column(p.top_p for p in params) if any(p.top_p < 1 for p in cutting) else None


def _choose(
    logits: torch.Tensor, rows: list[_Row], limits: _Limits, ends: Collection[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The next token of each row and its logprob under the whole distribution; both of shape [rows]."""
    logprobs = (logits / limits.temperature).log_softmax(-1)
    allowed = logprobs
    if not rows[0].tokens:  # all rows of a batch start together; the first token must not end a response
        allowed = allowed.clone()
        allowed[:, list(ends)] = -torch.inf
    best = allowed.argmax(-1)
    cumulative = (
        cut_distribution(allowed, limits.top_k, limits.top_p, limits.min_p).exp().cumsum(-1, dtype=torch.float64)
    )
    drawn = [row.uniforms[min(len(row.tokens), row.room - 1)] for row in rows]  # finished rows: unused
    total = cumulative[:, -1:]
    point = (torch.tensor(drawn, dtype=torch.float64)[:, None] * total).minimum(total.nextafter(total.new_zeros(())))
    sampled = torch.searchsorted(cumulative, point, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    tokens = torch.where(limits.greedy[:, 0], best, sampled)
    return tokens, logprobs.gather(-1, tokens[:, None])[:, 0]


def cut_distribution(
    logprobs: torch.Tensor, top_k: torch.Tensor | None, top_p: torch.Tensor | None, min_p: torch.Tensor | None
) -> torch.Tensor:
    """Set the logprobs of excluded tokens to -inf, in vLLM's order: min-p, then top-k, then top-p over the rest.

    Args:
        logprobs: shape [rows, vocabulary].
        top_k: shape [rows, 1]; values below 1 have no effect. Ties with the k-th token are kept.
        top_p: shape [rows, 1], in (0, 1]. The most likely token is always kept.
        min_p: shape [rows, 1], in [0, 1]: minimum probability relative to the most likely token's.
    """
    if min_p is not None:
        floor = logprobs.amax(-1, keepdim=True) + min_p.log()
        logprobs = logprobs.masked_fill(logprobs < floor, -torch.inf)
    if top_k is None and top_p is None:
        return logprobs
    ordered, order = logprobs.sort(-1, descending=True)
    if top_k is not None:
        size = logprobs.shape[-1]
        last = torch.where(top_k < 1, size, top_k).clamp(max=size) - 1
        ordered = ordered.masked_fill(ordered < ordered.gather(-1, last), -torch.inf)
    if top_p is not None:
        share = ordered.softmax(-1)
        before = share.cumsum(-1) - share
        ordered = ordered.masked_fill((before >= top_p) & (top_p < 1), -torch.inf)
    return torch.empty_like(logprobs).scatter_(-1, order, ordered)


def _shape(state: Mapping[str, torch.Tensor], name: str) -> torch.Size | None:
    return state[name].shape if name in state else None
