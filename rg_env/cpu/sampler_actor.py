"""The sampler as a Ray actor. Its process imports nothing of SkyRL, so that it starts faster.

Invariant: the actor handles one call at a time, so the weights never change during a batch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
import torch

from rg_env.cpu.sampler import Request, Sample, Sampler
from rg_env.processes import redirect_output


@ray.remote(num_cpus=1)
class SamplerActor:
    """A `Sampler` in its own process; its output goes to SkyRL's infrastructure log."""

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
