"""A vLLM server as the engine of a CPU run: SkyRL's own HTTP client, with weights passed to the server in a file.

Generation, pausing and resuming are unchanged from SkyRL's `RemoteInferenceClient`. Its weight sync needs NCCL or CUDA
IPC; here the policy worker writes a checkpoint and each server loads it with vLLM's `reload_weights`, called through
the route `collective_rpc` of a server started with `VLLM_SERVER_DEV_MODE=1`. SkyRL pauses generation meanwhile.

Invariant: when `update_named_weights` returns, every server samples from exactly the given weights, and later requests
use no prefix computed with older ones: the prefix cache is reset, and entries kept by paused requests are not shared
with other requests because of SkyRL's cache salt (`generator.use_cache_salt`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from skyrl.backends.skyrl_train.inference_servers.remote_inference_client import RemoteInferenceClient
from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name


class ReloadingClient(RemoteInferenceClient):
    """SkyRL's client with weights as a state dict. The servers must run on this machine."""

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
