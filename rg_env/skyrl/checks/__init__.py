"""What a run needs and a configuration alone does not show: batches that divide, a whole model, GPUs, servers.

Invariant: each check either passes or raises one `ConfigError` that says what is wrong and what would be right. None
starts, changes or downloads anything.
"""

from __future__ import annotations

from typing import Any

from rg_env.skyrl.checks.batches import check_batches
from rg_env.skyrl.checks.gpus import check_gpus
from rg_env.skyrl.checks.model import check_model_folder, check_tokenizer
from rg_env.skyrl.checks.server import check_servers

__all__ = ["check_gpus", "check_servers", "preflight"]


def preflight(cfg: Any) -> None:
    """All checks that need nothing but this machine's files.

    Args:
        cfg: a `SkyRLTrainConfig` or a subclass.

    Raises:
        ConfigError: for the first thing found.
    """
    check_batches(cfg)
    for role in ("policy", "ref", "critic"):
        check_model_folder(getattr(cfg.trainer, role).model.path, f"trainer.{role}.model.path")
    check_tokenizer(cfg.trainer.policy.model.path, "trainer.policy.model.path", cfg.generator.chat_template)
