"""The engines of a CPU run, with SkyRL's inference-engine interface: our sampler, or a vLLM server.

Invariants: a request gets exactly one result, either its response or the error that stopped its batch, unless its
caller was canceled. Requests that wait together form the same batches in whatever order they arrived. The actor handles
one call at a time, so the weights never change during a batch.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import ray
import torch
from safetensors.torch import save_file
from skyrl.backends.skyrl_train.inference_servers.base import InferenceEngineInterface
from skyrl.backends.skyrl_train.inference_servers.remote_inference_client import RemoteInferenceClient

from rg_env.skyrl.cpu.cpu_settings import SamplingParams
from rg_env.skyrl.cpu.sampler import Request, Sample

QUIET_SECONDS = 0.01
"""A batch is sent when no request has arrived for this long …"""
LONGEST_WAIT_SECONDS = 0.2
"""… or when the first has waited this long."""
MAX_BATCH = 128
"""Maximum requests per batch, to bound the memory of the KV cache."""


class CPUInferenceClient(InferenceEngineInterface):
    """SkyRL's inference-engine interface over a `rg_env.skyrl.cpu.sampler.SamplerActor`.

    SkyRL's agent loop calls `generate` once per trajectory and turn. Calls in quick succession are sent as one batch.
    The policy workers get a pickled copy, made before the first request.

    Args:
        actor: handle of a `SamplerActor`.
        model_name: SkyRL's name of the policy.
        default_params: sampling parameters, with vLLM's names, for calls that pass none.
    """

    def __init__(self, actor: Any, model_name: str, default_params: Mapping[str, Any]) -> None:
        self._actor = actor
        self._name = model_name
        self._default_params = dict(default_params)
        self._weight_version = 0
        self._waiting: list[tuple[Request, asyncio.Future[Sample]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def generate(self, input_batch: Mapping[str, Any], model: str | None = None) -> dict[str, Any]:
        """Sample one response per prompt.

        Args:
            input_batch: SkyRL's `InferenceEngineInput` with `prompt_token_ids`. A prompt's `session_ids` name the
                rollout, and so its random stream. Cache salt has no effect: no cache outlives a batch.

        Returns:
            SkyRL's `InferenceEngineOutput`, in the order of the prompts.

        Raises:
            ConfigError: for a sampling parameter that is not supported, or a prompt that does not fit.
        """
        prompts = input_batch.get("prompt_token_ids")
        if prompts is None:
            raise ValueError("the CPU sampler takes prompt_token_ids, not prompts")
        if input_batch.get("mm_features"):
            raise ValueError("the CPU sampler reads text only, got mm_features")
        # Here and not in the actor, so that a wrong parameter stops the call alone and not its batch.
        params = SamplingParams.from_vllm(input_batch.get("sampling_params") or self._default_params)
        sessions = input_batch.get("session_ids") or [""] * len(prompts)
        loop = asyncio.get_running_loop()
        responses: list[asyncio.Future[Sample]] = [loop.create_future() for _ in prompts]
        for prompt, session, response in zip(prompts, sessions, responses, strict=True):
            self._waiting.append((Request(tuple(prompt), params, str(session)), response))
        # One task at a time: calls that come while it sends are in its next batch.
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_waiting())
        samples = await asyncio.gather(*responses)
        logprobs = None
        if params.logprobs is not None:
            logprobs = [sample.logprobs for sample in samples]
        return {
            "responses": [sample.text for sample in samples],
            "response_ids": [sample.token_ids for sample in samples],
            "stop_reasons": [sample.stop_reason for sample in samples],
            "response_logprobs": logprobs,
            "prompt_logprobs": None,
            "rollout_expert_indices": None,
            "rollout_sample_support": None,
        }

    async def _send_waiting(self) -> None:
        """Send all requests in batches, ordered by session: SkyRL starts rollouts in an order that differs from run
        to run."""
        try:
            while self._waiting:
                await self._quiet()
                self._waiting.sort(key=lambda pair: pair[0].session)
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                # Without those whose callers have given up.
                batch = [(request, response) for request, response in batch if not response.cancelled()]
                outcomes: list[Sample | Exception] = []
                # An error is the outcome of each of the batch: a waiting caller must not wait forever.
                try:
                    if batch:
                        outcomes += await self._actor.sample.remote([request for request, _ in batch])
                except Exception as error:
                    # Ray wraps what the actor raised; SkyRL, and the reader of the line, want the error itself.
                    cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else None
                    outcomes += [cause or error] * len(batch)
                for (_, response), outcome in zip(batch, outcomes, strict=True):
                    if response.cancelled():  # meanwhile
                        continue
                    if isinstance(outcome, Exception):
                        response.set_exception(outcome)
                    else:
                        response.set_result(outcome)
        finally:
            self._sending = None

    async def _quiet(self) -> None:
        """Wait until no more requests arrive, or enough have."""
        loop = asyncio.get_running_loop()
        # SkyRL starts its rollouts one after another: an early batch would be one request.
        end, count = loop.time() + LONGEST_WAIT_SECONDS, 0
        # Until a pause brings no new request.
        while count < len(self._waiting) < MAX_BATCH and loop.time() < end:
            count = len(self._waiting)
            await asyncio.sleep(QUIET_SECONDS)

    async def update_named_weights(self, request: Mapping[str, torch.Tensor]) -> None:
        """Load a full state dict into the sampler. Raises RayTaskError if it does not fit."""
        await self._actor.load_weights.remote(request)

    @property
    def weight_version(self) -> int:
        """Number of weight updates that SkyRL has announced on this client."""
        return self._weight_version

    def increment_weight_version(self) -> None:
        """Called by SkyRL's `WorkerDispatch` after each weight sync, although it is not part of the interface."""
        self._weight_version += 1

    @property
    def model_name(self) -> str:
        return self._name

    async def get_world_size(self) -> tuple[int, int]:
        return 1, 1

    def get_endpoint_url(self) -> NoReturn:
        raise NotImplementedError("the CPU sampler has neither an HTTP server nor LoRA; use generate(), or vLLM")

    async def chat_completion(self, *args: Any, **kwargs: Any) -> NoReturn:
        self.get_endpoint_url()

    render_chat_completion = completion = load_lora_adapter = chat_completion

    async def _do_nothing(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no GPU memory, prefix cache or session, and no weights are loaded during a batch."""

    wake_up = sleep = reset_prefix_cache = finish_session = pause_generation = resume_generation = _do_nothing

    async def teardown(self) -> None:
        """Kill the sampler's process; pending requests raise an error."""
        ray.kill(self._actor)


class ReloadingClient(RemoteInferenceClient):
    """SkyRL's client of vLLM servers on this machine, with weights passed in a file.

    SkyRL's weight sync needs NCCL or CUDA IPC; here each server loads a checkpoint with vLLM's `reload_weights`, called
    through the route `collective_rpc` of a server started with `VLLM_SERVER_DEV_MODE=1`. SkyRL pauses generation
    meanwhile. Afterwards every server samples from exactly these weights, and no later request uses a prefix computed
    with older ones: the prefix cache is reset, and SkyRL's cache salt keeps entries of paused requests apart.
    """

    async def finish_session(self, session_id: str) -> None:
        """Does nothing: this call is meant for a router, and a server answers it with 404."""

    async def update_named_weights(self, update_info: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """Have every server load `update_info`, a full state dict with the checkpoint's names.

        Raises:
            aiohttp.ClientResponseError: if a server cannot load it.
        """
        # `contiguous`, which safetensors needs, and all at once: the servers have the same disk.
        with tempfile.TemporaryDirectory(prefix="rg_env_weights_") as folder:
            state = {name: tensor.detach().contiguous() for name, tensor in update_info.items()}
            save_file(state, Path(folder) / "model.safetensors", metadata={"format": "pt"})
            request = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
            answers: dict[str, Any] = await self._call_all_servers("/collective_rpc", request)
        await self.reset_prefix_cache(reset_running_requests=False)
        return answers
