"""Checks that the folders of a run can be written, without leaving anything behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rg_env.config import PREFIX
from rg_env.dump.files import try_folder
from rg_env.errors import refuse
from rg_env.skyrl.checks.settings import value_of

_FOLDERS = (f"{PREFIX}.dump_dir", "trainer.ckpt_path", "trainer.export_path", "trainer.log_path")


def check_folders(cfg: Any) -> None:
    """Refuse a folder of the run that cannot be created or written. Paths with `://` are not checked.

    Raises:
        ConfigError: for the first such folder.
    """
    for setting in _FOLDERS:
        path = str(value_of(cfg, setting))
        if "://" not in path:
            try:
                try_folder(Path(path).expanduser())
            except OSError as error:
                refuse(setting, path, f"the folder cannot be written ({error.strerror}); choose another one")
