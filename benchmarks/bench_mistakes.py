"""How long a mistake in a setting takes through the real command, next to Python importing what a run needs.

python benchmarks/bench_mistakes.py
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.skyrl.checks.mistakes import THROUGH_THE_COMMAND  # noqa: E402

COMMAND = [sys.executable, "-c", "from rg_env.cli import main; main()", "train", "configs/quickstart.yaml"]


def seconds(*command: str) -> tuple[float, float]:
    """Seconds on the clock and of CPU."""
    started, used = time.perf_counter(), cpu_of_children()
    subprocess.run(command, cwd=ROOT, capture_output=True)
    return time.perf_counter() - started, cpu_of_children() - used


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    times = {mistake: seconds(*COMMAND, mistake) for mistake in THROUGH_THE_COMMAND}
    times["SkyRL's trainer, imported alone"] = seconds(sys.executable, "-c", "import skyrl.train.trainer")
    print(" clock     CPU")
    for name, (clock, cpu) in times.items():
        print(f"{clock:6.2f}  {cpu:6.2f} s  {name}")
    mistakes = [times[mistake] for mistake in THROUGH_THE_COMMAND]
    clock, cpu = (statistics.median(column) for column in zip(*mistakes, strict=True))
    print(f"{clock:6.2f}  {cpu:6.2f} s  median of the ten mistakes")


if __name__ == "__main__":
    main()
