"""What a run without training asks: rows of a dataset, or a suite, which is a fixed set of questions.

A suite has a prompt and a response format of its own, so that results can be compared. Invariant: two suites have the
same fingerprint exactly if they have the same questions, in any order.
"""

from __future__ import annotations

import decimal
import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from loguru import logger

from rg_env.base.choices import ResponseFormat, Split
from rg_env.base.errors import ConfigError, describe, did_you_mean, need, need_number, one_line
from rg_env.configuration.config import RGDumpConfig
from rg_env.configuration.settings import load_yaml
from rg_env.evaluate.eval_settings import OF_A_SUITE
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.rows.eval_set import EvalSet
from rg_env.rows.prompts import Message, Prompts, resolve_system_prompt
from rg_env.tasks import Item, encode_entry, hash64
from rg_env.tasks.question_rows import read_rows
from rg_env.tasks.registry import check_name, check_options, task_categories
from rg_env.tasks.upstream.generators import FIXES
from rg_env.tasks.upstream.patched_dataset import COMPUTED_AT_CREATION, reasoning_gym
from rg_env.tasks.upstream.slow_draws import watched

FIXED = "fixed"
BUILT_IN = ("rg_easy", "rg_hard")
_NOTE_SECONDS = 0.5
_KEYS = {"tasks", "size", "seed", "system_prompt", "format"}


@dataclass(frozen=True, slots=True)
class Question:
    """An item and its prompt."""

    item: Item
    messages: list[Message]


@dataclass(frozen=True)
class Questions:
    """A sequence of questions, made when they are asked.

    Attributes:
        facts: what determines them, as JSON; two runs with equal facts have the same questions.
        make: makes one by its number, from 0. Thread-safe.
    """

    facts: Mapping[str, Any]
    number: int
    make: Callable[[int], Question]

    def __len__(self) -> int:
        return self.number


def train_questions(config: RGDumpConfig, groups: int) -> Questions:
    """Return the first `groups` questions of the train split.

    Raises:
        ConfigError: no task can be used.
    """
    dataset = ReasoningGymDataset.train_of(config, groups)

    def make(index: int) -> Question:
        row = dataset.row(index)
        return Question(Item.from_extra_info(row["extra_info"]), row["prompt"])

    facts = {"split": "train", "seed": config.seed, "tasks": config.tasks}
    files = dataset.mix.files
    if files:  # their names stay the same when their rows are edited
        facts["files"] = {name: read_rows(name, file, Split.TRAIN).sha256 for name, file in files.items()}
    return Questions(facts, len(dataset), make)


def suite_questions(
    name: str,
    config: RGDumpConfig,
    count: int | None = None,
    *,
    note: Callable[[str], None] = lambda progress: None,
    **limits: Any,
) -> Questions:
    """Return the questions of a suite; sets the settings that the suite determines, `OF_A_SUITE`.

    Args:
        name: `fixed`, or as of `load_suite`.
        count: take only this many of its questions, evenly over tasks and categories; None: all.
        note: called from time to time with a progress message.
        limits: of the prompts of `fixed`, as in `rg_env.rows.dataset.prompt_options`.

    Raises:
        ConfigError: there is no such suite, or it cannot be made.
    """
    if name == FIXED:
        fixed = _fixed_items(config, count, note, **limits)
        items, size, left_out = iter(fixed.items), fixed.size, fixed.left_out
        advice = f"; num_eval_samples_per_task={config.num_eval_samples_per_task} says how many of each task"
    else:
        suite = load_suite(name)
        name, size, left_out, advice, items = suite.name, suite.size, 0, "", suite.items()
        if count is not None:
            items = _evenly({task.name: task.items() for task in suite.tasks}, count)
        # Those of a configuration determine nothing here, and the manifest would have them.
        defaults = RGDumpConfig()
        for setting in OF_A_SUITE:
            setattr(config, setting, getattr(defaults, setting))
        config.format, config.system_prompt = suite.format.value, suite.system_prompt
    label = name
    if count is not None:
        need(count <= size, "--items", count, f"the suite has {size} questions{advice}")
        if count != size:
            label = f"{name}, {count:,} of {size:,} questions"
    # All are made now, because the fingerprint is that of all questions.
    asked: list[Item] = []
    for item in items:
        asked.append(item)
        note(f"{len(asked):,} of {count or size:,} questions")
    need(count is None or len(asked) == count, "--items", count, f"only {len(asked)} questions can be made")
    prompts = Prompts.of(config)

    def make(index: int) -> Question:
        item = asked[index]
        return Question(item, prompts.messages(item.task, item.entry["question"]))

    # With the label: `--resume` compares these facts, and `evaluate.resumption` names what differs.
    facts = suite_facts(label, ((item.task, item.entry["question"]) for item in asked))
    # A part of the set is what somebody asked for, and lacks nothing.
    if left_out and count is None:
        facts["left_out"] = left_out
    return Questions({"suite": facts}, len(asked), make)


