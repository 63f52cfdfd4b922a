"""Levels: monotone scales between usable ends, fixed options that stay, and rows at the complexity that they say."""

from __future__ import annotations

import functools
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loguru import logger
from typer.testing import CliRunner

from rg_env.base.errors import ConfigError
from rg_env.cli import app
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.rows.eval_set import EvalSet
from rg_env.rows.item_source import FIXED_COMPLEXITIES
from rg_env.scoring import Scorer
from rg_env.tasks import Item, ItemStream, Split, task_names
from rg_env.tasks.levels import RECORD, Scale, attributes_of, scale_of, seconds_of, why_cut
from rg_env.tasks.registry import check_options
from rg_env.tasks.upstream.patched_dataset import UpstreamDataset

WITHOUT = ("acre", "gsm_symbolic", "list_functions")
"""Tasks without a curriculum in reasoning-gym."""
SCALED = tuple(task for task in task_names() if scale_of(task, {}))
SAMPLE = (
    "caesar_cipher", "chain_sum", "codeio", "countdown", "jugs", "kakurasu", "knights_knaves", "spell_backward",
    "survo", "word_ladder", "zebra_puzzles",
)  # fmt: skip
"""Tasks with cut-off ends or a check of answers, whose items are made here; the script tries all tasks."""


def scale(task: str, **fixed: Any) -> Scale:
    found = scale_of(task, fixed)
    assert found is not None
    return found


# -- scales


def test_the_record_is_about_the_curricula_of_reasoning_gym() -> None:
    record = json.loads(RECORD.read_text())
    assert set(record) == {task for task in task_names() if attributes_of(task)} == set(task_names()) - set(WITHOUT)
    for task, entry in record.items():
        if "unusable" in entry:
            assert task not in SCALED and why_cut(task)["all"] == entry["unusable"]
            assert ("options" in entry) == ("defaults" in why_cut(task)), task
            continue
        attributes = {attribute.name: len(attribute.values) for attribute in attributes_of(task)}
        moved = entry["levels"].keys()
        assert moved == attributes.keys() or (moved < attributes.keys() and "options" in entry), task
        assert all(0 <= low <= high < attributes[name] for name, (low, high) in entry["levels"].items()), task
        assert len(seconds_of(task)) == 3 and max(seconds_of(task)) <= 0.5, task
        whole = "options" not in entry and entry["levels"].keys() == attributes.keys()
        whole = whole and all(high - low + 1 == attributes[name] for name, (low, high) in entry["levels"].items())
        assert whole == (not why_cut(task)), task


def test_options_of_the_record_hold_until_a_mix_gives_others() -> None:
    rows = [ReasoningGymDataset({"rotten_oranges": {"config": own}}, size=1).item(0) for own in ({}, {"max_n": 12})]
    assert [row.config for row in rows] == [{"p_oranges": 0.95, "p_rotten": 0.02}, {"max_n": 12}]
    assert scale("largest_island").options(0)["min_rows"] == 25
    assert scale("rotten_oranges").options(1) == {"p_oranges": 0.95, "p_rotten": 0.02, "min_n": 100, "max_n": 100}
    assert scale("rotten_oranges", p_oranges=0.9).options(0) == {"p_oranges": 0.9, "min_n": 10, "max_n": 10}


def test_a_scale_is_monotone_from_its_lowest_to_its_highest_level() -> None:
    for task in SCALED:
        found = scale(task)
        assert found.level(0) == {attribute.name: attribute.low for attribute in found.attributes}
        assert found.level(1) == {attribute.name: attribute.high for attribute in found.attributes}
        steps = [found.level(step / 100) for step in range(101)]
        assert all(before[name] <= after[name] for before, after in pairwise(steps) for name in before), task
        assert steps[0] != steps[-1], task
        for c in FIXED_COMPLEXITIES:
            assert check_options(task, json.loads(json.dumps(found.options(c))))


@given(st.sampled_from(SCALED), st.data(), st.floats(0, 1))
def test_fixed_options_stay_and_their_attributes_do_not_move(task: str, data: st.DataObject, c: float) -> None:
    attribute = data.draw(st.sampled_from(attributes_of(task)))
    option = data.draw(st.sampled_from(sorted(attribute.values[0])))
    value = attribute.values[data.draw(st.integers(0, len(attribute.values) - 1))][option]
    found = scale_of(task, {option: value, "other": 1})
    if found is None:
        assert all(other.low == other.high or other.name == attribute.name for other in scale(task).attributes)
        return
    assert attribute.name not in found.level(c)
    assert found.options(c)[option] == value and found.options(c)["other"] == 1
    assert not (attribute.values[0].keys() - {option}) & found.options(c).keys()


