"""A dump as a Ray Data dataset, for what is more than one machine wants to read. The only module here that needs Ray.

Invariant: the rows of `Dump.scan`, in no particular order, each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl
import ray.data

from rg_env.dump.files import DumpFile
from rg_env.dump.read import frames
from rg_env.dump.read.chunks import size_of
from rg_env.dump.read.runs import Run

if TYPE_CHECKING:
    import pyarrow as pa

    from rg_env.dump.read.dump import Dump

_TASK_BYTES = 1 << 26
"""Bytes of files that one Ray task reads, chunk by chunk."""


def to_ray(dump: Dump, *, texts: bool, all_attempts: bool) -> ray.data.Dataset:
    """See `Dump.to_ray`."""
    columns = list(frames.TEXT_SCHEMA if texts else frames.SCHEMA)
    work = [
        (Run(run.run_id, tuple(files), None), frozenset() if all_attempts else dump.replaced(run))
        for run in dump.runs
        for files in _shares(run.files_for_frames(texts=texts))
    ]

    def read(batch: dict[str, Any]) -> Iterator[pa.Table]:
        from rg_env.dump.read.dump import Dump

        for number in batch["id"]:
            run, replaced = work[number]
            part = Dump((run,), _replaced_by_run={run.run_id: replaced})
            for frame in part.frames(columns, texts=texts):
                yield frame.select(columns).to_arrow(compat_level=pl.CompatLevel.oldest())
            for problem in part.problems:
                print(problem)

    return ray.data.range(len(work), override_num_blocks=max(1, len(work))).map_batches(read, batch_size=1)


def _shares(files: list[DumpFile]) -> Iterator[list[DumpFile]]:
    share: list[DumpFile] = []
    weight = 0
    for file in files:
        share.append(file)
        weight += size_of(file)
        if weight >= _TASK_BYTES:
            yield share
            share, weight = [], 0
    if share:
        yield share
