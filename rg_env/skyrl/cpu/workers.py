"""SkyRL's FSDP2 workers on gloo and the CPU: policy, reference and critic.

Model, loss, optimizer step, scheduler, checkpoints and data parallelism are SkyRL's own code. This module changes the
device mesh, the device on which a model is sharded (the one it was loaded on), the default precision (float32), the
layout of the model's input batch, and how weights reach the sampler.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any
from unittest import mock

import ray
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

from rg_env.skyrl.cpu.cpu_settings import cpu_threads
from rg_env.skyrl.cpu.packing import PackedModelWrapper  # first: it imports SkyRL's model wrapper with a stub

from skyrl.backends.skyrl_train.distributed.dispatch import MeshRank  # isort: skip
from skyrl.backends.skyrl_train.distributed.fsdp_strategy import FSDPStrategy
from skyrl.backends.skyrl_train.distributed.fsdp_utils import PrecisionType, apply_fsdp2
from skyrl.backends.skyrl_train.workers.fsdp import fsdp_worker
from skyrl.env_vars import SKYRL_WORKER_NCCL_TIMEOUT_IN_S
from skyrl.train.utils.utils import str_to_torch_dtype


def cuda_means_cpu() -> AbstractContextManager[object]:
    """Inside the block, `torch.cuda.current_device()` is the CPU and `torch.cuda.synchronize()` does nothing.

    SkyRL asks `torch.cuda` for the device whenever it moves a batch. Blocks may be nested. They do not overlap
    otherwise: an actor runs one method at a time, and none that awaits is in such a block.
    """
    return mock.patch.multiple(
        torch.cuda, current_device=lambda: torch.device("cpu"), synchronize=lambda device=None: None
    )


class CPUFSDPStrategy(FSDPStrategy):
    """FSDP2 over a mesh of CPUs."""

    def setup_distributed(self) -> None:
        self.set_seed(self.seed)
        self.world_size = dist.get_world_size()
        self.device_mesh = init_device_mesh("cpu", (self.world_size,), mesh_dim_names=("fsdp",))

    def _fsdp_init_model(self, model: Any, is_train: bool = True, is_wrapped: bool = False) -> Any:
        module = model.model if is_wrapped else model
        # Without settings of mixed precision SkyRL takes bfloat16, which CPUs compute slowly.
        param_dtype = reduce_dtype = torch.float32
        precision = self.fsdp_config.mixed_precision
        if precision:
            param_dtype = PrecisionType.to_dtype(precision.param_dtype)
            reduce_dtype = PrecisionType.to_dtype(precision.reduce_dtype)
        settings = {
            "mesh": self.device_mesh,
            "mp_policy": MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=reduce_dtype),
            "reshard_after_forward": self.fsdp_config.reshard_after_forward,
        }
        apply_fsdp2(module, settings, self.fsdp_config)
        return module


def _on_cpu(method: Callable[..., Any]) -> Callable[..., Any]:
    """Run a method with the CPU as the current device. Picklable by Ray, unlike `cuda_means_cpu()` as a decorator."""

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        with cuda_means_cpu():
            return method(*args, **kwargs)

    return run


class _CPUWorker:
    """Mixin for SkyRL's FSDP workers. Their methods run with the CPU as the current device."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("forward", "forward_backward", "optim_step", "save_checkpoint", "load_checkpoint"):
            if hasattr(cls, name):
                setattr(cls, name, _on_cpu(getattr(cls, name)))

    def init_worker_process_group(self: Any) -> None:
        torch.set_num_threads(cpu_threads(self._world_size))
        if not dist.is_initialized():
            dist.init_process_group("gloo", timeout=timedelta(seconds=SKYRL_WORKER_NCCL_TIMEOUT_IN_S))
        self.device_mesh = init_device_mesh("cpu", (self._world_size, 1), mesh_dim_names=("dp", "sp"))
        # Data parallel alone: no sequence, tensor or pipeline parallelism.
        rank, size = self.device_mesh.get_local_rank("dp"), self._world_size
        self.mesh_rank = MeshRank(dp=rank, sp=0, tp=0, pp=0, world_size=size, dp_size=size, pp_size=1)

    def init_model(self, *args: Any, **kwargs: Any) -> None:
        """As in SkyRL, with our strategy and model wrapper. Each rank loads the whole model."""
        # SkyRL's method names these in its module and takes none as an argument.
        with (
            cuda_means_cpu(),
            mock.patch.object(fsdp_worker, "FSDPStrategy", CPUFSDPStrategy),
            mock.patch.object(fsdp_worker, "HFModelWrapper", PackedModelWrapper),
            mock.patch.object(fsdp_worker, "should_use_meta_init", lambda **_: False),
        ):
            super().init_model(*args, **kwargs)  # type: ignore[misc]

    def offload_to_cpu(self, *args: Any, **kwargs: Any) -> None:
        """Everything is on the CPU already."""

    backload_to_gpu = offload_to_cpu


class SendsWeights:
    """Mixin for SkyRL's policy: it sends its weights to a `SamplerActor`, as a state dict on the CPU."""

    async def init_weight_sync_state(self: Any, inference_engine_client: Any, inference_engine_cfg: Any) -> None:
        """Keep the client: SkyRL passes none with each sync."""
        self._client = inference_engine_client
        self._sampler_dtype = str_to_torch_dtype(inference_engine_cfg.model_dtype)

    async def broadcast_to_inference_engines(self: Any, *args: Any, **kwargs: Any) -> None:
        """Gather all weights, which needs every rank; rank 0 sends them in one message."""
        state = {}
        for name, weight in self.model.model.state_dict().items():
            # In the same order in every rank: `full_tensor` is a collective operation.
            whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
            state[name] = whole.to(self._sampler_dtype).cpu().contiguous()
        if dist.get_rank() == 0:
            await self._client.update_named_weights(state)
        dist.barrier()  # no rank goes on before the sampler has the weights


class CPUPolicyWorkerBase(SendsWeights, _CPUWorker, fsdp_worker.FSDPPolicyWorkerBase):
    """The policy."""


class CPURefWorkerBase(_CPUWorker, fsdp_worker.FSDPRefWorkerBase):
    """The reference policy."""


class CPUCriticWorkerBase(_CPUWorker, fsdp_worker.FSDPCriticWorkerBase):
    """The critic."""


# Logical GPUs, by which SkyRL places its workers: `cpu_ray` gives Ray one for each.
PolicyWorker = ray.remote(num_gpus=1)(CPUPolicyWorkerBase)
RefWorker = ray.remote(num_gpus=1)(CPURefWorkerBase)
CriticWorker = ray.remote(num_gpus=1)(CPUCriticWorkerBase)
