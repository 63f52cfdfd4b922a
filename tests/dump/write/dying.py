"""Processes that write a record and are killed with SIGKILL at a chosen file operation.

`python -m tests.dump.write.dying` is a warm process that imports `rg_env.dump` once and forks a child for each order it
reads from its standard input. Every function that changes files is wrapped in the child; the child counts, in each of
its threads, and kills itself. What `write()` has acknowledged goes through a pipe to the warm process, which outlives
it.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from loguru import logger

from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, DumpWriter, TrainedRecord, claim_run, write_manifest
from tests.dump.records import group

FILE_OPERATIONS = {
    os: "open write pwrite ftruncate truncate rename replace link unlink rmdir mkdir chmod fsync close",
    fcntl: "flock",
}


class Moment(StrEnum):
    BEFORE = "before"
    """Also the moment after the operation before it."""
    HALF = "half"
    """Of a write: some of its bytes have been taken."""


@dataclass(frozen=True)
class Death:
    """When to die: at the `number`th file operation of a thread."""

    thread: str
    number: int
    moment: Moment


@dataclass(frozen=True)
class Life:
    """What a child did before it ended.

    Attributes:
        acknowledged: uids of the groups of which `write()` had said True, in order.
        trained: group ids of the same for training records.
        operations: the file operations of each thread; only of a child that was not to die.
        unseen: files that were opened for writing by other means than the counted ones.
        killed: whether it was killed.
    """

    acknowledged: list[str]
    trained: list[str]
    operations: dict[str, list[str]]
    unseen: list[str]
    killed: bool


class DyingWriters:
    """The warm process, seen from the test."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.dump.write.dying"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait()

    def live(self, folder: Path, start: int, *, calls: int, death: Death | None = None) -> Life:
        """Let a child start or resume the run in `folder` and write the groups of `calls` calls.

        Args:
            start: 1 for a new run, then 2, 3, … for its resumptions; the groups' uids say it.
            death: the file operation at which it kills itself.
        """
        order = {
            "folder": str(folder),
            "start": start,
            "calls": calls,
            "death": death and asdict(death),
        }
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return Life(**json.loads(self._process.stdout.readline()))


def uids_of(start: int, call: int) -> list[str]:
    """The groups of one call."""
    return [f"{start}-{call}-{k}" for k in range(3)]


def _main() -> None:
    logger.remove()
    with tempfile.TemporaryDirectory() as folder:
        write_manifest(folder, "warm", Attempt())
    gc.collect()
    gc.freeze()  # children share its pages
    for line in sys.stdin:
        order = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            _live(lambda what, write=write, tell=os.write: tell(write, (json.dumps(what) + "\n").encode()), order)
        os.close(write)
        life: dict[str, Any] = {"acknowledged": [], "trained": [], "operations": {}, "unseen": []}
        with os.fdopen(read) as reports:
            for report in map(json.loads, reports):
                for key, value in report.items():
                    life[key] = life[key] + value if isinstance(value, list) else value
        status = os.waitpid(child, 0)[1]
        life["killed"] = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not life["killed"] and status:
            life["unseen"].append(f"exit status {status}")
        print(json.dumps(life), flush=True)


def _live(report: Callable[[Any], object], order: dict[str, Any]) -> None:
    try:
        operations, unseen = _count_operations(order["death"] and Death(**order["death"]), order["folder"])
        _write_record(Path(order["folder"]), order["start"], order["calls"], report)
        report({"operations": operations, "unseen": unseen})
    except BaseException as error:
        report({"unseen": [repr(error)]})
    os._exit(0)


def _count_operations(death: Death | None, folder: str) -> tuple[dict[str, list[str]], list[str]]:
    counts: Counter[str] = Counter()
    seen: dict[str, list[str]] = {}
    unseen: list[str] = []
    inside = threading.local()

    def wrap(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **options: Any) -> Any:
            thread = threading.current_thread().name
            thread = thread if thread == "MainThread" else "writer"
            counts[thread] += 1
            now = death is not None and (thread, counts[thread]) == (death.thread, death.number)
            if now and death.moment == Moment.BEFORE:
                os.kill(os.getpid(), signal.SIGKILL)
            if now and death.moment == Moment.HALF:
                real(args[0], args[1][: len(args[1]) // 2], *args[2:])
                os.kill(os.getpid(), signal.SIGKILL)
            seen.setdefault(thread, []).append(name)
            inside.now = True
            try:
                return real(*args, **options)
            finally:
                inside.now = False

        return operation

    for module, names in FILE_OPERATIONS.items():
        for name in names.split():
            setattr(module, name, wrap(name, getattr(module, name)))

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event != "open" or getattr(inside, "now", False) or not str(args[0]).startswith(folder):
            return
        if args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not Path(args[0]).is_dir():
            unseen.append(str(args[0]))

    sys.addaudithook(audit)
    return seen, unseen


def _write_record(folder: Path, start: int, calls: int, report: Callable[[Any], object]) -> None:
    run_id, attempt = claim_run(folder / "checkpoints", resuming=start > 1)
    config = RGDumpConfig(dump_other_rollouts=False, groups_per_file=4, dump_fsync=True)
    with DumpWriter(folder / "dumps", run_id, attempt, config) as writer:
        write_manifest(folder / "dumps", run_id, Attempt(attempt=attempt))

        async def train() -> None:
            for call in range(calls):
                scores = ([1.0, 0.0], [0.0, 0.0], [0.5, 0.0])  # a success, FAILED, and one whose text is not kept
                groups = [
                    group(uid, rollouts, run_id=run_id, attempt=attempt, call=call, step=call)
                    for uid, rollouts in zip(uids_of(start, call), scores, strict=True)
                ]
                if await writer.write(groups):
                    report({"acknowledged": [group.uid for group in groups]})
                trained = [TrainedRecord(run_id, attempt, call, groups[0].group_id, 2)]
                if await writer.write(trained):
                    report({"trained": [record.group_id for record in trained]})

        asyncio.run(train())


if __name__ == "__main__":
    _main()