# -- rows


@functools.cache
def dataset(*tasks: str, complexity: float | str | None = "random") -> ReasoningGymDataset:
    return ReasoningGymDataset(list(tasks), size=4000, complexity=complexity)


@pytest.mark.parametrize("complexity", ["random", 0.7, 1])
def test_a_row_has_the_level_of_its_complexity(complexity: float | str) -> None:
    rows = dataset("acre", "chain_sum", complexity=complexity)
    for index in range(40):
        item = rows.item(index)
        if item.task == "acre":
            assert (item.level, item.complexity, item.id) == ("", None, f"acre-train-42-{index}")
            continue
        assert item.complexity is not None and complexity in ("random", item.complexity)
        level = scale("chain_sum").level(item.complexity)
        assert json.loads(item.level) == level
        assert item.id == f"chain_sum-train-42-{index}@{item.complexity:g}"
        terms = item.entry["metadata"]["difficulty"]["num_terms"]
        assert terms == (level["num_terms"] + 2,) * 2 and item.config is not None
        assert Item.from_extra_info(json.loads(json.dumps(item.extra_info()))) == item


def test_random_complexities_are_uniform_and_by_default_there_are_none() -> None:
    rows = dataset("chain_sum")
    drawn = sorted(rows.item(index).complexity or 0 for index in range(1000))
    assert all(abs(c - (k + 0.5) / 1000) < 0.06 for k, c in enumerate(drawn))  # Kolmogorov's distance, 1.9 σ
    item = dataset("chain_sum", complexity=None).item(0)
    assert (item.level, item.complexity, item.config, item.id) == ("", None, None, "chain_sum-train-42-0")


