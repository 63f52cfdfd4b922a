"""A dataset card for a dump folder: the README.md that the Hugging Face hub and `datasets` read.

Its front matter has one configuration for each kind of file, with the types of its columns, so that
`datasets.load_dataset(folder, "rollouts")` gives the groups above the threshold, whatever is null in the first lines.
Not covered: files that are still being written, which `datasets` does not read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rg_env.analysis.export import assumed_phases
from rg_env.base.atomic import new_file
from rg_env.base.errors import ConfigError, DumpError
from rg_env.base.wording import counted, visible
from rg_env.dump import ColumnTypes, Dump, FileKind
from rg_env.dump.files import PREFIX, list_files

NAME = "README.md"
_TRAIN, _TEST = "train", "test"
_LICENSE = "unknown"
_MEANINGS = {
    FileKind.ROLLOUTS: "training groups with a base score above the threshold, with texts",
    FileKind.FAILED: "training groups in which no base score is above 0, with texts",
    FileKind.OTHER: "training groups that are neither, with texts",
    FileKind.EVAL: "evaluation groups, with texts",
    FileKind.TRAINED: "which groups each step was trained on",
    FileKind.STEPS: "the trainer's own numbers of each step",
    FileKind.LEDGER: "a record of every group, without texts",
}
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))
_MORE = "10M<n<100M"


@dataclass(frozen=True, slots=True)
class Card:
    """What was written.

    Attributes:
        configs: the configurations, the default one first.
        unfinished: files that are still being written, which the card leaves out.
    """

    path: Path
    configs: tuple[str, ...]
    unfinished: int


def write_card(dump: Dump, folder: Path, *, license_name: str = "", force: bool = False) -> Card:
    """Write README.md into a dump folder.

    Args:
        dump: the runs in the folder.
        license_name: as the hub calls it, such as `cc-by-4.0`; "" leaves the field to be filled in.

    Raises:
        ConfigError: the folder has a README.md, or cannot be written.
        DumpError: it is not a folder, or has no finished file.
    """
    if not os.path.isdir(folder):
        raise DumpError(f"{folder} is a file: a card describes a whole dump folder")
    path = folder / NAME
    if path.exists() and not force:
        raise ConfigError(f"{path} exists: move it away, or replace it with --force")
    files = list_files(folder)
    finished = [file for file in files if not file.is_open]
    if not finished:
        raise DumpError(f"{folder} has no finished file yet: make the card when the run has finished")
    # A configuration for each kind of file that is there.
    configs = []
    for kind in FileKind:
        endings = {file.path.suffix for file in finished if file.kind is kind}  # .jsonl, or that of a compressed file
        if endings:
            configs.append(_config(kind, endings))
    # The one that `load_dataset` takes without a name: the first of the kinds that there are.
    configs[0]["default"] = True
    tasks, rollouts = _counts(dump)
    groups = tasks.total()
    front = {
        "pretty_name": _title(dump),
        "license": license_name or _LICENSE,
        "task_categories": ["text-generation"],
        "size_categories": [_size(groups)],
        "tags": ["reasoning-gym", "reinforcement-learning", "rollouts", "rg_env"],
        "configs": configs,
        # Otherwise `datasets` infers types from the first lines, which have null where nothing was scored.
        "dataset_info": [
            {"config_name": config["config_name"], "features": ColumnTypes(config["config_name"]).hub}
            for config in configs
        ],
    }
    text = _front_matter(front) + "\n" + _body(dump, configs, tasks, rollouts)
    with new_file(path) as draft:
        draft.write_text(text, encoding="utf-8")
    return Card(path, tuple(config["config_name"] for config in configs), len(files) - len(finished))


def _config(kind: FileKind, endings: Collection[str]) -> dict[str, Any]:
    """Return the configuration of a kind of file. The patterns also find the files of other runs in the folder."""
    paths = [f"{PREFIX}_{kind}_*{ending}" for ending in sorted(endings)]
    split = _TEST if kind is FileKind.EVAL else _TRAIN
    return {"config_name": str(kind), "data_files": [{"split": split, "path": paths}]}


def _title(dump: Dump) -> str:
    names = ", ".join(dump.names.values())
    return f"Rollouts of {names}"


def _counts(dump: Dump) -> tuple[Counter[str], int]:
    """Return the groups of each task, of both phases, and the number of rollouts."""
    tasks: Counter[str] = Counter()
    rollouts = 0
    records = dump.ledger() if dump.has_ledger else dump.groups()
    for group in records:
        # The name stands between backquotes in the card, and one of its own would end them.
        tasks[visible(group.task, one_line=True).replace("`", "'")] += 1
        rollouts += len(group.rollouts)
    return tasks, rollouts


def _size(groups: int) -> str:
    """Return the hub's word for a number of rows.

    >>> _size(999), _size(1000), _size(25_000)
    ('n<1K', '1K<n<10K', '10K<n<100K')
    """
    for limit, word in _SIZES:
        if groups < limit:
            return word
    return _MORE


def _front_matter(fields: dict[str, Any]) -> str:
    # So wide that PyYAML breaks no line. It writes no comments, so the hint is put in afterward.
    text = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=1000)
    if fields["license"] == _LICENSE:
        hint = "  # fill in, such as cc-by-4.0; https://huggingface.co/docs/hub/repositories-licenses"
        text = text.replace(f"\nlicense: {_LICENSE}\n", f"\nlicense: {_LICENSE}{hint}\n", 1)
    return f"---\n{text}---\n"


def _body(dump: Dump, configs: list[dict[str, Any]], tasks: Counter[str], rollouts: int) -> str:
    models = sorted({run.model for run in dump.runs if run.model})
    lines = [f"# {_title(dump)}", ""]
    source = f"{counted(tasks.total(), 'group')} with {counted(rollouts, 'rollout')}"
    lines.append(f"{source}, recorded with rg_env.")
    if models:
        lines.append(f"Model: {', '.join(visible(model, one_line=True) for model in models)}.")
    named = [f"`{task}` ({count:,})" for task, count in sorted(tasks.items())]
    lines += [f"Tasks, with their groups: {', '.join(named)}.", ""]
    lines += ["| configuration | split | rows |", "|---|---|---|"]
    for config in configs:
        kind = FileKind(config["config_name"])
        lines.append(f"| `{kind}` | {config['data_files'][0]['split']} | {_MEANINGS[kind]} |")
    first = configs[0]
    split = first["data_files"][0]["split"]
    lines += ["", "```python", "import datasets", ""]
    lines += [f'datasets.load_dataset("USER/NAME", "{first["config_name"]}", split="{split}")', "```", ""]
    lines.append("The ledger's rows have `phase` train or eval. Do not train on evaluation groups.")
    lines += [*assumed_phases(dump), *(f"{sentence}." for sentence in dump.never_saved)]
    return "\n".join(lines) + "\n"
