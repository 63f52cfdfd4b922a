"""SkyRL's own trainer without a GPU: FSDP2 workers on gloo, and a Hugging Face sampler instead of vLLM.

Importing this package is cheap: torch, Ray and SkyRL are imported on first use of `CPUMixin` or `cpu_ray`. Nothing in
SkyRL stays patched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rg_env.cpu.settings import CPU_OVERRIDES, nano_path
from rg_env.lazy import exports

if TYPE_CHECKING:
    from rg_env.cpu.experiment import CPUMixin, cpu_ray

__all__ = ["CPU_OVERRIDES", "CPUMixin", "cpu_ray", "nano_path"]

__getattr__ = exports(__name__, {"CPUMixin": "rg_env.cpu.experiment", "cpu_ray": "rg_env.cpu.experiment"})
