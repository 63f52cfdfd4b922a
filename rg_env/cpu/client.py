"""The engines of a CPU run, with SkyRL's inference-engine interface: our sampler, or a vLLM server.

Invariants: a request gets exactly one result, either its response or the error that stopped its batch, unless its
caller was canceled. Requests that wait together form the same batches in whatever order they arrived. The actor handles
one call at a time, so the weights never change during a batch.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import ray
import torch
from safetensors.torch import save_file
from skyrl.backends.skyrl_train.inference_servers.base import InferenceEngineInterface
from skyrl.backends.skyrl_train.inference_servers.remote_inference_client import RemoteInferenceClient
from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name

from rg_env.cpu.sampler import Request, Sample
from rg_env.cpu.sampling_params import SamplingParams

QUIET_SECONDS = 0.01
"""A batch is sent when no request has arrived for this long …"""
LONGEST_WAIT_SECONDS = 0.2
"""… or when the first has waited this long."""
MAX_BATCH = 128
"""Maximum requests per batch, to bound the memory of the KV cache."""


class CPUInferenceClient(InferenceEngineInterface):
    """SkyRL's inference-engine interface over a `rg_env.cpu.sampler.SamplerActor`.

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
        self._batcher = _Batcher(self._sample)

    # ------------------------------------------------------------------ sampling
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
        params = SamplingParams.from_vllm(input_batch.get("sampling_params") or self._default_params)
        sessions = input_batch.get("session_ids") or [""] * len(prompts)
        requests = [
            Request(tuple(prompt), params, str(session)) for prompt, session in zip(prompts, sessions, strict=True)
        ]
        responses = await asyncio.gather(*map(self._batcher.submit, requests))
        return {
            "responses": [response.text for response in responses],
            "response_ids": [response.token_ids for response in responses],
            "stop_reasons": [response.stop_reason for response in responses],
            "response_logprobs": [response.logprobs for response in responses] if params.logprobs is not None else None,
            "prompt_logprobs": None,
            "rollout_expert_indices": None,
            "rollout_sample_support": None,
        }

    async def _sample(self, requests: list[Request]) -> list[Sample]:
        try:
            responses: list[Sample] = await self._actor.sample.remote(requests)
        except ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from error
        return responses

    # ------------------------------------------------------------------ weights
    async def update_named_weights(self, request: Mapping[str, torch.Tensor]) -> None:
        """Load a full state dict into the sampler.

        Raises:
            RayTaskError: the weights do not fit.
        """
        if not isinstance(request, Mapping):
            raise TypeError(f"the CPU sampler takes a state dict, not {type(request).__name__}")
        await self._actor.load_weights.remote(request)

    async def load_lora_adapter(self, lora_name: str, lora_path: str) -> NoReturn:
        raise NotImplementedError("the CPU sampler has no LoRA")

    @property
    def weight_version(self) -> int:
        """Number of weight updates that SkyRL has announced on this client."""
        return self._weight_version

    def increment_weight_version(self) -> None:
        """Called by SkyRL's `WorkerDispatch` after each weight sync, although it is not part of the interface."""
        self._weight_version += 1

    # ------------------------------------------------------------------ the rest of the interface
    @property
    def model_name(self) -> str:
        return self._name

    async def get_world_size(self) -> tuple[int, int]:
        return 1, 1

    def get_endpoint_url(self) -> NoReturn:
        raise NotImplementedError("the CPU sampler has no HTTP server; use generate(), or vLLM")

    async def chat_completion(self, request_payload: dict[str, Any]) -> NoReturn:
        self.get_endpoint_url()

    render_chat_completion = completion = chat_completion

    async def _nothing_to_do(self, *args: Any, **kwargs: Any) -> None:
        """There is no GPU memory, prefix cache, process group or session to manage.

        Pausing is not needed either: the actor never loads weights during a batch.
        """

    wake_up = sleep = reset_prefix_cache = _nothing_to_do
    finish_session = pause_generation = resume_generation = _nothing_to_do

    async def teardown(self) -> None:
        """Kill the sampler's process; pending requests raise an error."""
        ray.kill(self._actor)


class _Batcher:
    """Collects requests and sends them in batches of at most `MAX_BATCH`, ordered by session:
    SkyRL starts the rollouts of a batch in an order that differs from run to run."""

    def __init__(self, send: Callable[[list[Request]], Awaitable[list[Sample]]]) -> None:
        self._send = send
        self._waiting: list[tuple[Request, asyncio.Future[Sample]]] = []
        self._task: asyncio.Task[None] | None = None

    def submit(self, request: Request) -> asyncio.Future[Sample]:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._task is None:
            self._task = asyncio.create_task(self._drain())
        return future

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await self._quiet()
                self._waiting.sort(key=lambda one: one[0].session)
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                batch = [(request, future) for request, future in batch if not future.done()]  # done: canceled
                found: list[Sample | Exception] = []
                if batch:
                    try:
                        found += await self._send([request for request, _ in batch])
                    except Exception as error:
                        found += [error] * len(batch)
                for (_, future), one in zip(batch, found, strict=True):
                    if future.done():
                        continue
                    if isinstance(one, Exception):
                        future.set_exception(one)
                    else:
                        future.set_result(one)
        finally:
            self._task = None

    async def _quiet(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + LONGEST_WAIT_SECONDS
        count = 0
        while count < len(self._waiting) < MAX_BATCH and loop.time() < end:
            count = len(self._waiting)
            await asyncio.sleep(QUIET_SECONDS)


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
        with tempfile.TemporaryDirectory(prefix="rg_env_weights_") as folder:
            state = {name: tensor.detach().contiguous() for name, tensor in update_info.items()}
            save_file(state, Path(folder) / "model.safetensors", metadata={"format": "pt"})
            request = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
            answers: dict[str, Any] = await self._call_all_servers("/collective_rpc", request)
        await self.reset_prefix_cache(reset_running_requests=False)
        return answers


def connect(cfg: Any, tokenizer: Any) -> ReloadingClient:
    """A client of the servers named in the configuration.

    Does the same as SkyRL's `build_new_inference_client`, which cannot be imported without vllm_router.

    Args:
        cfg: a `SkyRLTrainConfig` that passed `check_cpu`.
        tokenizer: the policy's.
    """
    engine = cfg.generator.inference_engine
    return ReloadingClient(
        proxy_url=engine.external_proxy_url,
        server_urls=list(engine.external_server_urls or [engine.external_proxy_url]),
        data_parallel_size=engine.data_parallel_size,
        model_name=resolve_policy_model_name(cfg),
        tokenizer=tokenizer,
    )
