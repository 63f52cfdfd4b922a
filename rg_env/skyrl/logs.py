"""Log output of a run: ours through loguru, SkyRL's reduced on request."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from loguru import logger

from rg_env.config import RGDumpConfig

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
    logger.add(sys.stderr, format=_FORMAT, level="INFO", filter=_ours if config.suppress_base_env_logs else None)


def _ours(record: Record) -> bool:
    ours = (record["name"] or "").startswith("rg_env")
    return ours or record["level"].no >= logger.level("WARNING").no
