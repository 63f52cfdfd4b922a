"""Reading dumps: commands of rg_env, and short programs over the same files, each in a new process, imports included.
In CPU time of all threads, the first screen in wall time. The rivals of `stats` compute one small table per task:
groups, solve rate, share of groups without signal; polars reads the same columns as `stats`.
"""

from __future__ import annotations

import os
import pty
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from benchmarks.comparison import Comparison, Cost, Goal, of_command, python, rg_env
from benchmarks.make_dump import make_dump

STATISTICS = {
    "polars": """
import sys, polars as pl
lists = {"violation": pl.String, "status": pl.String, "base_score": pl.Float64, "reward": pl.Float64,
    "response_tokens": pl.Int64, "truncated": pl.Boolean}
schema = dict.fromkeys(["run_id", "phase", "environment", "task", "outcome", "text", "group_id"], pl.String)
schema |= {"no_signal": pl.Boolean, "step": pl.Int64, "complexity": pl.Float64, "solved_at": pl.Float64}
schema |= {name: pl.List(dtype) for name, dtype in lists.items()}
rows = pl.scan_ndjson(sys.argv[1] + "/*_ledger_*.jsonl", schema=schema).explode(list(lists))
figures = pl.len(), (pl.col("base_score") >= 0.99).mean().alias("solved"), pl.exclude("task").null_count()
print(rows.group_by("task").agg(*figures).collect(engine="streaming"))
""",
    "pandas": """
import sys, pandas as pd
from pathlib import Path
files = sorted(Path(sys.argv[1]).glob("*_ledger_*.jsonl"))
frame = pd.concat(pd.read_json(file, lines=True, engine="pyarrow") for file in files)
groups = frame.groupby("task")["no_signal"].agg(["size", "mean"])
scores = frame[["task", "base_score"]].explode("base_score")
print(groups.join((scores["base_score"] >= 0.99).groupby(scores["task"]).mean()))
""",
    "DuckDB": """
import sys, duckdb
files = f"read_json('{sys.argv[1]}/*_ledger_*.jsonl', format='newline_delimited', columns=" + '''
    {task: 'VARCHAR', no_signal: 'BOOLEAN', base_score: 'DOUBLE[]'})'''
print(duckdb.sql(f'''SELECT task, count(*), avg(no_signal::INT),
    sum(len(list_filter(base_score, lambda s: s >= 0.99))) / sum(len(base_score)) FROM {files} GROUP BY task'''))
""",
}
"""Programs that compute the table of a ledger."""

READ = """
import sys, polars as pl
print(pl.read_ndjson(sys.argv[1] + "/*_rollouts_*.jsonl").height)
"""
SCAN = """
import sys, polars as pl
print(pl.scan_ndjson(sys.argv[1] + "/*_rollouts_*.jsonl").select("task", "group_id").head(50).collect())
"""
READER = "`polars.read_ndjson`"
TIMEOUT = 60.0
"""Seconds to wait for a first screen."""


class Runs:
    """A command, run anew for each time; `memory` is that of the same runs, in the same order."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._done: list[Cost] = []

    def cpu(self) -> float:
        self._done.append(of_command(self._command))
        return self._done[-1].cpu

    def wall(self) -> float:
        return of_command(self._command).wall

    def memory(self) -> float:
        return self._done.pop(0).memory


def comparisons(folder: Path, quick: bool) -> Iterator[Comparison]:
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    gigabytes = 0.05 if quick else 1.0
    yield from _of_ledgers(folder, [1_000, 10_000] if quick else [1_000, 10_000, 100_000])
    texts = folder / "texts"
    make_dump(texts, size=gigabytes / 4 * 1e9, ledger=False)
    size = f"of {gigabytes / 4:g} GB of texts"
    time, memory = _compared(f"`show --plain` {size}", _show(texts), python(READ, str(texts)), READER)
    yield time
    yield replace(memory, goal=Goal(cost=1000.0))
    whole = folder / "whole"
    make_dump(whole, size=gigabytes * 1e9)
    size = f"of a dump of {gigabytes:g} GB"
    time, memory = _compared(f"`report` {size}", _report(whole, gigabytes), python(READ, str(whole)), READER)
    yield time
    yield memory
    scan = Runs(python(SCAN, str(whole))).wall
    yield Comparison(f"`show` {size}, first screen", "s", lambda: first_screen(whole), scan, "polars, 50 rows")


def _of_ledgers(folder: Path, sizes: Sequence[int]) -> Iterator[Comparison]:
    for groups in sizes:
        ledger = folder / f"ledger_{groups}"
        make_dump(ledger, groups=groups, texts=False)
        what, ours = f"`stats` of {groups:,} groups", _stats(ledger)
        if groups < sizes[-1]:
            rival = Runs(python(STATISTICS["polars"], str(ledger))).cpu
            yield Comparison(what, "s", Runs(ours).cpu, rival, "polars, a table")
            continue
        for name, program in STATISTICS.items():
            about = f"{what} ({name})"
            time, memory = _compared(about, ours, python(program, str(ledger)), f"{name}, a table")
            if name == "polars" and groups == 100_000:
                time, memory = replace(time, goal=Goal(ratio=1.4)), replace(memory, goal=Goal(ratio=2.0))
            yield time
            yield memory


REPORT = """
import sys
from rg_env.page import write_report
from rg_env.dump import open_run
write_report(open_run(sys.argv[1]), sys.argv[2], force=True, max_groups=int(sys.argv[3]))
"""


def _compared(what: str, ours: Sequence[str], rival: Sequence[str], name: str) -> tuple[Comparison, Comparison]:
    """CPU time and peak memory of two commands, to be measured in this order."""
    mine, theirs = Runs(ours), Runs(rival)
    return (
        Comparison(what, "s", mine.cpu, theirs.cpu, name),
        Comparison(f"{what}: peak memory", "MB", mine.memory, theirs.memory, name),
    )


def _stats(folder: Path) -> list[str]:
    return rg_env("dumps", "stats", str(folder))


def _show(folder: Path) -> list[str]:
    return rg_env("dumps", "show", str(folder), "--plain")


def _report(folder: Path, gigabytes: float) -> list[str]:
    """With as many groups to browse per GB as the default gives of 5 GB."""
    out = str(folder.parent / "report.html")
    return [sys.executable, "-c", REPORT, str(folder), out, f"{1000 * gigabytes:.0f}"]


def first_screen(folder: Path) -> float:
    """Seconds from the start of `show` to the first screen of its pager, `less`, with the prompt below it."""
    command = rg_env("dumps", "show", str(folder))
    start = perf_counter()
    process, terminal = pty.fork()
    if process == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40", "PAGER": "less"}
        os.execv(command[0], command)
    shown = b""
    while b"\n:" not in shown:
        if not select.select([terminal], [], [], TIMEOUT)[0]:
            raise TimeoutError(shown[-2000:])
        shown += os.read(terminal, 1 << 16)
    seconds = perf_counter() - start
    os.write(terminal, b"q")
    with suppress(OSError):  # the other end is closed
        while os.read(terminal, 1 << 16):
            pass
    os.waitpid(process, 0)
    os.close(terminal)
    return seconds
