"""All checks before a run starts.

Invariant: each check passes or raises one `ConfigError` that says in one line what is wrong and how to fix it. None
starts anything, downloads more than the config.json of a model, or leaves a file or folder behind. `check_quickly`
imports neither torch nor Ray. What SkyRL's `validate_cfg` checks is left to it; checked here is what it lacks, and what
would otherwise be found only when the model has been loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rg_env.errors import ConfigError, UnavailableError, one_line
from rg_env.skyrl.checks.batches import check_batches
from rg_env.skyrl.checks.cpu import check_cpu
from rg_env.skyrl.checks.gpus import check_gpus
from rg_env.skyrl.checks.loops import check_fully_async, check_resumption, finished_at
from rg_env.skyrl.checks.model import check_hub_models, check_model_paths, check_models
from rg_env.skyrl.checks.run import check_folders, check_run, check_training
from rg_env.skyrl.checks.server import check_servers
from rg_env.skyrl.checks.settings import check_registered

__all__ = ["check_all", "check_quickly", "finished_at"]


def check_quickly(cfg: Any) -> None:
    """The checks that need no heavy import.

    Args:
        cfg: an `RGTrainConfig`, not yet completed by SkyRL.

    Raises:
        ConfigError: for the first problem found.
    """
    cfg.rg_dump.validate()
    check_folders(cfg)
    check_model_paths(cfg)
    check_run(cfg)
    check_training(cfg)
    check_resumption(cfg)
    if cfg.rg_dump.device == "cpu":
        check_cpu(cfg)
    check_batches(cfg)


def check_all(cfg: Any, *, tolerate: Callable[[UnavailableError], None] | None = None) -> None:
    """The remaining checks; those that ask other machines come last.

    Args:
        cfg: an `RGTrainConfig`. SkyRL's own checks also complete it.
        tolerate: called with what is not available here, which is otherwise raised.

    Raises:
        ConfigError: for the first problem found.
    """
    check_registered(cfg)
    if cfg.trainer.fully_async.enabled:
        check_fully_async(cfg)
    if cfg.rg_dump.device != "cpu":
        _available(tolerate, check_gpus, cfg)
    check_models(cfg)
    _validate(cfg)
    _available(tolerate, check_hub_models, cfg)
    _available(tolerate, check_servers, cfg)


def _available(tolerate: Callable[[UnavailableError], None] | None, check: Callable[[Any], None], cfg: Any) -> None:
    try:
        check(cfg)
    except UnavailableError as error:
        if tolerate is None:
            raise
        tolerate(error)


def _validate(cfg: Any) -> None:
    """SkyRL's own checks, their assertions as one line."""
    from skyrl.train.utils import validate_cfg

    try:
        validate_cfg(cfg)
    except (AssertionError, ValueError, TypeError, NotImplementedError) as error:
        raise ConfigError(one_line(error)) from error
