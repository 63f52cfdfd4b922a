"""The task mix: the tasks that a run draws from, and how often.

A spec is None (the default mix, see `rg_env.tasks.soundness.in_default_mix`), a list of selectors, or a mapping of
selectors to a weight or to `{weight: …, config: {option: value}}`. A selector is a task's name, `category:NAME`, or a
pattern such as `*_sum`; with `{file: {path: …}}`, it is the name of a file of your own questions.

Invariant: a parsed mix has at least one task, each task once, only positive weights and only options that the task has.
Tasks are sorted by name, so equal mixes written differently draw equal rows.

If several entries select a task, an exact name wins, otherwise the last entry. The winner alone decides: weight and
options are not merged. Weight 0 excludes a task. Categories and patterns skip unsound tasks; naming one exactly
includes it, with a warning.
"""

from __future__ import annotations

import bisect
import fnmatch
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from loguru import logger

from rg_env.base.errors import ConfigError, describe, did_you_mean, need_number
from rg_env.configuration.config import PREFIX
from rg_env.configuration.setting_names import is_group
from rg_env.configuration.settings import load_yaml, read_file
from rg_env.tasks.question_file import QuestionFile, parse_file
from rg_env.tasks.registry import check_name, check_options, task_categories
from rg_env.tasks.soundness import AUDITED_TASKS, Soundness, in_default_mix, reason_for, soundness_of

Progress = Callable[[int, int], object]
"""Told how much is done, and of how much."""
_CATEGORY = "category:"
_FORMS = "a list of names, `category:NAME` or patterns, or a mapping of those to a weight or {weight, config, file}"
_OWN_NAME = re.compile(r"[A-Za-z]\w{0,63}", re.ASCII)
"""Names that a file of questions may have: they are parts of ids and of metrics."""


def no_progress(done: int, total: int) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class TaskSpec:
    """One task of a mix.

    Attributes:
        weight: above 0, relative to the other weights.
        options: fields of the task's config that differ from its defaults.
        named: True when the spec named it exactly, not by category or pattern.
        file: where its questions are, if they are not Reasoning Gym's.
    """

    name: str
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    named: bool = False
    file: QuestionFile | None = None


