"""Cost of reading a dump: `rg-env dumps stats` from the ledger and from texts, compared with polars on the same files.

Run: python benchmarks/bench_stats.py            creates dumps in a temporary folder
     python benchmarks/bench_stats.py FOLDER     reads an existing dump (see make_dump.py), to measure peak memory

Each command runs in a new process, so the times include the start of Python and the import of polars.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from make_dump import make_dump

LEDGER_GROUPS = 100_000
TEXT_BYTES = 3e8
REPEATS = 3

STATS = "import sys; from rg_env.cli import main; sys.argv[1:1] = ['dumps', 'stats']; main()"
RIVAL = """
import sys, polars as pl
from pathlib import Path
frames = [pl.read_ndjson(path) for path in sorted(Path(sys.argv[1]).glob('*.jsonl'))]
assert sum(frame.height for frame in frames) > 0
"""
START = "import polars"


def cost(program: str, *args: str) -> tuple[float, float, float]:
    """Run a Python program. Returns wall time, CPU time (seconds) and peak MB, each the minimum of several repeats."""
    runs = []
    for _ in range(REPEATS if len(sys.argv) == 1 else 1):
        begin = os.times()
        process = subprocess.Popen([sys.executable, "-c", program, *args], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"failed: {args}")
        runs.append((os.times().elapsed - begin.elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024))
    wall, processor, memory = (min(column) for column in zip(*runs, strict=True))
    return wall, processor, memory


def report(name: str, found: tuple[float, float, float], size: float) -> None:
    wall, processor, memory = found
    speed = size / 1e6 / wall
    print(f"{name:52} {wall:6.2f} s {processor:6.2f} s of CPU {speed:6.0f} MB/s {memory:5.0f} MB peak")


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.jsonl"))


def main() -> None:
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        report("rg-env dumps stats", cost(STATS, str(folder)), size_of(folder))
        return
    with tempfile.TemporaryDirectory() as name:
        ledger, texts = Path(name, "ledger"), Path(name, "texts")
        make_dump(ledger, groups=LEDGER_GROUPS, texts=False)
        make_dump(texts, size=TEXT_BYTES, ledger=False)
        report("import polars", cost(START), 0)
        report(f"rg-env dumps stats, ledger of {LEDGER_GROUPS} groups", cost(STATS, str(ledger)), size_of(ledger))
        ours, rival = cost(STATS, str(texts)), cost(RIVAL, str(texts))
        report("rg-env dumps stats, texts without a ledger", ours, size_of(texts))
        report("polars.read_ndjson, the same files", rival, size_of(texts))
        print(f"time of polars / time of rg_env, including start-up: {rival[0] / ours[0]:.2f}")


if __name__ == "__main__":
    main()
