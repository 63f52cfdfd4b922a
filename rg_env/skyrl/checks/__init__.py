"""All checks before a run starts.

Invariant: each check passes or raises one `ConfigError`, or `DumpError` for the dump folder, that says in one line what
is wrong and how to fix it. None starts or downloads anything, and none writes more than an empty dump folder.
"""

from __future__ import annotations

from typing import Any

from skyrl.train.utils import validate_cfg

from rg_env.errors import ConfigError, one_line
from rg_env.skyrl.checks.batches import check_batches
from rg_env.skyrl.checks.cpu import check_cpu
from rg_env.skyrl.checks.gpus import check_gpus
from rg_env.skyrl.checks.loops import check_loop
from rg_env.skyrl.checks.model import check_models
from rg_env.skyrl.checks.run import check_run, check_training
from rg_env.skyrl.checks.server import check_servers

__all__ = ["check_all"]


def check_all(cfg: Any, *, training: bool = True) -> None:
    """All checks of a run, cheap ones first, the vLLM servers last.

    Args:
        cfg: an `RGTrainConfig`. SkyRL's own checks also complete it.
        training: False for an evaluation, which needs no groups and no training batch.

    Raises:
        ConfigError: for the first problem found.
    """
    check_run(cfg)
    if training:
        check_training(cfg)
        check_loop(cfg)
    if cfg.rg_dump.device == "cpu":
        check_cpu(cfg)
    else:
        check_gpus(cfg)
    check_batches(cfg)
    check_models(cfg)
    try:
        validate_cfg(cfg)
    except (AssertionError, ValueError, TypeError, NotImplementedError) as error:
        raise ConfigError(one_line(error)) from error
    check_servers(cfg, training=training)
