"""Runs programs and captures what they print, so that a test that fails shows it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run_command(
    *words: object,
    cwd: Path = ROOT,
    timeout: float = 800,
    check: bool = True,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would.

    Args:
        check: if the exit code is not 0, an assertion that shows the output fails.
        env: variables beside those of this process.
    """
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    assert not check or done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done


def program(name: str, *arguments: object) -> list[str]:
    """The command of a program in tests/programs. In other folders than `ROOT`, PYTHONPATH must have it."""
    return [sys.executable, "-m", f"tests.programs.{name}", *map(str, arguments)]


def run_program(
    name: str, *arguments: object, cwd: Path = ROOT, timeout: float = 800, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a program of tests/programs in a process of its own."""
    return run_command(*program(name, *arguments), cwd=cwd, timeout=timeout, check=check, env={"PYTHONPATH": str(ROOT)})


def rg_env(
    *arguments: object, cwd: Path = ROOT, timeout: float = 800, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """`rg-env …` of this environment."""
    main = "from rg_env.cli import main; main()"
    return run_command(sys.executable, "-c", main, *arguments, cwd=cwd, timeout=timeout, check=check)
