"""Validate a dump, and the most memory that it took, in KiB: python -m tests.programs.validate_memory FOLDER"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from typer.testing import CliRunner

from rg_env.cli import app

if __name__ == "__main__":
    done = CliRunner().invoke(app, ["dumps", "validate", sys.argv[1]])
    # getrusage would count the memory of the process that started this one
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert peak is not None
    print(done.stdout, peak[1])
