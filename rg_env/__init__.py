"""Train language models with SkyRL on Reasoning Gym, with a protected reward and a dump of every group."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rg_env import analysis, dump, scoring
    from rg_env.config import RGDumpConfig
    from rg_env.dataset import ReasoningGymDataset
    from rg_env.scoring import Scorer
    from rg_env.skyrl.env import RGDumpEnv
    from rg_env.skyrl.generator import RGDumpGenerator
    from rg_env.skyrl.registration import register

__all__ = [
    "RGDumpConfig",
    "RGDumpEnv",
    "RGDumpGenerator",
    "ReasoningGymDataset",
    "Scorer",
    "analysis",
    "dump",
    "register",
    "scoring",
]
__version__ = "0.1.0"

_MODULES = {
    "RGDumpConfig": "rg_env.config",
    "RGDumpEnv": "rg_env.skyrl.env",
    "RGDumpGenerator": "rg_env.skyrl.generator",
    "ReasoningGymDataset": "rg_env.dataset",
    "Scorer": "rg_env.scoring",
    "register": "rg_env.skyrl.registration",
}


def __getattr__(name: str) -> Any:
    """Import on first use: reading dumps needs neither SkyRL nor torch."""
    if name not in __all__:
        raise AttributeError(f"module 'rg_env' has no attribute {name!r}")
    if name not in _MODULES:
        return import_module(f"rg_env.{name}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
