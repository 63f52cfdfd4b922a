"""The card of an exported data set: `README.md` with a YAML header that Hugging Face's `datasets` reads.

Invariant: the header names the file and the types of its columns, so that `load_dataset(folder)` gives the same columns
for JSON lines and Parquet. Names from a dump are untrusted: the text formats them as code, the header has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from rg_env.analysis.export.kinds import Exported
from rg_env.dump import Dump

CARD_NAME = "README.md"
_MARK = "<!-- written by rg-env dumps export -->"


def is_ours(path: Path) -> bool:
    """Whether a file is a card that an export wrote."""
    try:
        return _MARK in path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def card(result: Exported, dump: Dump, out: Path) -> str:
    """The text of the card."""
    kind, common = result.kind, result.common
    head = {
        "pretty_name": f"{kind.name.upper()} from Reasoning Gym rollouts",
        "task_categories": ["text-generation"],
        "tags": ["reasoning-gym", "rg_env", "trl", kind.name],
        "size_categories": [_size_category(result.rows)],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": out.name}]}],
        "dataset_info": {"config_name": "default", "features": features(kind.schema)},
    }
    settings = {
        **kind.settings(),
        "think": common.think,
        "per-task": common.per_task or kind.default_per_task,
        "seed": common.seed,
        "include-eval": common.include_eval,
        "tasks": ",".join(common.tasks) or "all",
        **({"where": " and ".join(common.where)} if common.where else {}),
    }
    runs = [(run.run_id, str((run.manifest or {}).get("model") or "unknown")) for run in dump.runs]
    unit = "groups" if kind.name == "grpo" else "examples"
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---",
        _MARK,
        f"# {head['pretty_name']}",
        *(f"> **Note.** {note}" for note in result.notes),
        f"{kind.summary} {result.rows} {unit} from {result.groups} groups with {result.rollouts} rollouts.",
        "```python\nfrom datasets import load_dataset\n\n"
        'dataset = load_dataset("path/to/this/folder", split="train")\n```',
        "## Tasks\n\n" + _table(("task", unit), sorted(result.per_task.items())),
        "## Left out\n\n" + (_table(("what", "count"), result.left_out.rows(), code=False) or "Nothing."),
        "## Source\n\n" + _table(("run", "model"), runs),
        "## Settings\n\n" + _table(("setting", "value"), settings.items()),
    ]
    return "\n\n".join(parts) + "\n"


def features(schema: pa.Schema) -> list[dict[str, Any]]:
    """Arrow columns in the form that `datasets` uses in a card."""
    return [{"name": field.name, **_feature(field.type)} for field in schema]


def _feature(dtype: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(dtype):
        inner = _feature(dtype.value_type)
        if list(inner) == ["dtype"]:
            return {"list": inner["dtype"]}
        return {"list": inner.get("struct", inner)}
    if pa.types.is_struct(dtype):
        return {"struct": [{"name": field.name, **_feature(field.type)} for field in dtype]}
    return {"dtype": {"double": "float64"}.get(str(dtype), str(dtype))}


def _size_category(rows: int) -> str:
    """Hugging Face's size categories."""
    steps = [(10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M")]
    return next((name for below, name in steps if rows < below), "10M<n<100M")


def _table(head: tuple[str, str], rows: Iterable[tuple[str, object]], *, code: bool = True) -> str:
    lines = [f"| {_code(name) if code else name} | {_code(str(value))} |" for name, value in rows]
    return "\n".join([f"| {head[0]} | {head[1]} |", "|---|---|", *lines]) if lines else ""


def _code(text: str) -> str:
    """A name as code in a table, without characters that could end the cell or the line."""
    return "`" + re.sub(r"[`|\s]+|[^\x20-\x7e]", "_", text) + "`"
