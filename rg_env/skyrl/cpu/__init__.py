"""SkyRL's own trainer without a GPU: FSDP2 workers on gloo, and a Hugging Face sampler instead of vLLM.

Importing this package is cheap; `rg_env.skyrl.cpu.cpu_experiment` imports torch, Ray and SkyRL. Nothing in SkyRL stays
patched.
"""

from rg_env.skyrl.cpu.cpu_settings import CPU_OVERRIDES, nano_path

__all__ = ["CPU_OVERRIDES", "nano_path"]
