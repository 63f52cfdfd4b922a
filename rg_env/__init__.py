"""Train language models with SkyRL on Reasoning Gym, with a protected reward and a dump of every group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rg_env.base.lazy import exports

if TYPE_CHECKING:
    from rg_env import analysis, dump, scoring
    from rg_env.configuration.config import RGDumpConfig
    from rg_env.rollouts.judge import Judge
    from rg_env.rollouts.rollout import Rollout
    from rg_env.rows.dataset import ReasoningGymDataset
    from rg_env.scoring import Scorer
    from rg_env.skyrl.env import RGDumpEnv, register
    from rg_env.skyrl.generator import RGDumpGenerator

__all__ = [
    "Judge",
    "RGDumpConfig",
    "RGDumpEnv",
    "RGDumpGenerator",
    "ReasoningGymDataset",
    "Rollout",
    "Scorer",
    "analysis",
    "dump",
    "register",
    "scoring",
]
__version__ = "0.1.0"

# Reading dumps needs neither SkyRL nor torch.
_MODULES = {
    "Judge": "rg_env.rollouts.judge",
    "RGDumpConfig": "rg_env.configuration.config",
    "RGDumpEnv": "rg_env.skyrl.env",
    "RGDumpGenerator": "rg_env.skyrl.generator",
    "ReasoningGymDataset": "rg_env.rows.dataset",
    "Rollout": "rg_env.rollouts.rollout",
    "Scorer": "rg_env.scoring",
    "analysis": "rg_env.analysis",
    "dump": "rg_env.dump",
    "register": "rg_env.skyrl.env",
    "scoring": "rg_env.scoring",
}
__getattr__, __dir__ = exports(__name__, _MODULES)
