"""The fixed evaluation set, made in the background."""

from __future__ import annotations

from typing import Any

import pytest

from rg_env.config import RGDumpConfig
from rg_env.dataset import ReasoningGymDataset, prompt_options
from rg_env.errors import ConfigError
from rg_env.eval_set import EvalSet
from rg_env.tasks import task_names
from rg_env.tasks.registry import known_to_work
from rg_env.tasks.upstream.dataset import UpstreamDataset

MIX = {"gcd": 2, "chain_sum": {"weight": 1, "config": {"max_terms": 3}}, "leg_counting": 1}


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


def test_tasks_that_cannot_be_used_are_left_out_with_a_warning(warnings: list[str]) -> None:
    made = EvalSet(config_of(["gcd", "rearc", "chain_sum"]), tokenizer=Characters(), max_prompt_length=260)
    assert [item.task for item in made.items] == ["chain_sum", "gcd"] * 4
    assert len(warnings) == 1
    assert "left out of the task mix: rearc (its prompts do not fit" in warnings[0]


def test_an_error_while_the_set_is_made_is_raised_and_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("too many open files")

    with monkeypatch.context() as failing:
        failing.setattr(UpstreamDataset, "make", fail)
        with pytest.raises(OSError, match="too many open files"):
            EvalSet(config_of()).wait()
    assert len(EvalSet(config_of())) == 12


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


@pytest.mark.long
def test_tasks_that_are_known_to_work_have_items_in_both_splits() -> None:
    tasks = {task: 1 for task in task_names() if known_to_work(task)}
    assert len(tasks) >= 100
    for split in ("train", "eval"):
        dataset = ReasoningGymDataset(tasks, split=split, samples_per_task=1)
        assert {dataset.item(index).task for index in range(len(dataset))} == set(tasks)
