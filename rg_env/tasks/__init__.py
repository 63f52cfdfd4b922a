"""The tasks that exist, the soundness of their scorers, mixes of them, and their items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rg_env.base.lazy import exports

if TYPE_CHECKING:
    from rg_env.base.choices import Split
    from rg_env.tasks.entry_json import decode_entry, encode_entry
    from rg_env.tasks.item import Item, hash64, split_of
    from rg_env.tasks.items import ItemStream
    from rg_env.tasks.mix import TaskMix, TaskSpec
    from rg_env.tasks.registry import TaskInfo, list_tasks, task_categories, task_names
    from rg_env.tasks.soundness import KNOWN_UNSOUND, OFTEN_FREE, Soundness, soundness_of

__all__ = [
    "KNOWN_UNSOUND",
    "OFTEN_FREE",
    "Item",
    "ItemStream",
    "Soundness",
    "Split",
    "TaskInfo",
    "TaskMix",
    "TaskSpec",
    "decode_entry",
    "encode_entry",
    "hash64",
    "list_tasks",
    "soundness_of",
    "split_of",
    "task_categories",
    "task_names",
]

# Scoring and recording need items, but nothing that makes them.
_MODULES = {
    "KNOWN_UNSOUND": "rg_env.tasks.soundness",
    "OFTEN_FREE": "rg_env.tasks.soundness",
    "Item": "rg_env.tasks.item",
    "ItemStream": "rg_env.tasks.items",
    "Soundness": "rg_env.tasks.soundness",
    "Split": "rg_env.base.choices",
    "TaskInfo": "rg_env.tasks.registry",
    "TaskMix": "rg_env.tasks.mix",
    "TaskSpec": "rg_env.tasks.mix",
    "decode_entry": "rg_env.tasks.entry_json",
    "encode_entry": "rg_env.tasks.entry_json",
    "hash64": "rg_env.tasks.item",
    "list_tasks": "rg_env.tasks.registry",
    "soundness_of": "rg_env.tasks.soundness",
    "split_of": "rg_env.tasks.item",
    "task_categories": "rg_env.tasks.registry",
    "task_names": "rg_env.tasks.registry",
}
__getattr__, __dir__ = exports(__name__, _MODULES)
