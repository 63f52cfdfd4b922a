"""From the command to the first training step of nano on the CPU: `rg-env train` with everything on, and SkyRL's own
`BasePPOExp` with the same model, settings and CPU workers, a list of prompts and an environment that does nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.comparison import Comparison, rg_env

ROOT = Path(__file__).resolve().parents[1]
FIRST_STEP = "Started: 'step'"
"""What SkyRL logs when a step begins."""


def comparisons(folder: Path, quick: bool) -> Iterator[Comparison]:
    text = (ROOT / "configs/quickstart.yaml").read_text().replace("runs/quickstart", str(folder / "run"))
    config = folder / "quickstart.yaml"
    config.write_text(text)
    settings = ["trainer.max_training_steps=1", "trainer.eval_interval=0"]
    ours = partial(until_first_step, rg_env("train", str(config), *settings, "--verbose"))
    rival = partial(until_first_step, [sys.executable, "-m", "benchmarks.skyrl_start", str(folder / "skyrl")])
    yield Comparison("command to first step", "s", ours, rival, "SkyRL alone", slow=True)


def until_first_step(command: Sequence[str]) -> float:
    """Seconds until the command logs its first step. The command is stopped then.

    Raises:
        RuntimeError: it ended before.
    """
    start = perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"}, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if FIRST_STEP in line:
            seconds = perf_counter() - start
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            process.wait()
            return seconds
    raise RuntimeError(f"{' '.join(command)} ended before its first step: {''.join(lines[-20:])}")
