"""The fixed evaluation set, made in the background."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rg_env.base.errors import ConfigError
from rg_env.configuration.config import RGDumpConfig
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.rows.eval_set import EvalSet
from rg_env.tasks import Split, split_of
from rg_env.tasks.soundness import AUDITED_TASKS
from rg_env.tasks.upstream.patched_dataset import UpstreamDataset

MIX = {"tower_of_hanoi": 9, "gcd": {"weight": 1, "config": {"max_numbers": 3}}, "coin_flip": 1}


class Characters:
    """A tokenizer of characters."""

    def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> str:
        return "".join(message["content"] for message in messages)


def test_different_questions_of_every_task_in_turn_whatever_the_weights() -> None:
    config = RGDumpConfig(tasks=MIX, num_eval_samples_per_task=4)
    made = EvalSet.of(config)
    assert len(made) == 12
    assert [item.task for item in made.items] == ["coin_flip", "gcd", "tower_of_hanoi"] * 4
    assert all(split_of(item.task, item.entry["question"]) is Split.EVAL for item in made.items)
    assert len({item.entry["question"] for item in made.items}) == 12
    assert re.fullmatch(r"gcd~[0-9a-f]{8}-eval-123-1", made.items[4].id)
    assert EvalSet(MIX | {"tower_of_hanoi": 1}, samples_per_task=2).items == made.items[:6]


def test_its_rows_are_those_of_a_dataset() -> None:
    made = EvalSet(["gcd"])
    assert made.is_made(seconds=100)
    assert made.progress == "5 of 5 questions"
    messages, env_class, extras, uid = made[3]
    assert (uid, env_class, messages[-1]["content"]) == ("gcd-eval-123-3", "rg_dump", made.items[3].entry["question"])
    assert made.row(3).keys() == ReasoningGymDataset(["gcd"]).row(0).keys()
    assert made.collate_fn([made[3]])[0]["env_extras"] == extras
    assert made[1:3] == [made[1], made[2]]


def test_an_error_while_the_set_is_made_is_raised_and_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("too many open files")

    with monkeypatch.context() as failing:
        failing.setattr(UpstreamDataset, "make", fail)
        with pytest.raises(OSError, match="too many open files"):
            _ = EvalSet(MIX).items
    assert len(EvalSet(MIX)) == 15


def test_an_unusable_set_is_one_clear_line() -> None:
    limits: dict[str, Any] = {"tokenizer": Characters(), "max_prompt_length": 5}
    with pytest.raises(ConfigError, match=r"task 'gcd' with \{'max_numbers': 3\}: its prompts do not fit"):
        _ = EvalSet(MIX, **limits).items
    with pytest.raises(ConfigError, match="unknown task"):
        EvalSet(["gdc"])
    with pytest.raises(ConfigError, match="samples_per_task=0: must be"):
        EvalSet(["gcd"], samples_per_task=0)


@pytest.mark.long
def test_audited_tasks_have_items_in_both_splits() -> None:
    for task in sorted(AUDITED_TASKS):
        for split in ("train", "eval"):
            assert ReasoningGymDataset([task], split=split, size=1).item(0).split == split
