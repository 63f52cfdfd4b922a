"""Suites: fixed sets of questions with a prompt and a response format, so that results can be compared.

Invariant: two suites have the same fingerprint exactly if they have the same questions, in any order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from loguru import logger

from rg_env.choices import ResponseFormat
from rg_env.config import RGDumpConfig
from rg_env.errors import ConfigError, did_you_mean, need, need_number, one_line
from rg_env.eval_set import EvalSet
from rg_env.prompts import resolve_system_prompt
from rg_env.suites.items import SuiteTask
from rg_env.tasks import Item, hash64

FIXED = "fixed"
BUILT_IN = (FIXED, "rg_easy", "rg_hard")
_KEYS = {"tasks", "size", "seed", "system_prompt", "format"}


class Fingerprint:
    """A fingerprint of a set of questions, added one by one."""

    def __init__(self) -> None:
        self._sum = 0
        self.questions = 0

    @classmethod
    def of(cls, items: Iterable[Item]) -> Fingerprint:
        found = cls()
        for item in items:
            found.add(item.task, item.entry["question"])
        return found

    def add(self, task: str, question: str) -> None:
        self._sum = (self._sum + hash64("suite", task, question)) % 2**64
        self.questions += 1

    def __str__(self) -> str:
        return hashlib.blake2b(f"{self.questions} {self._sum}".encode(), digest_size=8).hexdigest()

    def as_manifest(self, name: str) -> dict[str, Any]:
        """The manifest's `suite`."""
        return {"name": name, "fingerprint": str(self), "questions": self.questions}


@dataclass(frozen=True)
class Suite:
    """A set of questions.

    Attributes:
        name: of the built-in suite, or of the file without its ending.
        system_prompt: the text, or None.
        format: what a response must look like.
        make: makes the items, in order.
        tasks: as given in the suite's file; empty for `fixed`.
    """

    name: str
    system_prompt: str | None
    format: ResponseFormat
    make: Callable[[], Iterable[Item]]
    tasks: tuple[SuiteTask, ...] = ()

    def items(self) -> Iterator[Item]:
        """The items, made one by one and the same on every call, without those that Reasoning Gym cannot make.

        Raises:
            ConfigError: Reasoning Gym cannot make any item of a task.
        """
        return iter(self.make())

    @cached_property
    def _fingerprint(self) -> Fingerprint:
        return Fingerprint.of(self.items())

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that are the same for the same questions. Makes all items on first use."""
        return str(self._fingerprint)

    def as_manifest(self) -> dict[str, Any]:
        """What a run's manifest has as `suite`. Makes all items on first use."""
        return self._fingerprint.as_manifest(self.name)


def load_suite(name_or_path: str | Path, config: RGDumpConfig | None = None, **limits: Any) -> Suite:
    """Load a suite.

    Args:
        name_or_path: `fixed`, `rg_easy`, `rg_hard`, or the path of a YAML file (docs/collect.md).
        config: tasks, seed, size, prompt and format of `fixed`; None: the default settings. Other suites ignore it.
        limits: of the prompts of `fixed`, as in `rg_env.dataset.prompt_options`. Other suites have none.

    Raises:
        ConfigError: there is no such suite, or its file is wrong.
    """
    name = str(name_or_path)
    if name == FIXED:
        return _fixed(config or RGDumpConfig(), limits)
    if name in BUILT_IN:
        return _parse(name, resources.files("rg_env.suites").joinpath(f"{name}.yaml").read_text())
    path = Path(name_or_path).expanduser()
    if path.suffix not in (".yaml", ".yml"):
        known = f"use {', '.join(BUILT_IN)} or the path of a YAML file"
        raise ConfigError(f"unknown suite {name!r}{did_you_mean(name, BUILT_IN, known)}")
    try:
        return _parse(path.stem, path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"suite {name} cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _fixed(config: RGDumpConfig, limits: Mapping[str, Any]) -> Suite:
    made = EvalSet.of(config, **limits)
    return Suite(
        FIXED,
        resolve_system_prompt(config.system_prompt),
        ResponseFormat(config.format),
        lambda: made.items,
    )


def _parse(name: str, text: str, source: str = "") -> Suite:
    where = f"suite {source or name}"
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not YAML: {one_line(error, 200)}") from None
    if not isinstance(content, dict) or not content.get("tasks"):
        raise ConfigError(f"{where} has no `tasks`: list tasks, or map each to its options")
    if unknown := next((key for key in content if key not in _KEYS), None):
        hint = did_you_mean(str(unknown), _KEYS, f"it has {', '.join(sorted(_KEYS))}")
        raise ConfigError(f"{where} has no setting {unknown!r}{hint}")
    size, seed = content.get("size", 50), content.get("seed", 45)
    need_number("size", size, whole=True, at_least=1)
    need_number("seed", seed, whole=True, at_least=0)
    format = content.get("format", ResponseFormat.STRICT)
    need(format in list(ResponseFormat), "format", format, f"must be one of {', '.join(ResponseFormat)}")
    prompt = content.get("system_prompt", "think_answer")
    need(prompt is None or isinstance(prompt, str), "system_prompt", prompt, "must be a name, a text or null")
    try:
        tasks = tuple(_task(task, options, size, seed) for task, options in _entries(content["tasks"]))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return Suite(
        name,
        resolve_system_prompt(prompt),
        ResponseFormat(format),
        lambda: (item for task in tasks for item in _items_of(task)),
        tasks,
    )


def _items_of(task: SuiteTask) -> Iterator[Item]:
    """The items of a task that can be made; a warning says how many cannot."""
    failures = []
    for index in range(len(task)):
        try:
            yield task.item(index)
        except ConfigError as error:
            failures.append(error)
    if len(failures) == len(task):
        raise failures[0]
    if failures:
        logger.warning("{} of {} items of {} are left out: {}", len(failures), len(task), task.name, failures[0])


def _entries(tasks: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tasks, Mapping):
        yield from tasks.items()
    elif isinstance(tasks, list):
        yield from ((task, {}) for task in tasks)
    else:
        raise ConfigError("`tasks` must be a list of tasks, or map each to its options")


def _task(name: Any, options: Any, size: int, seed: int) -> SuiteTask:
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(f"task {name!r} must have options as a mapping, such as {{size: 50, min_terms: 2}}")
    options = dict(options or {})
    return SuiteTask(str(name), options, size=options.pop("size", size), seed=options.pop("seed", seed))
