"""The fixed evaluation set: the same items however it is made, and the cache."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rg_env import eval_set
from rg_env.config import RGDumpConfig
from rg_env.cpu import nano_path
from rg_env.dataset import ReasoningGymDataset, prompt_options
from rg_env.errors import ConfigError
from rg_env.eval_set import EvalSet, cache_path
from rg_env.tasks import TaskMix, task_names
from rg_env.tasks.registry import known_to_work

MIX = {"gcd": 2, "chain_sum": {"weight": 1, "config": {"max_terms": 3}}, "leg_counting": 1}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "rg_env"


@pytest.fixture
def in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eval_set, "_FEW_TASKS", 0)


@pytest.fixture
def in_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eval_set, "_WORTH_KEEPING", -1.0)


class Characters:
    """A tokenizer of characters."""

    chat_template = "{{ messages }}"

    def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> str:
        return "".join(message["content"] for message in messages)


def config_of(tasks: Any = MIX, **settings: Any) -> RGDumpConfig:
    return RGDumpConfig(tasks=tasks, num_eval_samples_per_task=4, **settings)


def made_one_by_one(config: RGDumpConfig, **limits: Any) -> ReasoningGymDataset:
    samples = config.num_eval_samples_per_task
    options = prompt_options(config, **limits)
    return ReasoningGymDataset.fixed_eval(config.tasks, seed=config.eval_seed, samples_per_task=samples, **options)


@pytest.mark.parametrize("mode", [None, "random"])
def test_the_items_and_rows_are_those_of_the_dataset(mode: str | None) -> None:
    config = config_of(complexity_mode=mode)
    made, dataset = EvalSet(config), made_one_by_one(config)
    assert list(made.items) == [dataset.item(index) for index in range(12)]
    assert [made[index] for index in range(len(made))] == dataset[:]
    assert made.collate_fn([made[3]]) == dataset.collate_fn([dataset[3]])


@pytest.mark.usefixtures("in_processes")
def test_other_processes_make_the_same_items_and_drop_the_same_tasks(warnings: list[str]) -> None:
    config = config_of(["gcd", "rearc", "chain_sum"])
    limits = {"tokenizer": Characters(), "max_prompt_length": 260}
    dataset = made_one_by_one(config, **limits)
    dropped = warnings.copy()
    made = EvalSet(config, **limits)
    assert list(made.items) == [dataset.item(index) for index in range(8)]
    assert [task.name for task in made.mix.tasks] == ["chain_sum", "gcd"]
    assert len(dropped) == 1
    assert warnings == dropped * 2


@pytest.mark.usefixtures("in_processes")
def test_without_other_processes_this_one_makes_the_items(monkeypatch: pytest.MonkeyPatch, warnings: list[str]) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert len(EvalSet(config_of())) == 12
    assert warnings == ["the evaluation set is made in one process, because others failed: no message"]


def test_an_unusable_set_is_one_clear_line() -> None:
    limits = {"tokenizer": Characters(), "max_prompt_length": 5}
    with pytest.raises(ConfigError, match=r"task 'chain_sum' with \{'max_terms': 3\}: its prompts do not fit"):
        EvalSet(config_of(), **limits).wait()
    with pytest.raises(ConfigError, match=r"no task can be used: gcd \(its prompts do not fit max_prompt_length=5"):
        EvalSet(config_of(["gcd"]), **limits).wait()
    with pytest.raises(ConfigError, match="unknown task"):
        EvalSet(config_of(["gdc"]))
    with pytest.raises(ConfigError, match="has no effect without complexity_mode"):
        EvalSet(config_of({"gcd": {"levels": {"num_terms": [0, 1]}}}))


@pytest.mark.usefixtures("in_cache")
def test_a_cached_set_is_not_made_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = EvalSet(config_of()).items
    monkeypatch.setattr(eval_set, "outcome_of", lambda *_: pytest.fail("made again"))
    assert EvalSet(config_of()).items == first
    (file,) = cache.iterdir()
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    for damaged in (b"", b"[]", b"{}", b'{"gcd": {"items": []}}', file.read_bytes()[:-9]):
        file.write_bytes(damaged)
        assert EvalSet(config_of()).items == first


@pytest.mark.usefixtures("in_cache")
def test_a_cache_that_cannot_be_written_is_ignored(cache: Path) -> None:
    cache.write_text("not a folder")
    assert len(EvalSet(config_of())) == 12


def test_what_items_depend_on_has_its_own_file() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    other = AutoTokenizer.from_pretrained(nano_path())
    other.chat_template = "{{ messages }}"

    def path(tasks: Any = MIX, **options: Any) -> Path | None:
        given = {"seed": 1, "samples_per_task": 2, "complexity_mode": None} | options
        return cache_path(TaskMix.parse(tasks).tasks, given)

    def limited(**options: Any) -> Path | None:
        return path(tokenizer=tokenizer, max_prompt_length=9, **options)

    different = [
        path(),
        path(seed=2),
        path(samples_per_task=3),
        path(complexity_mode="random"),
        path({"gcd": 1}),
        path({"gcd": {"config": {"max_numbers": 3}}}),
        limited(),
        limited(system_prompt="Think about it."),
        limited(chat_template_kwargs={"opened": True}),
        path(tokenizer=tokenizer, max_prompt_length=10),
        path(tokenizer=other, max_prompt_length=9),
    ]
    assert len(set(different)) == len(different)
    assert None not in different
    assert path(MIX | {"gcd": 9}) == path() == path(system_prompt="Think about it.")
    assert path(tokenizer=Characters(), max_prompt_length=9) is None


def test_tasks_of_users_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    assert known_to_work("gcd")
    monkeypatch.setattr("rg_env.tasks.registry.AUDITED_TASKS", frozenset(["chain_sum"]))
    mix = TaskMix.parse(["gcd", "chain_sum"])
    assert cache_path(mix.tasks, {"seed": 1, "samples_per_task": 2, "complexity_mode": None}) is None


@pytest.mark.long
def test_tasks_that_are_known_to_work_have_items_in_both_splits() -> None:
    tasks = {task: 1 for task in task_names() if known_to_work(task)}
    assert len(tasks) >= 100
    for split in ("train", "eval"):
        dataset = ReasoningGymDataset(tasks, split=split, samples_per_task=1)
        assert {dataset.item(index).task for index in range(len(dataset))} == set(tasks)
