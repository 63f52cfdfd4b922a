"""The log of a run: one file with everything that it, Ray and SkyRL print, and warnings for the display of the run.

With `--verbose`, and where no other process shows the run, the log is on standard error.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger

from rg_env.base.processes import redirect_output
from rg_env.configuration.config import RGDumpConfig
from rg_env.configuration.user_code import named_modules
from rg_env.skyrl.train_config import RGTrainConfig
from rg_env.terminal.reports import Reports

if TYPE_CHECKING:
    from loguru import Record

_FORMAT = "<green>{time:HH:mm:ss}</green> <level>{level: <7}</level> {message}"
_WARNING = logger.level("WARNING").no


def open_log(cfg: RGTrainConfig, reports: Reports) -> Path | None:
    """Set up the log of the process that starts Ray.

    With `suppress_base_env_logs`, Ray's processes are quieted too.

    Returns:
        the file in `trainer.log_path`, None if the log is printed.
    """
    log = None
    if reports.log_to_file:
        log = Path(cfg.trainer.log_path, f"train-{time.strftime('%Y%m%d-%H%M%S')}.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        redirect_output(log)
        reports.send(line=f"log: {log}", log=str(log))
    set_up_logging(cfg.rg_dump, reports)
    if cfg.rg_dump.suppress_base_env_logs:
        # tqdm and transformers read these when imported, so they are set before Ray starts its processes.
        os.environ.update(TQDM_DISABLE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="error")
    return log


def set_up_logging(config: RGDumpConfig, reports: Reports) -> None:
    """Set up the log of this process. SkyRL's trainer undoes it when it is built: call this again after that."""
    modules = tuple(named_modules(config))

    def is_shown(record: Record) -> bool:
        """Warnings, and all lines of rg_env and of the user's modules."""
        return (record["name"] or "").startswith(("rg_env", *modules)) or record["level"].no >= _WARNING

    logger.remove()
    logger.add(sys.stderr, format=_FORMAT, level="INFO", filter=is_shown if config.suppress_base_env_logs else None)
    reports.send_warnings(modules)