def _fixed_items(config: RGDumpConfig, count: int | None, note: Callable[[str], None], **limits: Any) -> EvalSet:
    """Return the fixed evaluation set, or a part of it, whose items are made in a thread."""

    def choose(sizes: Mapping[str, int]) -> list[str]:
        return list(_evenly({task: iter([task] * size) for task, size in sizes.items()}, count or 0))

    fixed = EvalSet.of(config, choose if count is not None else None, **limits)
    while not fixed.is_made(_NOTE_SECONDS):
        note(fixed.progress)
    return fixed


def _evenly[T](by_task: Mapping[str, Iterator[T]], count: int) -> Iterator[T]:
    """Yield the first items of each task, one of each in turn, up to `count`."""
    left = [by_task[task] for task in _spread(list(by_task))]
    while left:
        for items in list(left):
            if count == 0:
                return
            item = next(items, None)
            if item is None:
                left.remove(items)
            else:
                count -= 1
                yield item


def _spread(tasks: Sequence[str]) -> list[str]:
    """Return the tasks so that a prefix has each category in proportion to its number of tasks, rounded up: the first
    tasks are one of each. In another order, `--items` would ask other questions, and `--resume` refuse runs that began
    before.

    >>> _spread(["complex_arithmetic", "polynomial_equations", "gcd", "lcm", "chain_sum", "fraction_simplification"])
    ['complex_arithmetic', 'gcd', 'lcm', 'polynomial_equations', 'chain_sum', 'fraction_simplification']
    """
    categories = task_categories()
    # A file of questions is in no category of Reasoning Gym: each is one by itself.
    category_of = {task: categories.get(task, f"file {task}") for task in tasks}
    sizes = Counter(category_of.values())
    seen: Counter[str] = Counter()
    places: dict[str, float] = {}
    for task in tasks:
        category = category_of[task]
        # How much of its category comes before a task: sorted by that, every category is spread evenly.
        places[task] = seen[category] / sizes[category]
        seen[category] += 1
    return sorted(tasks, key=lambda task: places[task])


