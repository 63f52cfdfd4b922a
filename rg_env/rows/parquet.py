"""Writes rows to a Parquet file that SkyRL or verl reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import batched
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import Progress

from rg_env.base.choices import RowFormat
from rg_env.base.output import console

ROW_GROUP = 1000
"""Rows per row group; an export keeps one group in memory."""


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], count: int, format: RowFormat) -> None:
    # Written out, not taken from the rows: columns that are null in the first group would have no type.
    text = pa.string()
    info = dict.fromkeys(("item", "task", "split", "entry", "task_config", "level"), text)
    info |= {"index": pa.int64(), "seed": pa.int64(), "complexity": pa.float64()}
    message = pa.struct({"role": text, "content": text})
    columns = {"data_source": text, "prompt": pa.list_(message)}
    if format is RowFormat.VERL:
        rows = map(_verl_row, rows)
        columns["extra_info"] = pa.struct(info)
        columns["ability"] = text
        columns["reward_model"] = pa.struct({"style": text, "ground_truth": text})
    else:
        columns["env_class"] = text
        columns["reward_spec"] = pa.struct({"method": text, "ground_truth": text})
        columns["extra_info"] = pa.struct(info)
    schema = pa.schema(columns)
    terminal = console(stderr=True)
    with (
        pq.ParquetWriter(path, schema, compression="zstd") as writer,
        Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as progress,
    ):
        bar = progress.add_task(f"writing {count} rows", total=count)
        for group in batched(rows, ROW_GROUP):
            writer.write_table(pa.Table.from_pylist(list(group), schema=schema))
            progress.advance(bar, len(group))


def _verl_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as verl has it, which `rg_env.trainers.verl` scores."""
    reward_model = {"style": row["reward_spec"]["method"], "ground_truth": row["reward_spec"]["ground_truth"]}
    shared = {name: row[name] for name in ("data_source", "prompt", "extra_info")}
    return shared | {"ability": "reasoning_gym", "reward_model": reward_model}
