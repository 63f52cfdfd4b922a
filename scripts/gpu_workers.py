"""Trains with SkyRL's own GPU workers on a machine that has a GPU but no vLLM.

    python scripts/gpu_workers.py configs/quickstart.yaml [key=value …]

Policy, critic and reference are SkyRL's workers, unchanged: FSDP2 over NCCL, bfloat16, gradient checkpointing, moved
off the GPU during generation. Only vLLM is replaced, by the sampler of the CPU runs, on the same GPU, and with it the
weight sync: the policy sends its weights through Ray.
Not covered: vLLM, its weight sync over NCCL or CUDA IPC, LoRA adapters, flash attention, more than one GPU.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
import torch

from rg_env.skyrl.cpu.client import CPUInferenceClient
from rg_env.skyrl.cpu.sampler import Request, Sample, Sampler
from rg_env.skyrl.cpu.workers import SendsWeights
from rg_env.skyrl.experiment import RGExperiment
from rg_env.skyrl.own_workers import flash_attn_stub

with flash_attn_stub():
    from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_sampling_params_for_backend
    from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
    from skyrl.backends.skyrl_train.workers.fsdp import fsdp_worker
    from skyrl.train.utils.utils import str_to_torch_dtype

ROOT = Path(__file__).resolve().parents[1]
_RG = "environment.skyrl_gym.rg_dump"
SETTINGS = {
    f"{_RG}.device": "cuda",
    f"{_RG}.experiment_class": "scripts.gpu_workers.WithoutVLLM",
    "trainer.strategy": "fsdp",
    "trainer.placement.colocate_all": "true",
    "trainer.placement.policy_num_gpus_per_node": 1,
    "trainer.placement.ref_num_gpus_per_node": 1,
    "trainer.placement.critic_num_gpus_per_node": 1,
    "generator.inference_engine.num_engines": 1,
    # The two that need flash-attn.
    "trainer.flash_attn": "false",
    "trainer.remove_microbatch_padding": "false",
}


@ray.remote(num_cpus=1)
class GPUSampler:
    """The sampler of the CPU runs, with its model and all its tensors on the first GPU."""

    def __init__(self, path: str, seed: int, config_kwargs: Mapping[str, Any], dtype: torch.dtype) -> None:
        # Ray hides the GPUs from an actor that asks for none: the policy has it.
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        self._sampler = Sampler.from_pretrained(path, seed, config_kwargs, dtype)
        self._sampler._model.to("cuda")
        # For what the sampler makes from now on: tokens, masks, positions and random numbers.
        torch.set_default_device("cuda")

    def sample(self, requests: list[Request]) -> list[Sample]:
        return self._sampler.sample(requests)

    def load_weights(self, state: Mapping[str, torch.Tensor]) -> None:
        self._sampler.load_weights({name: weight.to("cuda") for name, weight in state.items()})


class ColocatedClient(CPUInferenceClient):
    """The client of a sampler whose model stays on the GPU while the policy is trained."""

    async def is_sleeping(self) -> bool:
        return False


class SendingPolicy(SendsWeights, fsdp_worker.FSDPPolicyWorkerBase):
    """SkyRL's policy, whose weights go to the sampler."""


PolicyWorker = ray.remote(num_gpus=1)(SendingPolicy)


class WithoutVLLM(RGExperiment):
    """A GPU run that generates with `GPUSampler`."""

    def get_inference_client(self) -> ColocatedClient:
        policy, generator = self.cfg.trainer.policy, self.cfg.generator
        defaults = get_sampling_params_for_backend(generator.inference_engine.backend, generator.sampling_params)
        actor = GPUSampler.remote(  # type: ignore[attr-defined]
            policy.model.path,
            self.cfg.trainer.seed,
            dict(policy.model_config_kwargs),
            str_to_torch_dtype(generator.inference_engine.model_dtype),
        )
        return ColocatedClient(actor, resolve_policy_model_name(self.cfg), defaults)

    def get_trainer(self, **kwargs: Any) -> Any:
        trainer = super().get_trainer(**kwargs)
        build = trainer.build_models

        def build_with_sync(_: Any, critic: Any, reference: Any) -> None:
            build(PolicyWorker, critic, reference)

        trainer.build_models = build_with_sync
        return trainer


def main() -> None:
    # Ray's workers import this module by its name.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    config, *own = sys.argv[1:]
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    os.execv(sys.executable, [sys.executable, "-m", "rg_env", "train", config, *settings, *own])


if __name__ == "__main__":
    main()
