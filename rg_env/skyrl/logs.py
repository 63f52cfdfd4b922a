"""Log output of a run: ours through loguru, SkyRL's reduced on request."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from loguru import logger

from rg_env.config import RGDumpConfig
from rg_env.user_code import named_modules

if TYPE_CHECKING:
    from loguru import Record

_FORMAT = "<green>{time:HH:mm:ss}</green> <level>{level: <7}</level> {message}"


def set_up_driver_logging(config: RGDumpConfig) -> None:
    """Short lines on the terminal; with `suppress_base_env_logs`, Ray's processes are quieted too."""
    set_up_worker_logging(config)
    if config.suppress_base_env_logs:
        # tqdm and transformers read these when imported, so they are set before Ray starts its processes.
        os.environ.update(TQDM_DISABLE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="error")


def set_up_worker_logging(config: RGDumpConfig) -> None:
    """Inside the Ray task. SkyRL's trainer reconfigures loguru when it is built: call this again after that."""
    logger.remove()
    logger.add(
        sys.stderr, format=_FORMAT, level="INFO", filter=_ours(config) if config.suppress_base_env_logs else None
    )


def _ours(config: RGDumpConfig) -> Callable[[Record], bool]:
    """Keeps warnings, and all lines of rg_env and of the user's modules."""
    ours = ("rg_env", *named_modules(config))
    warning = logger.level("WARNING").no
    return lambda record: (record["name"] or "").startswith(ours) or record["level"].no >= warning
