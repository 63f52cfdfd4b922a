"""The CPU's sampler in this process, behind the client that SkyRL's generator has in a run on the CPU."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import torch
from skyrl.train.utils.utils import str_to_torch_dtype

from rg_env.skyrl.cpu.client import CPUInferenceClient
from rg_env.skyrl.cpu.cpu_settings import cpu_threads
from rg_env.skyrl.cpu.sampler import Request, Sample, Sampler


@dataclass(frozen=True)
class _Here:
    """A sampler of this process in the place of an actor."""

    sampler: Sampler

    @property
    def sample(self) -> _Here:
        return self

    def remote(self, requests: list[Request]) -> Awaitable[list[Sample]]:
        return asyncio.to_thread(self.sampler.sample, requests)


def load_here(cfg: Any) -> CPUInferenceClient:
    """Load the policy of a run into this process."""
    policy, dtype = cfg.trainer.policy, str_to_torch_dtype(cfg.generator.inference_engine.model_dtype)
    torch.set_num_threads(cpu_threads())
    sampler = Sampler.from_pretrained(policy.model.path, cfg.trainer.seed, dict(policy.model_config_kwargs), dtype)
    return CPUInferenceClient(_Here(sampler), policy.model.path, {})
