"""The fixed evaluation set: made once, in parallel, and kept in the user's cache folder.

Invariant: the items are those of `ReasoningGymDataset.fixed_eval`. The name of a file in the cache is a digest of all
that they depend on: tasks, seed, prompt limit and tokenizer, the code of rg_env and the versions of other packages.
Tasks from a user's module are never in the cache. A file that is missing or damaged is ignored, and so is a failure to
write one.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson
import platformdirs
from loguru import logger

from rg_env.atomic import replacing
from rg_env.config import RGDumpConfig
from rg_env.dataset import Example, PromptBuilder, collate, prompt_options
from rg_env.errors import ConfigError, one_line
from rg_env.eval_maker import Outcome, outcome_of
from rg_env.tasks import Item, TaskMix, TaskSpec
from rg_env.tasks.registry import known_to_work

_FEW_TASKS = 8
"""Up to so many tasks are tried in this process; starting others would take longer."""
_WORTH_KEEPING = 1.0
"""A set that is made in less time than this, in seconds, is not cached."""
_CACHES_KEPT = 20
_SOURCES = ("tasks", "dataset.py", "prompts.py", "eval_maker.py", "eval_set.py")
"""Code on which the items depend."""


@dataclass(frozen=True)
class _Made:
    mix: TaskMix
    items: Sequence[Item]


class EvalSet:
    """The items of the fixed evaluation set and their prompts.

    The constructor starts to make them in the background; whoever asks for them waits.

    Args:
        config: tasks, seed, size, complexity mode and prompt.
        limits: as in `rg_env.dataset.prompt_options`.

    Raises:
        ConfigError: wrong settings. Later, when something is asked for: no task can be used.
    """

    def __init__(self, config: RGDumpConfig, **limits: Any) -> None:
        shaping = prompt_options(config, **limits)
        prompts = ("system_prompt", "worked_examples", "format", "tokenizer", "chat_template_kwargs")
        self._prompts = PromptBuilder.of(**{name: shaping[name] for name in prompts if name in shaping})
        self._requested = TaskMix.parse(config.tasks)
        if config.complexity_mode is None:
            self._requested.refuse_levels()
        self._options = {"seed": config.eval_seed, "samples_per_task": config.num_eval_samples_per_task, **shaping}
        self._future: Future[_Made] = Future()
        threading.Thread(target=self._run, name="rg-eval-set", daemon=True).start()

    def wait(self) -> None:
        """Wait until all items are made.

        Raises:
            ConfigError: no task can be used, or one that is named with options cannot.
        """
        self._future.result()

    @property
    def mix(self) -> TaskMix:
        """The requested tasks without those that cannot be used."""
        return self._future.result().mix

    @property
    def items(self) -> Sequence[Item]:
        """All items, one of each task in turn."""
        return self._future.result().items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Example:
        return self._prompts.example(self.items[index])

    def collate_fn(self, examples: Iterable[Example]) -> list[dict[str, Any]]:
        """A batch in the form that SkyRL's trainer expects."""
        return collate(examples)

    def _run(self) -> None:
        try:
            self._future.set_result(self._make())
        except BaseException as error:
            self._future.set_exception(error)

    def _make(self) -> _Made:
        tasks = self._requested.tasks
        path = cache_path(tasks, self._options)
        outcomes = _load(path, tasks)
        if outcomes is None:
            start = perf_counter()
            outcomes = self._make_in_processes() if len(tasks) > _FEW_TASKS else None
            outcomes = outcomes or {task.name: outcome_of(task, self._options) for task in tasks}
            if path is not None and perf_counter() - start > _WORTH_KEEPING:
                _store(path, outcomes)
        mix = self._requested.keep(functools.partial(_refuse_unusable, outcomes))
        made = [[Item.from_extra_info(info) for info in outcomes[task.name]["items"]] for task in mix.tasks]
        items = [item for group in zip(*made, strict=True) for item in group]
        return _Made(mix, [replace(item, draw_probability=1 / len(mix.tasks)) for item in items])

    def _make_in_processes(self) -> dict[str, Outcome] | None:
        """The outcome of each task; None if the processes failed."""
        job = pickle.dumps((self._requested.tasks, self._options))
        command = [sys.executable, "-m", "rg_env.eval_maker"]
        # The thread that starts the process waits for it, because the process ends with the thread.
        done = subprocess.run(command, input=job, capture_output=True, check=False)
        if done.returncode == 0:
            outcomes: dict[str, Outcome] = orjson.loads(done.stdout)
            return outcomes
        reason = one_line((done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1])
        logger.warning("the evaluation set is made in one process, because others failed: {}", reason)
        return None


