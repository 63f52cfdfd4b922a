"""SkyRL's own trainer without a GPU: FSDP2 workers on gloo, and a Hugging Face sampler instead of vLLM.

Importing this package is cheap: torch, Ray and SkyRL are imported on first use of `CPUMixin` or `cpu_ray`. Nothing in
SkyRL stays patched.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rg_env.cpu.settings import CPU_OVERRIDES
from rg_env.errors import ConfigError

if TYPE_CHECKING:
    from rg_env.cpu.experiment import CPUMixin
    from rg_env.cpu.ray_env import cpu_ray

__all__ = ["CPU_OVERRIDES", "CPUMixin", "cpu_ray", "named_model", "nano_path"]

_MODULES = {"CPUMixin": "rg_env.cpu.experiment", "cpu_ray": "rg_env.cpu.ray_env"}


def nano_path() -> Path:
    """The folder of the small policy included in this package."""
    folder = Path(__file__).parent / "nano"
    if not (folder / "config.json").is_file():
        raise ConfigError(f"the policy `nano` is not in {folder}; train it with scripts/train_nano.py, or reinstall")
    return folder


def named_model(name: str) -> Path:
    """The folder of `nano` or `smollm2`.

    Raises:
        ConfigError: if it does not exist and cannot be created.
    """
    if name == "nano":
        return nano_path()
    from rg_env.cpu.smollm2 import smollm2_path

    return smollm2_path()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