@dataclass(frozen=True)
class TaskMix:
    """A random choice of tasks by weight. Make one with `parse`."""

    tasks: tuple[TaskSpec, ...]

    @classmethod
    def parse(cls, spec: Any = None) -> TaskMix:
        """Read a spec: plain lists and dicts (as from `OmegaConf.to_container`), a text from a command line, or a mix.

        A text is names separated by commas (`chain_sum,category:logic`), a list or mapping in YAML or JSON, or the path
        of a recipe (`….yaml`) with the mix.

        Raises:
            ConfigError: unknown task, category or option, a pattern that matches nothing, options that the task
                refuses, weights that are not numbers, are negative or sum to 0.
        """
        if isinstance(spec, cls):
            return spec
        spec = read_spec(spec)
        if spec is None:
            return cls(tuple(TaskSpec(name) for name in task_categories() if in_default_mix(name)))
        # All names before any options, so that a wrong name is reported first.
        selections = [_select(entry) for entry in _entries(spec)]
        chosen: dict[str, TaskSpec] = {}
        for entry, names, is_exact in selections:
            for name in names:
                # An exact name wins over all patterns, wherever they stand; between equals the later one does.
                if is_exact or name not in chosen or not chosen[name].named:
                    options = {} if entry.file else check_options(name, entry.options)
                    chosen[name] = TaskSpec(name, entry.weight, options, named=is_exact, file=entry.file)
        if not chosen:
            raise ConfigError("tasks names no task: leave it out for the default mix, or name some (`rg-env tasks`)")
        # Sorted, so that equal mixes written in another order draw the same rows.
        kept = sorted((task for task in chosen.values() if task.weight > 0), key=lambda task: task.name)
        if not kept:
            raise ConfigError("tasks: the weights sum to 0; give at least one task a weight above 0")
        # With an infinite sum, `pick` would take the last task.
        if math.isinf(sum(task.weight for task in kept)):
            raise ConfigError("tasks: the sum of the weights is too large; divide all of them by the same number")
        for task in kept:
            if task.file is None and soundness_of(task.name) is Soundness.UNSOUND:
                warn_of_unsound(task.name)
        return cls(tuple(kept))

    def pick(self, number: int) -> TaskSpec:
        """Return the task that a uniformly random 64-bit number selects: probability weight(t) / sum of weights."""
        bounds = self._bounds
        position = bisect.bisect_right(bounds, number / 2**64 * bounds[-1])
        return self.tasks[min(position, len(self.tasks) - 1)]  # the largest numbers are rounded up to 2⁶⁴

    def keep(self, try_task: Callable[[TaskSpec], object], progress: Progress = no_progress) -> TaskMix:
        """Return the tasks for which `try_task` does not raise; the others are dropped, with one line for all of them.

        Args:
            progress: told how many tasks have been tried, and of how many.

        Raises:
            ConfigError: for a task that was named with options, or if no task is left.
        """
        kept: list[TaskSpec] = []
        dropped: list[str] = []
        last: Exception | None = None
        for number, task in enumerate(self.tasks):
            progress(number, len(self.tasks))
            try:
                try_task(task)
            except (OSError, MemoryError):  # not the task's fault
                raise
            except Exception as error:
                # A file of questions is the user's own wish, as is a task with options: neither is dropped.
                if task.file is not None:
                    raise
                reason = str(error) if isinstance(error, ConfigError) else describe(error)
                if task.named and task.options:
                    raise ConfigError(f"task {task.name!r} with {dict(task.options)}: {reason}") from error
                dropped.append(f"{task.name} ({reason})")
                last = error
            else:
                kept.append(task)
        if not kept:
            raise ConfigError(f"no task can be used: {_shorten(dropped)}") from last
        if dropped:
            _say_left_out(len(self.tasks), tuple(dropped))
        return TaskMix(tuple(kept))

    @property
    def files(self) -> dict[str, QuestionFile]:
        """The files of questions, by the names that they have in the mix."""
        return {task.name: task.file for task in self.tasks if task.file is not None}

    def of_file(self, name: str) -> TaskMix | None:
        """Return the file of questions of this name alone; None if there is none."""
        tasks = tuple(task for task in self.tasks if task.name == name and task.file is not None)
        return TaskMix(tasks) if tasks else None

    @functools.cached_property
    def _bounds(self) -> list[float]:
        return list(itertools.accumulate(task.weight for task in self.tasks))


def read_spec(spec: Any) -> Any:
    """Return a spec of a mix, which `TaskMix.parse` takes also as a text, in lists and mappings. Raises ConfigError."""
    if isinstance(spec, str):
        return _read_text(spec)
    return spec


def _read_recipe(path: Path) -> Any:
    """Return the task mix of a recipe."""
    settings = read_file(path.expanduser(), lambda name: not is_group(name))
    name = f"{PREFIX}.tasks"
    if name not in settings:
        raise ConfigError(f"{path}: has no {name}")
    return settings[name]


def _read_text(text: str) -> Any:
    if text.endswith((".yaml", ".yml")):
        return _read_recipe(Path(text))
    # Names separated by commas are not read as YAML, in which `*_sum` is an alias.
    if text.lstrip().startswith(("{", "[")) or ": " in text or "\n" in text:
        try:
            return load_yaml(text)
        except Exception as error:
            problem = getattr(error, "problem", None) or "not YAML"
            raise ConfigError(f"tasks={text!r} cannot be read ({problem}); put patterns with a * in quotes") from error
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if len(words := name.split()) > 1:
            raise ConfigError(f"tasks={text!r}: names are separated by commas: {','.join(words)}")
    return names


