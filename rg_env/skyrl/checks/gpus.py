"""As many GPUs as the run asks for, or the name of the recipe that runs without."""

from __future__ import annotations

import os
from typing import Any

import torch

from rg_env.config import PREFIX
from rg_env.errors import ConfigError


def check_gpus(cfg: Any) -> None:
    """Raises ConfigError if this machine has too few GPUs. Where RAY_ADDRESS names a cluster, Ray knows, not we."""
    if os.environ.get("RAY_ADDRESS"):
        return
    have = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if have == 0:
        raise ConfigError(
            f"{PREFIX}.device=cuda: this machine has no GPU and RAY_ADDRESS names no cluster; "
            f"without one, the same algorithm runs from {cpu_recipe(cfg)} ({PREFIX}.device=cpu)"
        )
    need = gpus_needed(cfg)
    if need > have:
        raise ConfigError(
            f"this run needs {need} GPUs and this machine has {have}: lower trainer.placement.*_num_gpus_per_node and "
            "generator.inference_engine.num_engines, or name a larger cluster in RAY_ADDRESS (docs/gpu.md)"
        )


def gpus_needed(cfg: Any) -> int:
    """GPUs that SkyRL will claim, over all nodes."""
    placement, algorithm = cfg.trainer.placement, cfg.trainer.algorithm
    policy: int = placement.policy_num_nodes * placement.policy_num_gpus_per_node
    if placement.colocate_all:
        return policy
    need = policy
    if (algorithm.use_kl_loss or algorithm.use_kl_in_reward) and not placement.colocate_policy_ref:
        need += placement.ref_num_nodes * placement.ref_num_gpus_per_node
    if cfg.trainer.critic.model.path:
        need += placement.critic_num_nodes * placement.critic_num_gpus_per_node
    engine = cfg.generator.inference_engine
    if engine.run_engines_locally:
        width = engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.data_parallel_size
        need += engine.num_engines * width
    return need


def cpu_recipe(cfg: Any) -> str:
    """The recipe in configs/ that has this run's algorithm and needs no GPU."""
    algorithm = cfg.trainer.algorithm
    if cfg.trainer.fully_async.enabled:
        return "configs/cpu_vllm_async.yaml"
    if algorithm.dynamic_sampling.type:
        return "configs/cpu/dapo.yaml"
    names = {"gae": "ppo", "rloo": "rloo", "reinforce++": "reinforce_pp"}
    return f"configs/cpu/{names.get(str(algorithm.advantage_estimator), 'grpo')}.yaml"
