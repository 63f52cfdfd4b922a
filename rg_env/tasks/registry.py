"""The tasks that exist and the options that they take, read from reasoning-gym's own registry.

Invariant: nothing heavy is imported before a function is called.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from types import MappingProxyType
from typing import Any

from rg_env.base.errors import ConfigError, describe, did_you_mean
from rg_env.configuration.settings import check_value
from rg_env.tasks.levels import scale_of
from rg_env.tasks.soundness import AUDITED_TASKS, Soundness, check_audited, in_default_mix, reason_for, soundness_of
from rg_env.tasks.upstream.patched_dataset import MIXERS, registered

_DATASET_OPTIONS = ("size", "seed")

_WHERE = "`rg-env tasks` lists them; a task of your own needs --imports MODULE, or the setting imports"
"""For an unknown task that is similar to none."""


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task as `rg-env tasks` shows it.

    Attributes:
        in_default_mix: False for unsound tasks and for tasks whose answers are often free.
        reason: what `rg_env.tasks.soundness.reason_for` says about the task; may be empty.
        has_levels: whether it has usable levels of difficulty (`rg_env.tasks.levels`).
    """

    name: str
    category: str
    in_default_mix: bool
    soundness: Soundness
    reason: str
    has_levels: bool


def task_categories() -> Mapping[str, str]:
    """Category of every task, in order of the names: its folder in reasoning-gym, `custom` for a user's own."""
    # Reasoning Gym declares no categories: the package in which a task's class lies is one.
    categories = {}
    for name, (dataset_class, _) in registered().items():
        package, *folders = dataset_class.__module__.split(".")
        categories[name] = folders[0] if package == "reasoning_gym" else "custom"
    return MappingProxyType(categories)


def task_names() -> tuple[str, ...]:
    """Return the name of every task, sorted."""
    return tuple(task_categories())


def list_tasks() -> list[TaskInfo]:
    """Return every task."""
    return [_task_info(name, category) for name, category in task_categories().items()]


def _task_info(name: str, category: str) -> TaskInfo:
    return TaskInfo(
        name=name,
        category=category,
        in_default_mix=in_default_mix(name),
        soundness=soundness_of(name),
        reason=reason_for(name),
        has_levels=scale_of(name, {}) is not None,
    )


def check_name(name: str) -> None:
    """Refuse what is not a task.

    Raises:
        ConfigError: with the nearest known names; or reasoning-gym has another version than the audited one.
    """
    # The mistakes that have an answer of their own come first, then the name that is merely unknown.
    if name.endswith((".csv", ".jsonl", ".parquet")):
        in_mix = f"{{mine: {{file: {{path: {name.rpartition('=')[2]}, …}}}}}}"
        raise ConfigError(f"{name!r} is not a task; a file of questions needs a name in the mix, such as {in_mix}")
    if name in MIXERS:
        raise ConfigError(f"task {name!r} only mixes other tasks: name those in `tasks`, with weights")
    check_audited()
    # Modules of users that add tasks import reasoning-gym; without them, a wrong name is found without importing it.
    known = task_names() if "reasoning_gym" in sys.modules else AUDITED_TASKS
    if name not in known:
        task, dash, _ = name.partition("-")
        if name.startswith("category:"):
            raise ConfigError(f"{name!r} is a category: name one of its tasks, which `rg-env tasks` lists")
        if parts := [part for part in re.split(r"[;|/+ ]+", name) if part in known]:
            raise ConfigError(f"unknown task {name!r}: names are separated by commas: {','.join(parts)}")
        if dash and task in known:  # meant as the id of an item
            raise ConfigError(f"{name!r} is neither a task nor an item id; did you mean {task}-train-42-0?")
        raise ConfigError(f"unknown task {name!r}{did_you_mean(name, known, _WHERE)}")


def check_options(task: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Check a task's options by making its config, whose own `validate` decides.

    Args:
        task: an existing task.
        options: fields of the task's config, as YAML or JSON gives them.

    Returns:
        the options as reasoning-gym takes them: lists become tuples where the default is a tuple.

    Raises:
        ConfigError: naming the option and what would be right.
    """
    if not options:
        return {}
    config_class = registered()[task][1]
    known = {field.name: field for field in fields(config_class)}
    checked: dict[str, Any] = {}
    for name, value in options.items():
        if name in _DATASET_OPTIONS:
            raise ConfigError(f"task {task!r} does not take {name!r}: set the dataset's own `{name}`")
        if name not in known:
            others = sorted(known.keys() - set(_DATASET_OPTIONS))
            hint = did_you_mean(str(name), others, f"it has {', '.join(others) or 'none'}")
            raise ConfigError(f"task {task!r} has no option {name!r}{hint}")
        # YAML and JSON have no tuples. An option without a plain default is left to the config's own `validate`.
        default = known[name].default
        if isinstance(default, tuple) and isinstance(value, list):
            value = tuple(value)
        if isinstance(default, (bool, int, float, str, tuple)):
            kind = list if isinstance(default, tuple) else type(default)
            check_value(f"task {task!r}: option {name}", value, kind, {})
        own = known[name].default_factory
        if own is not MISSING and isinstance(choices := own(), list):
            # The default has all kinds of questions, and of unknown ones some tasks make others, silently.
            limits = {"choices": list(map(str.__str__, choices))} if name == "task_types" else {}
            check_value(f"task {task!r}: option {name}", value, list[str] if limits else list, limits)
        checked[name] = value
    # Upstream's `validate` asserts, and a wrong type may fail in its arithmetic: any exception is a refusal.
    try:
        config = config_class(**checked)
        if hasattr(config, "validate"):
            config.validate()
    except Exception as error:
        options_text = ", ".join(f"{name}={value!r}" for name, value in checked.items())
        raise ConfigError(f"task {task!r} refuses {options_text}: {describe(error)}") from error
    return checked