def suite_facts(name: str, questions: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the manifest's `suite`: name, number of questions, and their fingerprint, which does not depend on their
    order.

    Args:
        questions: of each, the task and the text.
    """
    hashes = [hash64("suite", task, text) for task, text in questions]
    # A sum, because it is the same in any order.
    fingerprint = hashlib.blake2b(f"{len(hashes)} {sum(hashes) % 2**64}".encode(), digest_size=8).hexdigest()
    return {"name": name, "fingerprint": fingerprint, "questions": len(hashes)}


@dataclass(frozen=True)
class Suite:
    """A set of questions.

    Attributes:
        name: of the built-in suite, or of the file without its ending.
        system_prompt: the text, or None.
        format: what a response must look like.
    """

    name: str
    system_prompt: str | None
    format: ResponseFormat
    tasks: tuple[SuiteTask, ...]

    @property
    def size(self) -> int:
        """The number of its items, with those that Reasoning Gym cannot make."""
        return sum(task.size for task in self.tasks)

    def items(self) -> Iterator[Item]:
        """Yield the items, made one by one. Raises as `SuiteTask.items`."""
        for task in self.tasks:
            yield from task.items()


def load_suite(name_or_path: str | Path) -> Suite:
    """Load a suite.

    Args:
        name_or_path: `rg_easy`, `rg_hard`, or the path of a YAML file (docs/collect.md).

    Raises:
        ConfigError: there is no such suite, or its file is wrong.
    """
    name, path = str(name_or_path), Path(name_or_path).expanduser()
    if name in BUILT_IN:
        return _parse(name, resources.files("rg_env.evaluate").joinpath(f"{name}.yaml").read_text(), name)
    if path.suffix not in (".yaml", ".yml"):
        known = (FIXED, *BUILT_IN)
        if "," in name:
            raise ConfigError(f"--suite={name!r}: an evaluation has one suite; run the command once for each")
        hint = did_you_mean(name, known, f"use {', '.join(known)}, or the path of a YAML file")
        raise ConfigError(f"unknown suite {name!r}{hint}")
    try:
        return _parse(path.stem, path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"suite {name} cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _parse(name: str, text: str, source: str) -> Suite:
    try:
        content = load_yaml(text)
    except Exception as error:
        raise ConfigError(f"suite {source} is not YAML: {one_line(error, 200)}") from None
    try:
        tasks = content.get("tasks") if isinstance(content, dict) else None
        if not tasks or not isinstance(tasks, (list, dict)):
            raise ConfigError("`tasks` must be a list of tasks, or map each to its options")
        if unknown := next((key for key in content if key not in _KEYS), None):
            hint = did_you_mean(str(unknown), _KEYS, f"it has {', '.join(sorted(_KEYS))}")
            raise ConfigError(f"there is no setting {unknown!r}{hint}")
        format, prompt = content.get("format", "strict"), content.get("system_prompt", "think_answer")
        need(format in list(ResponseFormat), "format", format, f"must be one of {', '.join(ResponseFormat)}")
        need(prompt is None or isinstance(prompt, str), "system_prompt", prompt, "must be a name, a text or null")
        options = tasks if isinstance(tasks, dict) else dict.fromkeys(map(str, tasks))
        size, seed = content.get("size", 50), content.get("seed", 45)
        parsed = tuple(_task(str(task), options[task], size, seed) for task in options)
        return Suite(name, resolve_system_prompt(prompt), ResponseFormat(format), parsed)
    except ConfigError as error:
        raise ConfigError(f"suite {source}: {error}") from None


def _task(name: str, options: Any, size: Any, seed: Any) -> SuiteTask:
    if options is not None and not isinstance(options, dict):
        raise ConfigError(f"task {name!r} must have options as a mapping, such as {{size: 50, min_terms: 2}}")
    options = dict(options or {})
    return SuiteTask(name, options, size=options.pop("size", size), seed=options.pop("seed", seed))


class SuiteTask:
    """Items as Reasoning Gym's own evaluations make them: `create_dataset(task, size=…, seed=…, **options)[index]`.

    Unlike those of `rg_env.tasks.items`, they belong to no split and nothing is redrawn, so that questions are those of
    upstream's evaluations. Generators that read more than their seed are made reproducible
    (`rg_env.tasks.upstream.generators`); their questions may differ from published ones. Thread-safe.

    Args:
        name: the task.
        options: fields of its config.
        size: number of items, at least 1.
        seed: of the dataset, at least 0.

    Raises:
        ConfigError: the task or an option does not exist, or the task refuses the options.
    """

    def __init__(self, name: str, options: Mapping[str, Any], size: int, seed: int) -> None:
        check_name(name)
        need_number(f"{name}.size", size, whole=True, at_least=1)
        need_number(f"{name}.seed", seed, whole=True, at_least=0, below=2**63)
        self.name, self.size, self.seed = name, size, seed
        self.options = check_options(name, options)
        # These tasks draw all of their items when they are created, so the size decides which items they are.
        scope = self.options | ({"size": size} if name in COMPUTED_AT_CREATION else {})
        if scope:
            self._id = f"{name}-{hash64(encode_entry(scope)):016x}-{seed}"
        else:
            self._id = f"{name}-default-{seed}"
        self._dataset: Any = None
        self._lock = threading.Lock()

    def items(self) -> Iterator[Item]:
        """Yield the items, made one by one. Those that Reasoning Gym cannot make are left out with a warning.

        Raises:
            ConfigError: Reasoning Gym cannot make any.
        """
        failures = []
        for index in range(self.size):
            try:
                item = self.item(index)
            except ConfigError as error:
                failures.append(error)
            else:
                yield item
        if len(failures) == self.size:
            raise failures[0]
        if failures:
            logger.warning("{} of {} items of {} are left out: {}", len(failures), self.size, self.name, failures[0])

    def item(self, index: int) -> Item:
        """Return an item.

        Args:
            index: in [0, size).

        Raises:
            ConfigError: upstream cannot make it.
        """
        # A fresh context: decimal_arithmetic changes the precision of the current one.
        with self._lock, watched(self.name, f"{self._id}-{index}"), decimal.localcontext(decimal.Context()):
            try:
                entry = dict(self._create()[index])
                # In case the dataset leaves it out: the scorer is found by it.
                entry["metadata"] = {"source_dataset": self.name, **entry["metadata"]}
                entry_json = encode_entry(entry)
            except Exception as error:
                raise ConfigError(f"task {self.name!r} cannot make item {index}: {describe(error)}") from error
        return Item(
            id=f"{self._id}-{index}",
            task=self.name,
            split=Split.EVAL.value,
            index=index,
            seed=self.seed,
            entry=entry,
            entry_json=entry_json,
            config=self.options or None,
            config_json=encode_entry(self.options),
        )

    def _create(self) -> Any:
        if self._dataset is None:
            dataset = reasoning_gym().create_dataset(self.name, **self.options, size=self.size, seed=self.seed)
            FIXES.get(self.name, lambda _: None)(dataset)
            self._dataset = dataset
        return self._dataset