def _refuse_unusable(outcomes: Mapping[str, Outcome], task: TaskSpec) -> None:
    if "error" in (outcome := outcomes[task.name]):
        raise ConfigError(outcome["error"])


def cache_path(tasks: Sequence[TaskSpec], options: Mapping[str, Any]) -> Path | None:
    """Where a set is cached; None if not all that it depends on is known.

    Args:
        options: of `ReasoningGymDataset.fixed_eval`.
    """
    counting = _counting(options)
    if counting is None or not all(known_to_work(task.name) for task in tasks):
        return None
    mix = [[task.name, sorted(task.options.items()), sorted(task.levels.items())] for task in tasks]
    sizes = [options[name] for name in ("seed", "samples_per_task", "complexity_mode")]
    parts = json.dumps([sys.version, _packages(), _sources(), mix, sizes, counting], default=str)
    digest = hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()
    return platformdirs.user_cache_path("rg_env", appauthor=False) / f"eval-{digest}.json"


def _counting(options: Mapping[str, Any]) -> list[Any] | None:
    """What the lengths of prompts depend on; empty without a limit, None if the tokenizer cannot be described."""
    if options.get("max_prompt_length") is None:
        return []
    tokenizer = options["tokenizer"]
    try:
        described = [tokenizer.backend_tokenizer.to_str(), tokenizer.chat_template, tokenizer.init_kwargs]
    except AttributeError:
        return None
    digest = hashlib.blake2b(json.dumps(described, default=str).encode()).hexdigest()
    names = ("max_prompt_length", "system_prompt", "worked_examples", "chat_template_kwargs")
    return [type(tokenizer).__qualname__, digest, *(options.get(name) for name in names)]


@functools.cache
def _packages() -> dict[str, str]:
    """The versions of Reasoning Gym, of what it imports, and of what counts tokens."""
    needed = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in importlib.metadata.requires("reasoning-gym") or ()]
    versions = {}
    for name in ("reasoning-gym", "transformers", "tokenizers", "numpy", *needed):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


@functools.cache
def _sources() -> str:
    """A digest of the code of rg_env that makes items."""
    digest = hashlib.blake2b(digest_size=16)
    folder = Path(__file__).parent
    for name in _SOURCES:
        for file in sorted([folder / name, *folder.joinpath(name).rglob("*")]):
            if file.suffix in (".py", ".json"):
                digest.update(file.read_bytes())
    return digest.hexdigest()


def _load(path: Path | None, tasks: Sequence[TaskSpec]) -> dict[str, Outcome] | None:
    if path is None:
        return None
    with suppress(OSError, ValueError):
        outcomes = orjson.loads(path.read_bytes())
        if isinstance(outcomes, dict) and outcomes.keys() == {task.name for task in tasks}:
            path.touch()
            return outcomes
    return None


def _store(path: Path, outcomes: Mapping[str, Outcome]) -> None:
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path) as draft:
            draft.write_bytes(orjson.dumps(outcomes))
        by_age = sorted(path.parent.glob("eval-*.json"), key=lambda file: file.stat().st_mtime)
        for old in by_age[:-_CACHES_KEPT]:
            old.unlink()
