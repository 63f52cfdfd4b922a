"""An item's id names one question: in rows, evaluation sets, the server and `rg-env score`."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rg_env.base.errors import ConfigError
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.rows.eval_set import EvalSet
from rg_env.rows.item_source import item_of_id
from rg_env.scoring import Scorer
from rg_env.serve.desk import Desk, find_item
from rg_env.tasks import task_names
from rg_env.tasks.item import Item, ItemId
from tests.cli.test_cli import invoke

TASKS = ["chain_sum", "coin_flip", "aiw", "calendar_arithmetic", "gcd", "tower_of_hanoi"]
"""The questions of half of them repeat soon."""
COMPLEXITIES = [None, 0, 0.5, 1, 1e-5, 1 / 3, "random"]


class Characters:
    """A tokenizer of characters."""

    def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> str:
        return "".join(message["content"] for message in messages)


def check_ids(items: Iterable[Item]) -> None:
    for item in items:
        named = item_of_id(item.id)
        assert named is not None, item.id
        assert (named.entry_json, named.config_json) == (item.entry_json, item.config_json), item.id
        assert item_of_id(f"run:train:7:{item.id}#3#12") == named


@pytest.mark.parametrize("complexity", COMPLEXITIES)
def test_an_id_names_the_question_of_the_set_that_it_is_from(complexity: Any) -> None:
    fixed = EvalSet(TASKS, samples_per_task=12, complexity=complexity).items
    check_ids(fixed)
    rows = ReasoningGymDataset(TASKS, complexity=complexity)
    check_ids(rows.item(index) for index in range(40))


def test_an_id_names_the_question_that_a_prompt_limit_put_there() -> None:
    limits: dict[str, Any] = {"tokenizer": Characters(), "max_prompt_length": 90, "system_prompt": None}
    rows = ReasoningGymDataset(["chain_sum"], format="lenient", **limits)
    items = [rows.item(index) for index in range(60)]
    assert any(item.index != index for index, item in enumerate(items)), "no item has taken the place of another"
    check_ids(items)
    check_ids(EvalSet(["chain_sum"], samples_per_task=20, format="lenient", **limits).items)


def test_the_server_and_the_command_line_take_an_id_for_the_same_question() -> None:
    desk = Desk(Scorer())  # starts no processes before it scores
    for complexity in (None, 1e-5, "random"):
        for item in EvalSet(["coin_flip", "chain_sum"], samples_per_task=6, complexity=complexity).items:
            packed = asyncio.run(find_item(desk, item.id)).entry
            assert pickle.loads(packed.content) == item.entry
    shown = json.loads(invoke("score", item.id, "--json").stdout)
    assert (shown["item"], shown["question"]) == (item.id, item.entry["question"])


def test_options_of_its_own_give_an_item_another_id() -> None:
    plain = ReasoningGymDataset(["gcd"]).item(0)
    ids = {plain.id}
    for options in ({"max_numbers": 3}, {"max_numbers": 4}):
        ids.add(ReasoningGymDataset({"gcd": {"config": options}}).item(0).id)
    assert len(ids) == 3
    with pytest.raises(ConfigError, match="its run gave gcd options of its own, which an id does not carry"):
        item_of_id(max(ids, key=len))


@given(
    task=st.sampled_from(task_names()),
    split=st.sampled_from(["train", "eval"]),
    seed=st.integers(0, 2**63 - 1),
    number=st.integers(0, 2**63 - 1),
    complexity=st.none() | st.floats(0, 1),
    options=st.sampled_from(["", "0123abcd"]),
)
def test_an_id_is_read_as_it_was_written(**parts: Any) -> None:
    written = ItemId(**parts)
    assert ItemId.parse(str(written)) == written
    assert ItemId.parse(f"run:eval:3:{written}#17") == written


@pytest.mark.parametrize(
    "text",
    ["", "gcd", "gcd-train-1", "gcd-test-1-1", "gcd-train-42-" + "9" * 5000, "gcd-train-1-1@2e-5", "gcd-train-٤-1"],
)
def test_other_texts_are_no_ids(text: str) -> None:
    assert ItemId.parse(text) is None
