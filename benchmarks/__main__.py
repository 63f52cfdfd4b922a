"""Run the benchmarks and write their results: `make bench`.

    python -m benchmarks [--quick] [--out FOLDER] [NAME ...]

A full run writes `evidence/benchmarks.md` and `evidence/benchmarks.json`. With `--quick` (fewer runs of
smaller work) or with names of benchmarks, the files go to `runs/benchmarks`, because they are not comparable.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

from benchmarks.page import Machine, Report, page
from benchmarks.section import Section, measure

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = tuple(sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py")))
PACKAGES = ("reasoning-gym", "skyrl", "torch", "ray", "polars", "pandas", "duckdb", "orjson")


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="in a few minutes: less work, one or two pairs of runs")
    parser.add_argument("--out", type=Path, help="folder for the results")
    asked = parser.parse_args()
    if unknown := sorted({*asked.names} - {*BENCHMARKS}):
        parser.error(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
    complete = not asked.names and not asked.quick
    out = asked.out or (ROOT / "evidence" if complete else ROOT / "runs" / "benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    sections = [_section(name, asked.quick) for name in asked.names or BENCHMARKS]
    report = Report(_machine(time.perf_counter() - start), asked.quick, sections)
    (out / "benchmarks.json").write_text(json.dumps(report.as_json(), indent=1, ensure_ascii=False) + "\n")
    (out / "benchmarks.md").write_text(page(report))
    print(f"written to {out} after {report.machine.seconds / 60:.1f} min")


def _section(name: str, quick: bool) -> Section:
    """Run a benchmark in a new process, so that none depends on what another imported or started."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(measure, name, quick).result()


def _machine(seconds: float) -> Machine:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        processor=_processor(),
        python=platform.python_version(),
        packages={name: version(name) for name in PACKAGES},
        commit=commit.strip(),
        load=[round(load, 1) for load in os.getloadavg()],
        seconds=round(seconds),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
