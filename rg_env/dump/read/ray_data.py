"""Frames as a Ray Data dataset, for reading on several machines. The only module here that needs Ray.

Invariant: every row of every source, in no particular order, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
import ray.data

from rg_env.dump.files import DumpFile
from rg_env.dump.read.chunks import size_of

if TYPE_CHECKING:
    import pyarrow as pa

_TASK_BYTES = 1 << 26
"""Bytes of files that one Ray task reads, chunk by chunk."""


def to_ray(sources: Sequence[Callable[[], Iterable[pl.DataFrame]]]) -> ray.data.Dataset:
    """The rows of frames of the same columns, each source read by a Ray task; sources are pickled."""

    def read(batch: dict[str, Any]) -> Iterator[pa.Table]:
        for number in batch["id"]:
            for frame in sources[number]():
                yield frame.to_arrow(compat_level=pl.CompatLevel.oldest())

    return ray.data.range(len(sources), override_num_blocks=max(1, len(sources))).map_batches(read, batch_size=1)


def shares(files: Iterable[DumpFile]) -> Iterator[tuple[DumpFile, ...]]:
    """Split the files into shares, one for each Ray task."""
    share: list[DumpFile] = []
    weight = 0
    for file in files:
        share.append(file)
        weight += size_of(file)
        if weight >= _TASK_BYTES:
            yield tuple(share)
            share, weight = [], 0
    if share:
        yield tuple(share)