def test_the_fixed_set_has_all_complexities_in_turn_and_different_questions() -> None:
    items = EvalSet(["acre", "knights_knaves", "gcd"], samples_per_task=12, complexity="random").items
    for place, item in enumerate(items):
        assert item.complexity == (None if item.task == "acre" else FIXED_COMPLEXITIES[place // 3 % 5])
    assert len({item.id for item in items}) == len({(item.level, item.entry["question"]) for item in items}) == 36
    assert {item.complexity for item in EvalSet(["acre", "gcd"], complexity=0.4).items} == {None, 0.4}


def test_the_export_has_the_levels(tmp_path: Path) -> None:
    rows = dataset("acre", "chain_sum")
    rows.to_parquet(tmp_path / "rows.parquet", rows=30)
    read = pl.read_parquet(tmp_path / "rows.parquet")["extra_info"]
    assert [Item.from_extra_info(info) for info in read] == [rows.item(i) for i in range(30)]
    with_nan = read.struct.unnest().to_pandas().to_dict("records")  # where a missing number is NaN
    assert [Item.from_extra_info(info) for info in with_nan] == [rows.item(i) for i in range(30)]


class Words:
    """A tokenizer: a word is a token."""

    def apply_chat_template(self, messages: Any, **_: Any) -> list[str]:
        return " ".join(message["content"] for message in messages).split()


LIMIT: dict[str, Any] = {"tokenizer": Words(), "system_prompt": None, "max_prompt_length": 22}


def test_a_complexity_whose_prompts_do_not_fit_is_redrawn_and_recorded() -> None:
    rows = ReasoningGymDataset(["chain_sum", "acre"], size=60, complexity="random", **LIMIT)
    assert [task.name for task in rows.mix.tasks] == ["chain_sum"]
    items = [rows.item(index) for index in range(60)]
    assert all(len(Words().apply_chat_template(rows.row(index)["prompt"])) <= 22 for index in range(60))
    assert len({item.complexity for item in items}) > 40, "not all at c = 0"
    assert 0 < max(item.complexity or 0 for item in items) < 0.8
    for item in items:
        assert json.loads(item.level) == scale("chain_sum").level(item.complexity or 0)
        assert item.entry["metadata"]["difficulty"]["num_terms"][0] == json.loads(item.level)["num_terms"] + 2
    questions = EvalSet(["chain_sum"], complexity="random", **LIMIT).items
    assert {item.complexity for item in questions} < set(FIXED_COMPLEXITIES)
    with pytest.raises(ConfigError, match="its prompts do not fit max_prompt_length=22"):
        ReasoningGymDataset(["chain_sum"], complexity=1, **LIMIT)


def test_a_level_that_fails_is_said_once_and_never_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    make = UpstreamDataset.make

    def fail(dataset: UpstreamDataset, seed: int, item: str) -> dict[str, Any]:
        if dataset.options["max_terms"] > 4:
            raise ValueError("too many terms")
        return make(dataset, seed, item)

    monkeypatch.setattr(UpstreamDataset, "make", fail)
    lines: list[str] = []
    sink = logger.add(lines.append, format="{message}", level="INFO")
    rows = ReasoningGymDataset(["chain_sum"], size=12, complexity="random")
    items = [rows.item(index) for index in range(12)]
    logger.remove(sink)
    assert all(item.entry["metadata"]["difficulty"]["num_terms"][0] <= 4 for item in items)
    assert all(json.loads(item.level) == scale("chain_sum").level(item.complexity or 0) for item in items)
    assert len({item.complexity for item in items}) > 6, "not all at c = 0"
    said = [line for line in lines if "get another one: it cannot make an item: ValueError: too many terms" in line]
    levels = {str(scale("chain_sum").level(float(line.split()[5]))) for line in said}
    assert said and len(said) == len(levels), "a line for each level"


def test_levels_that_contradict_fixed_options_are_redrawn() -> None:
    rows = ReasoningGymDataset({"simple_equations": {"config": {"max_terms": 3}}}, size=30, complexity="random")
    assert all(rows.item(i).config["max_terms"] == 3 for i in range(30))  # type: ignore[index]
    assert max(rows.item(i).complexity or 0 for i in range(30)) < 0.9


@pytest.mark.parametrize(
    ("tasks", "complexity", "message"),
    [
        (["gcd"], "curriculum", "complexity='curriculum': must be null, random or a number"),
        (["gcd"], 1.5, "complexity=1.5: must be"),
        (["gcd"], True, "complexity=true: must be"),
        (["acre"], 0.5, "complexity=0.5: no task of the mix has levels"),
    ],
)
def test_an_impossible_complexity_is_one_line(tasks: list[str], complexity: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        ReasoningGymDataset(tasks, complexity=complexity)
    assert "\n" not in str(raised.value)


# -- answers


def test_the_stored_answer_of_every_level_scores_1() -> None:
    with Scorer(workers=1, timeout=30.0) as scorer:
        for task in SAMPLE:
            for c in (0, 0.5, 1):
                options = scale(task).options(c)
                entry = ItemStream(task, options, 0, Split.TRAIN).item(0).entry
                assert scorer.score_answer(entry, entry["answer"], options).score == 1.0, (task, c)


# -- the command


def run(*args: object) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_tasks_levels_as_json() -> None:
    shown = json.loads(run("tasks", "--levels", "rubiks_cube", "--json").stdout)
    assert shown["has_levels"] and "top" in shown["cut"]
    size, steps = shown["attributes"]
    assert (size["name"], size["lowest"], size["highest"]) == ("cube_size", 0, 3)
    assert size["levels"][0] == {"cube_size": 3} and len(steps["levels"]) == 4
    assert [sample["complexity"] for sample in shown["samples"]] == [0, 0.5, 1]
    assert all(sample["question"] and 0 <= sample["seconds"] < 0.5 for sample in shown["samples"])
    assert shown["samples"][2]["options"]["max_scramble_steps"] == 100


def test_tasks_levels_for_people() -> None:
    shown = run("tasks", "--levels", "chain_sum").stdout
    assert "num_digits" in shown and "complexity 0.5: num_terms 5, num_digits 5" in shown and "question: State" in shown
    assert "acre has no levels and always has its default options" in run("tasks", "--levels", "acre").stdout
    assert "did you mean chain_sum" in str(run("tasks", "--levels", "chain_sun").exception)


def test_an_export_with_levels(tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    arguments = ("--rows", 4, "--tasks", "gcd", "--complexity", 0.5, "--split", "eval")
    assert run("dataset", "--out", out, *arguments).exit_code == 0
    rows = pl.read_parquet(out)["extra_info"]
    assert len(rows) == 4 and all(info["level"] for info in rows)
    assert "must be null, random or a number" in str(
        run("dataset", "--out", f"{out}.parquet", "--complexity", "x").exception
    )
