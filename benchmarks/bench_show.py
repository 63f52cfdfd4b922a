"""How long `rg-env dumps show` takes to its first screen on a big dump, without and with a cached index.

The application runs in a pseudo-terminal. The first screen is complete when it shows a task's name and how many groups
have been read. For comparison, a program that only reads the same files with polars runs as well.

Run: python benchmarks/bench_show.py [--gigabytes 1] [--folder /tmp]; the dump is removed afterwards.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl
import psutil

from rg_env.browser import Query
from rg_env.browser.index import FOUND_BY, index_rows, text_files
from rg_env.dump import FileKind, open_run, to_line
from rg_env.dump.files import batch_name

sys.path.insert(0, str(Path(__file__).parent))
from bench_dump import make_group

GROUPS_PER_FILE, TEMPLATES = 100, 50
SHOW = "from rg_env.cli import main; main()"
READ = "import polars, sys; print(polars.scan_ndjson(sys.argv[1] + '/*_rollouts_*.jsonl').collect().height)"


def make_dump(folder: Path, gigabytes: float) -> tuple[int, int]:
    """Write files as a run does. Groups differ only in their ids, which does not affect the cost of reading them."""
    lines = [to_line(make_group(number)) for number in range(TEMPLATES)]
    size = groups = batch = 0
    while size < gigabytes * 1e9:
        with (folder / batch_name(FileKind.ROLLOUTS, "bench", batch)).open("wb") as file:
            for k in range(GROUPS_PER_FILE):
                number = k % TEMPLATES
                line = lines[number].replace(b':%d"' % number, b':%d"' % groups)
                size += file.write(line)
                groups += 1
        batch += 1
    return size, groups


def first_screen(folder: Path) -> tuple[float, float]:
    """Seconds from the start of the process to a screen with groups, and the CPU time until then."""
    start = time.perf_counter()
    process, terminal = pty.fork()
    if process == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        os.execv(sys.executable, [sys.executable, "-c", SHOW, "dumps", "show", str(folder)])
    shown = b""
    while not (b"chain_sum" in shown and re.search(rb"of [\d,]+ groups", shown)):
        if not select.select([terminal], [], [], 60)[0]:
            raise TimeoutError(shown[-2000:])
        shown += os.read(terminal, 65536)
    seconds = time.perf_counter() - start
    used = psutil.Process(process).cpu_times()
    os.write(terminal, b"q")
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:  # the other end is closed
        pass
    os.waitpid(process, 0)
    os.close(terminal)
    return seconds, used.user + used.system


def remove_cache(cache: str) -> None:
    shutil.rmtree(Path(cache, "rg_env"), ignore_errors=True)


def report_first_screen(folder: Path, cache: str, *, cached: bool) -> None:
    runs = []
    for _ in range(3):
        if not cached:
            remove_cache(cache)
        runs.append(first_screen(folder))
    seconds, processor = min(runs)
    print(
        f"first screen {'with' if cached else 'without'} a cached index: {seconds:.2f} s, {processor:.2f} s of CPU time"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name, tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        folder = Path(name)
        size, groups = make_dump(folder, asked.gigabytes)
        print(f"{size / 1e9:.2f} GB, {groups:,} groups, {len(list(folder.iterdir()))} files")
        report_first_screen(folder, cache, cached=False)
        remove_cache(cache)
        start = time.perf_counter()
        dump = open_run(folder)
        rows = pl.concat([chunk.rows for chunk in index_rows(dump)])
        seconds = time.perf_counter() - start
        print(f"reading everything and caching the index: {seconds:.1f} s, {size / 1e6 / seconds:.0f} MB/s")
        print(f"the cache: {sum(path.stat().st_size for path in Path(cache, 'rg_env').iterdir()) / 1e6:.1f} MB")
        report_first_screen(folder, cache, cached=True)
        start = time.perf_counter()
        fitting = Query(("base_score=0", "violation=none")).filter(rows).height
        seconds = time.perf_counter() - start
        print(f"a filter on rollouts: {seconds * 1000:.0f} ms ({fitting:,} found)")
        start = time.perf_counter()
        files, query, places = text_files(dump), Query(text="no such words"), rows.select(FOUND_BY)
        searched = sum(query.group_of(files, row) is not None for row in places.iter_rows(named=True))
        seconds = time.perf_counter() - start
        print(f"searching texts: {rows['length'].sum() / 1e6 / seconds:.0f} MB/s ({searched} found)")
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", READ, str(folder)], check=True, stdout=subprocess.DEVNULL)
        print(f"polars reads the same files without showing anything: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
