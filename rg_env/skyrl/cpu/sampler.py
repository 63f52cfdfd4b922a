"""Batched sampling from a Hugging Face model, as SkyRL's inference engine.

Invariants: every token has a logprob, and it is the one that the trainer recomputes: temperature-scaled over the whole
vocabulary, before top-p, top-k or min-p remove anything. One call to `sample` uses one set of weights.

Reproducibility: each request has its own random stream, determined by the seed, the session (SkyRL's name of the
rollout), the prompt, and how often both were requested before. So neither the order of arrival nor the composition of a
batch affects the stream. Not covered: another number of threads, another machine or another batch may change the last
bits of a logit, and occasionally a token.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    MinPLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from rg_env.base.errors import ConfigError, RGEnvError
from rg_env.base.processes import redirect_output
from rg_env.skyrl.cpu.cpu_settings import GREEDY_BELOW, SamplingParams


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt, as token ids, and how to sample from it; `session` is SkyRL's name of the rollout."""

    prompt: tuple[int, ...]
    params: SamplingParams
    session: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """The response to one request.

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
    """The sampler cannot continue: a tied weight with two values, or a policy whose logits are not finite."""


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
        self._requests: Counter[bytes] = Counter()  # 16 bytes a rollout; the prompts themselves would fill the memory
        self._context = getattr(model.config, "max_position_embeddings", None)
        ends = getattr(model.generation_config, "eos_token_id", None)
        ends = ends if isinstance(ends, (list, tuple)) else [ends]
        self._eos = [t for t in {tokenizer.eos_token_id, *ends} if t is not None]

    @classmethod
    def from_pretrained(
        cls,
        path: str,
        seed: int = 0,
        config_kwargs: Mapping[str, Any] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Sampler:
        """Load model and tokenizer as SkyRL's policy worker does; `config_kwargs` as in `trainer.policy`.

        `dtype` is that of weights and activations; logprobs are computed in float32.
        """
        config = AutoConfig.from_pretrained(path, trust_remote_code=True, **(config_kwargs or {}))
        model = AutoModelForCausalLM.from_pretrained(
            path, config=config, dtype=dtype, attn_implementation="sdpa", trust_remote_code=True
        )
        return cls(model, AutoTokenizer.from_pretrained(path, trust_remote_code=True), seed)

    def load_weights(self, state: Mapping[str, torch.Tensor]) -> None:
        """Load all weights of a policy.

        Raises:
            SamplerError: a tied weight has two values; the old weights stay in use.
        """
        # Tied weights have two names and one tensor: `load_state_dict` would keep the last of two values in silence.
        own = self._model.state_dict()
        homes: dict[int, str] = {}
        for name, tensor in own.items():
            first = homes.setdefault(tensor.data_ptr(), name) if tensor.numel() else name
            if first != name and not torch.equal(state[first], state[name]):
                raise SamplerError(f"{first} and {name} are one weight in the sampler, but differ in the policy")
        self._model.load_state_dict(state, strict=True)

    @torch.inference_mode()
    def sample(self, requests: Sequence[Request]) -> list[Sample]:
        """Sample one response per request; requests with equal parameters are one batch.

        Raises:
            ConfigError: a prompt is empty or fills the model's context.
            SamplerError: the model's logits are not finite.
        """
        # All rows are started first, so that a prompt that does not fit is refused before anything is sampled.
        rows = [self._start(request) for request in requests]
        for params in dict.fromkeys(request.params for request in requests):
            self._finish([row for row in rows if row.request.params == params], params)
        samples = []
        for row in rows:
            text = self._decode(row.tokens) if row.text is None else row.text
            samples.append(Sample(row.tokens, row.logprobs, row.stop_reason, text))
        return samples

    def _finish(self, rows: list[_Row], params: SamplingParams) -> None:
        """Sample the tokens of rows that have equal parameters."""
        # Finished rows stay until half of the batch has finished; their tokens are dropped.
        batch = _Batch(self._model, rows)
        while True:
            tokens, logprobs = _choose(batch.logits, rows, params, self._eos)
            for row, token, logprob in zip(rows, tokens.tolist(), logprobs.tolist(), strict=True):
                if not row.stop_reason:
                    self._accept(row, token, logprob)
            keep = [number for number, row in enumerate(rows) if not row.stop_reason]
            if not keep:
                return
            if 2 * len(keep) <= len(rows):  # copying the cache costs as much as about two steps
                rows = [rows[number] for number in keep]
                tokens = batch.select(torch.tensor(keep), tokens)
            batch.forward(tokens)

    def _start(self, request: Request) -> _Row:
        length, params = len(request.prompt), request.params
        if not length:
            raise ConfigError("the prompt is empty; give at least one token")
        room = params.max_tokens
        if self._context is not None:
            room = min(params.max_tokens, self._context - length)
        if room < 1:
            raise ConfigError(
                f"a prompt of {length} tokens fills the model's context of {self._context}; "
                "lower trainer.max_prompt_length"
            )
        name = f"{(request.session, request.prompt)}"
        # All random numbers of the row at once, so that no other row of the batch takes part in them.
        request_key = _digest(name)
        key = _digest(f"{self._seed} {self._requests[request_key]} {name}")
        self._requests[request_key] += 1
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
        # Decoded anew for each token: characters may consist of several tokens.
        text = self._decode(row.tokens) if params.stop else ""
        if len(row.tokens) == 1:
            row.unsearched = len(text)
        else:
            for stop in params.stop:  # the first of the list counts, as in vLLM
                # A stop string may begin in the text of the first token, but must end after it.
                start = text.find(stop, max(0, row.unsearched - len(stop) + 1))
                if start >= 0:
                    row.stop_reason, row.text = "stop", text[: start + len(stop)]
                    return
        if len(row.tokens) == row.room:
            row.stop_reason = "length"

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


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
        # The prompt pass: each prompt once.
        prompts = dict.fromkeys(row.request.prompt for row in rows)
        number = {prompt: i for i, prompt in enumerate(prompts)}
        width, room = max(map(len, number)), max(row.room for row in rows)
        ids = torch.zeros(len(number), width, dtype=torch.long)
        mask = torch.zeros(len(number), width + room, dtype=torch.long)
        for prompt, i in number.items():
            ids[i, width - len(prompt) :] = torch.tensor(prompt)
            mask[i, width - len(prompt) :] = 1
        positions = (mask[:, :width].cumsum(-1) - 1).clamp(min=0)
        self._cache = DynamicCache(config=model.config)
        self._mask, self._width, self._positions = mask, width, positions[:, -1:]
        self.logits = self._run(ids, positions)
        # From here on a row for each request, with a copy of its prompt's cache.
        order = torch.tensor([number[row.request.prompt] for row in rows])
        self.logits = self.select(order, self.logits)

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

    def select(self, rows: torch.Tensor, of_rows: torch.Tensor) -> torch.Tensor:
        """Continue with these rows, of which one may occur several times; returns them of `of_rows`, too."""
        self._cache.reorder_cache(rows)
        self._mask, self._positions = self._mask[rows], self._positions[rows]
        return of_rows[rows]


def _choose(
    logits: torch.Tensor, rows: list[_Row], params: SamplingParams, ends: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the next token of each row and its logprob under the whole distribution; both of shape [rows]."""
    if params.temperature >= GREEDY_BELOW:
        logits = logits / params.temperature
    logprobs = logits.log_softmax(-1)
    allowed = logprobs
    if not rows[0].tokens:  # all rows of a batch start together; the first token must not end a response
        allowed = allowed.clone()
        allowed[:, ends] = -torch.inf
    if params.temperature < GREEDY_BELOW:
        tokens = allowed.argmax(-1)
    else:
        cumulative = _cut(allowed, params).exp().cumsum(-1, dtype=torch.float64)
        drawn = [row.uniforms[min(len(row.tokens), row.room - 1)] for row in rows]  # finished rows: unused
        # A point below the total, which rounding keeps from 1: the last token would be drawn although excluded.
        total = cumulative[:, -1:]
        point = torch.tensor(drawn, dtype=torch.float64)[:, None] * total
        point = point.minimum(total.nextafter(total.new_zeros(())))
        tokens = torch.searchsorted(cumulative, point, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    return tokens, logprobs.gather(-1, tokens[:, None])[:, 0]


def _cut(logprobs: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Set the logprobs of excluded tokens to -inf, in vLLM's order."""
    if params.min_p > 0:
        logprobs = MinPLogitsWarper(params.min_p)(None, logprobs)
    if params.top_k > 0:
        logprobs = TopKLogitsWarper(params.top_k)(None, logprobs)
    if params.top_p < 1:
        logprobs = TopPLogitsWarper(params.top_p)(None, logprobs)
    return logprobs


@ray.remote(num_cpus=1)
class SamplerActor:
    """A `Sampler` in a process of its own, which imports nothing of SkyRL and so starts faster.

    It handles one call at a time, so the weights never change during a batch. Its output goes to SkyRL's log.
    """

    def __init__(
        self, path: str, seed: int, config_kwargs: Mapping[str, Any], threads: int, dtype: torch.dtype
    ) -> None:
        if log := os.environ.get("SKYRL_LOG_FILE"):
            redirect_output(Path(log))
        torch.set_num_threads(threads)
        self._sampler = Sampler.from_pretrained(path, seed, config_kwargs, dtype)

    def sample(self, requests: list[Request]) -> list[Sample]:
        return self._sampler.sample(requests)

    def load_weights(self, state: Mapping[str, torch.Tensor]) -> None:
        self._sampler.load_weights(state)