def _entries(spec: Any) -> Iterable[TaskSpec]:
    """Yield the entries in order, each with its selector as the name."""
    if isinstance(spec, Mapping):
        pairs = list(spec.items())
    elif isinstance(spec, Sequence) and not isinstance(spec, (str, bytes)):
        pairs = [(selector, 1.0) for selector in spec]
    else:
        raise ConfigError(f"tasks={spec!r}: must be {_FORMS}")
    # A plain value is the weight; YAML reads unquoted names such as `on` as something else than text.
    for selector, value in pairs:
        if isinstance(selector, Mapping):
            raise ConfigError(f"tasks: {selector!r} is not a task; leave out the dashes, and write {{name: weight, …}}")
        if not isinstance(selector, str) or not selector.isprintable():
            raise ConfigError(f"tasks: {selector!r} is not a task; must be {_FORMS}")
        if not isinstance(value, Mapping):
            value = {"weight": value}
        if unknown := sorted(set(map(str, value)) - {"weight", "config", "file"}):
            takes = "it takes `weight`, `config` and `file`"
            raise ConfigError(f"tasks.{selector}: unknown key {unknown[0]!r}; {takes}")
        options = value.get("config") or {}
        if not isinstance(options, Mapping):
            raise ConfigError(f"tasks.{selector}.config={options!r}: must be a mapping of options to values")
        weight = value.get("weight", 1.0)
        need_number(f"tasks.{selector}: weight", weight, at_least=0)
        file = None
        if value.get("file") is not None:
            _check_own_name(selector, options)
            file = parse_file(selector, value["file"])
        yield TaskSpec(selector, float(weight), options, file=file)


def _check_own_name(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a name of a file of questions that means something else, or that ids and metrics cannot have."""
    if name in AUDITED_TASKS:
        raise ConfigError(f"tasks.{name}: is a task of Reasoning Gym; give the file another name")
    if not _OWN_NAME.fullmatch(name):
        raise ConfigError(f"tasks: {name!r} cannot be the name of a file; use letters, digits and _")
    if options:
        raise ConfigError(f"tasks.{name}: a file of questions takes no `config`")


class _Selection(NamedTuple):
    """The tasks that the selector of an entry matches, and whether it is an exact name."""

    entry: TaskSpec
    names: list[str]
    is_exact: bool


def _select(entry: TaskSpec) -> _Selection:
    selector = entry.name
    if entry.file is not None:
        return _Selection(entry, [selector], is_exact=True)
    if not selector.startswith(_CATEGORY) and not any(sign in selector for sign in "*?["):
        check_name(selector)
        return _Selection(entry, [selector], is_exact=True)
    categories = task_categories()
    if selector.startswith(_CATEGORY):
        category = selector.removeprefix(_CATEGORY)
        existing = sorted(set(categories.values()))
        if category not in existing:
            hint = did_you_mean(category, existing, f"there are {', '.join(existing)}")
            raise ConfigError(f"unknown category {category!r}{hint}")
        matching = [name for name in categories if categories[name] == category]
    else:
        matching = fnmatch.filter(categories, selector)
        if not matching:
            raise ConfigError(f"tasks: the pattern {selector!r} matches no task; `rg-env tasks` lists them")
    # A pattern does not count as choosing a task whose scores cannot be trusted.
    sound = [name for name in matching if soundness_of(name) is not Soundness.UNSOUND]
    if not sound:
        raise ConfigError(
            f"tasks: {selector!r} matches only tasks whose scores cannot be trusted ({_shorten(matching)}); "
            "name them exactly to use them anyway"
        )
    return _Selection(entry, sound, is_exact=False)


def _shorten(parts: Sequence[str], limit: int = 4) -> str:
    shown = ", ".join(parts[:limit])
    if len(parts) > limit:
        return f"{shown} and {len(parts) - limit} more"
    return shown


@functools.cache  # once per process, however many datasets have the same mix
def _say_left_out(tasks: int, dropped: tuple[str, ...]) -> None:
    logger.warning("{} of {} tasks left out of the mix: {}", len(dropped), tasks, _shorten(dropped, 2))
    # One short line on the terminal; all reasons in the log.
    if len(dropped) > 2:
        logger.info("left out of the mix: {}", ", ".join(dropped))


@functools.cache
def warn_of_unsound(name: str) -> None:
    logger.warning("task {}: its score cannot be trusted: {}", name, reason_for(name))
