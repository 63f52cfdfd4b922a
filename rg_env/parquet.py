"""Rows of prompts as a Parquet file that stock SkyRL reads.

Invariant: the file appears complete or not at all, and memory does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import batched
from pathlib import Path
from typing import Any

from rg_env.atomic import replacing
from rg_env.errors import ConfigError
from rg_env.output import console

ROW_GROUP = 1000
"""Rows per row group; an export keeps one group in memory."""


def check_parquet(path: str | Path) -> Path:
    """The path of a Parquet file that can be written, even if it exists.

    Raises:
        ConfigError: it cannot be one.
    """
    target = Path(path).expanduser()
    if target.suffix != ".parquet":
        raise ConfigError(f"{target}: the name must end in .parquet")
    if target.is_dir():
        raise ConfigError(f"{target} is a folder: give the name of a file")
    if not target.parent.is_dir():
        raise ConfigError(f"{target}: there is no folder {target.parent}")
    return target


def write_parquet(path: str | Path, rows: Iterable[Mapping[str, Any]], count: int) -> None:
    """Write rows in SkyRL's form; an existing file is replaced.

    Args:
        count: number of rows, for the progress bar.

    Raises:
        ConfigError: the path cannot be a Parquet file, or it cannot be written.
    """
    target = check_parquet(path)
    try:
        with replacing(target) as draft:
            _write(draft, rows, count)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror or error}") from error


def _write(path: Path, rows: Iterable[Mapping[str, Any]], count: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from rich.progress import Progress

    text = pa.string()
    info = dict.fromkeys(("item", "task", "split", "entry", "task_config", "level"), text)
    info |= {"index": pa.int64(), "seed": pa.int64(), "complexity": pa.float64()}
    schema = pa.schema(
        {
            "data_source": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "env_class": text,
            "reward_spec": pa.struct({"method": text, "ground_truth": text}),
            "extra_info": pa.struct(info),
        }
    )
    terminal = console(stderr=True)
    with (
        pq.ParquetWriter(path, schema, compression="zstd") as writer,
        Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as progress,
    ):
        bar = progress.add_task(f"writing {count} rows", total=count)
        for group in batched(rows, ROW_GROUP):
            writer.write_table(pa.Table.from_pylist(list(group), schema=schema))
            progress.advance(bar, len(group))
