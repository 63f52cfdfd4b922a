"""A command whose disk never returns from a write: python -m tests.programs.hanging_disk FOLDER"""

from __future__ import annotations

import asyncio
import sys
import threading

from rg_env.dump import DumpWriter, part_file
from rg_env.evaluate.progress import until_signal
from tests.dump.records import group


def hang(fd: int, data: bytes) -> None:
    threading.Event().wait()


async def work(writer: DumpWriter) -> None:
    try:
        print("ready", flush=True)
        await writer.write([group(0)])
    finally:
        writer.close()


if __name__ == "__main__":
    part_file.write_all = hang  # type: ignore[attr-defined]
    asyncio.run(until_signal(work(DumpWriter(sys.argv[1], "run", 1))))
