"""Processes: who adopts their orphans, where they print and keep temporary files.

`die_with_parent` and `usable_cores` are the runner's.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from pathlib import Path

from rg_env.runner.machine import die_with_parent, usable_cores

_PR_SET_CHILD_SUBREAPER = 36

__all__ = ["adopt_orphans", "die_with_parent", "make_scratch", "ray_folder", "redirect_output", "usable_cores"]

STOPPED_BY = "stopped_by"
"""The file in the scratch folder of a run with the name of the signal that is to stop it."""
SCRATCH = "RG_ENV_SCRATCH"
"""Environment variable: the folder that the supervisor of this process removes at the end."""
_LONGEST_TEMP = 30
"""Maximum length of the path of temporary folders: Ray's socket paths are about 77 characters longer, and the limit is
107 bytes."""


def adopt_orphans() -> None:
    """Have the kernel make this process the parent of descendants whose parent ended. Only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def redirect_output(path: Path) -> None:
    """Append to a file what this process and its libraries print."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    os.close(file)


def make_scratch() -> Path:
    """Return a temporary folder with a path that is short enough for Ray's sockets."""
    folder = tempfile.gettempdir()
    if len(folder) > _LONGEST_TEMP:
        folder = "/tmp"
    return Path(tempfile.mkdtemp(prefix="rg", dir=folder))


def ray_folder() -> Path:
    """Return a new folder for Ray, which the supervisor of this process removes if it has one."""
    scratch = os.environ.get(SCRATCH)
    if scratch is None:
        return make_scratch()
    # One letter, because Ray's sockets are below it (see `_LONGEST_TEMP`).
    folder = Path(scratch, "r")
    folder.mkdir()
    return folder
