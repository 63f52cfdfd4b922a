"""Which tasks exist, which are sound, how they are mixed and how their items are made."""

from __future__ import annotations

from rg_env.choices import Split
from rg_env.tasks.entry_json import decode_entry, encode_entry
from rg_env.tasks.item import Item
from rg_env.tasks.items import ItemStream, hash64, split_of
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
