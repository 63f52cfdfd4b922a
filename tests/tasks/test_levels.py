"""Levels: monotone scales between usable ends, fixed options that stay, and items that are pure functions of draws."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.dataset import ReasoningGymDataset
from rg_env.errors import ConfigError
from rg_env.scoring import Scorer
from rg_env.tasks import Item, task_names
from rg_env.tasks.draw import FIXED_COMPLEXITIES, Draw
from rg_env.tasks.levels import RECORD, Scale, attributes_of, samples, scale_of, seconds_of, why_cut
from rg_env.tasks.mix import TaskMix
from rg_env.tasks.registry import check_options

WITHOUT = ("acre", "gsm_symbolic", "list_functions")
"""Tasks without a curriculum in reasoning-gym."""
SCALED = tuple(task for task in task_names() if scale_of(task, {}))
SAMPLE = (
    "caesar_cipher", "chain_sum", "codeio", "countdown", "jugs", "kakurasu", "knights_knaves", "rubiks_cube",
    "spell_backward", "survo", "tower_of_hanoi", "zebra_puzzles",
)  # fmt: skip
"""Tasks with cut-off ends or a check of answers, whose items are made here; the script tries all tasks."""
LIMITS = {"num_digits": [0, 1]}
complexities = st.floats(0, 1)


def scale(task: str, **fixed: Any) -> Scale:
    found = scale_of(task, fixed)
    assert found is not None
    return found


# -- scales


def test_the_record_is_about_the_curricula_of_reasoning_gym() -> None:
    record = json.loads(RECORD.read_text())
    assert set(record) == {task for task in task_names() if attributes_of(task)} == set(task_names()) - set(WITHOUT)
    for task, found in record.items():
        if "unusable" in found:
            assert task not in SCALED and why_cut(task) == {"all": found["unusable"]}
            continue
        attributes = {part.name: len(part.values) for part in attributes_of(task)}
        assert found["levels"].keys() == attributes.keys(), task
        assert all(0 <= low <= high < attributes[name] for name, (low, high) in found["levels"].items()), task
        assert len(seconds_of(task)) == 3 and max(seconds_of(task)) <= 0.5, task
        whole = all(high - low + 1 == attributes[name] for name, (low, high) in found["levels"].items())
        assert whole == (not why_cut(task)), task


def test_the_page_lists_every_task_with_fewer_levels() -> None:
    page = (RECORD.parents[2] / "docs" / "difficulty.md").read_text()
    without, fewer = page.split("Tasks without levels")[1].split("Tasks with fewer levels")
    assert set(re.findall(r"`(\w+)`", without)) == set(task_names()) - set(SCALED)
    assert set(re.findall(r"`(\w+)`", fewer.split("\n\n")[0])) == {task for task in SCALED if why_cut(task)}


@pytest.mark.parametrize("task", SCALED)
def test_a_scale_is_monotone_from_its_lowest_to_its_highest_level(task: str) -> None:
    found = scale(task)
    assert found.level(0) == {part.name: part.low for part in found.attributes}
    assert found.level(1) == {part.name: part.high for part in found.attributes}
    steps = found.steps()
    assert steps[0] == 0 and steps[-1] <= 1
    levels = [tuple(found.level(c).values()) for c in steps]
    for before, after in pairwise(levels):
        assert before != after and all(a <= b for a, b in zip(before, after, strict=True))
    for c, following in zip(steps, [*steps[1:], 1.0001], strict=True):
        assert found.level(c) == found.level(round(following - 0.0001, 4)), "levels change at steps only"
    for c in steps:
        assert check_options(task, json.loads(json.dumps(found.options(c))))


@given(st.sampled_from(SCALED), complexities, complexities)
def test_more_complexity_never_lowers_a_level(task: str, one: float, other: float) -> None:
    low, high = (scale(task).level(c) for c in sorted((one, other)))
    assert all(low[name] <= high[name] for name in low)


@given(st.sampled_from(SCALED), st.data(), complexities)
def test_fixed_options_stay_and_their_attributes_do_not_move(task: str, data: st.DataObject, c: float) -> None:
    attribute = data.draw(st.sampled_from(attributes_of(task)))
    option = data.draw(st.sampled_from(sorted(attribute.values[0])))
    value = attribute.values[data.draw(st.integers(0, len(attribute.values) - 1))][option]
    found = scale_of(task, {option: value, "other": 1})
    if found is None:
        assert len(attributes_of(task)) == 1 or all(
            part.low == part.high for part in scale(task).attributes if part.name != attribute.name
        )
        return
    assert attribute.name not in found.level(c)
    assert found.options(c)[option] == value and found.options(c)["other"] == 1
    assert not (attribute.values[0].keys() - {option}) & found.options(c).keys()


@given(st.integers(0, 30), st.integers(0, 30))
def test_a_scale_within_bounds_has_exactly_the_usable_levels(one: int, other: int) -> None:
    whole = scale("chain_sum")
    steps = whole.steps()
    first, last = sorted((one % len(steps), other % len(steps)))
    if first > 0 and last < len(steps) - 1:
        last = len(steps) - 1  # unusable at one end
    usable = {tuple(whole.level(c).values()) for c in steps[first : last + 1]}
    found = whole.within(lambda c: tuple(whole.level(c).values()) in usable)
    if first == last:
        assert found is None
    else:
        assert found is not None
        assert (found.level(0), found.level(1)) == (whole.level(steps[first]), whole.level(steps[last]))


@pytest.mark.parametrize("task", SAMPLE)
def test_items_are_made_at_every_level(task: str) -> None:
    found = scale(task)
    for c in (0, 0.5, 1):
        assert any(isinstance(draw, dict) for draw in islice(samples(task, found.options(c)), 8)), c


# -- rows


@functools.cache
def dataset(*tasks: str, **options: Any) -> ReasoningGymDataset:
    return ReasoningGymDataset(list(tasks), **{"size": 200, "complexity_mode": "random", **options})


def test_a_row_has_the_level_of_its_complexity() -> None:
    rows = dataset("acre", "chain_sum")
    for index in range(40):
        draw, item = rows.draw(index), rows.item(index)
        assert rows[index] == rows[draw]
        assert (item.task, item.index, item.draw_probability) == (draw.task, index, 0.5)
        if item.task == "acre":
            assert (item.level, item.complexity, item.id) == ("", None, f"acre-train-42-{index}")
            continue
        level = scale("chain_sum").level(draw.complexity or 0)
        assert json.loads(item.level) == level and item.complexity == draw.complexity
        assert item.id == f"chain_sum-train-42-{index}@{draw.complexity:g}"
        terms = item.entry["metadata"]["difficulty"]["num_terms"]
        assert terms == (level["num_terms"] + 2,) * 2 and item.config is not None
        assert Item.from_extra_info(json.loads(json.dumps(item.extra_info()))) == item


def test_random_complexities_are_uniform() -> None:
    rows = ReasoningGymDataset(["chain_sum"], size=4000, complexity_mode="random")
    found = sorted(rows.draw(i).complexity or 0 for i in range(4000))
    assert all(abs(c - (k + 0.5) / 4000) < 0.03 for k, c in enumerate(found))  # Kolmogorov's distance, 1.9 σ


def test_without_a_complexity_mode_nothing_has_a_level() -> None:
    item = ReasoningGymDataset(["chain_sum"], size=1).item(0)
    assert (item.level, item.complexity, item.config, item.id) == ("", None, None, "chain_sum-train-42-0")


def test_stratified_batches_have_the_shares_of_the_mix() -> None:
    mix = {"gcd": 2, "chain_sum": 1, "lcm": 1}
    rows = ReasoningGymDataset(mix, size=60, stratify=6, complexity_mode="random")
    for start in range(0, 60, 6):
        batch = [rows.draw(start + place) for place in range(6)]
        names = [draw.task for draw in batch]
        assert names.count("gcd") == 3 and names.count("lcm") in (1, 2)
        assert {draw.probability for draw in batch if draw.task == "gcd"} == {0.5}


def test_a_curriculum_takes_draws_from_elsewhere() -> None:
    rows = dataset("chain_sum", complexity_mode="curriculum")
    with pytest.raises(ConfigError, match="depend on the policy"):
        rows.row(0)
    info = rows[Draw("chain_sum", 5, 0.3, 0.25, 7)][2]["extra_info"]
    assert (info["complexity"], info["draw_probability"], info["controller_version"]) == (0.3, 0.25, 7)
    assert info["item"] == "chain_sum-train-42-5@0.3"


def test_the_fixed_set_has_all_complexities_in_turn_and_different_questions() -> None:
    sets = [
        ReasoningGymDataset.fixed_eval(["acre", "knights_knaves", "gcd"], samples_per_task=12, complexity_mode=mode)
        for mode in ("random", "curriculum")
    ]
    items = [sets[0].item(i) for i in range(36)]
    assert [sets[1].item(i) for i in reversed(range(36))] == items[::-1]
    for item in items:
        expected = None if item.task == "acre" else FIXED_COMPLEXITIES[item.index % 5]
        assert item.complexity == expected
    assert len({item.id for item in items}) == len({(item.level, item.entry["question"]) for item in items}) == 36


def test_the_export_has_the_levels(tmp_path: Path) -> None:
    import polars as pl

    rows = dataset("acre", "chain_sum")
    rows.to_parquet(tmp_path / "rows.parquet", rows=30)
    read = pl.read_parquet(tmp_path / "rows.parquet")["extra_info"]
    assert [Item.from_extra_info(info) for info in read] == [rows.item(i) for i in range(30)]
    other = read.struct.unnest().to_pandas().to_dict("records")  # where a missing number is NaN
    assert Item.from_extra_info(other[0]) == rows.item(0) and any(
        info["complexity"] != info["complexity"] for info in other
    )


class Words:
    """A tokenizer: a word is a token."""

    def apply_chat_template(self, messages: Any, **_: Any) -> list[str]:
        return " ".join(message["content"] for message in messages).split()


def test_levels_whose_prompts_do_not_fit_are_cut_off() -> None:
    prompts = {"tokenizer": Words(), "system_prompt": None, "complexity_mode": "random"}
    rows = ReasoningGymDataset(["chain_sum", "acre"], size=60, max_prompt_length=22, **prompts)
    (cut,) = rows.scales.values()
    assert cut.task == "chain_sum" and cut.level(0)["num_terms"] == 0
    assert 0 < cut.level(1)["num_terms"] < 10
    fitting = ReasoningGymDataset(["chain_sum"], size=60, max_prompt_length=10_000, **prompts)
    assert fitting.scales["chain_sum"] == scale("chain_sum")
    assert all(
        len(Words().apply_chat_template(rows.row(i)["prompt"])) <= 22 for i in range(60) if rows.draw(i).complexity
    )


def test_levels_that_contradict_fixed_options_are_cut_off() -> None:
    rows = ReasoningGymDataset({"simple_equations": {"config": {"max_terms": 3}}}, size=9, complexity_mode="random")
    assert rows.scales["simple_equations"].level(1)["min_terms"] < scale("simple_equations").level(1)["min_terms"]
    assert all(rows.item(i).config["max_terms"] == 3 for i in range(9))  # type: ignore[index]


# -- answers


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(workers=1, timeout=30.0) as scorer:
        yield scorer


@pytest.mark.parametrize("task", sorted({*SAMPLE} - {"rubiks_cube"}))  # which has no stored answer
def test_the_stored_answer_of_every_level_scores_1(task: str, scorer: Scorer) -> None:
    rows = dataset(task, complexity_mode="curriculum")
    for c in (0.0, 0.5, 1.0):
        item = rows.item_of(Draw(task, 3, c))
        assert scorer.score_answer(item.entry, item.entry["answer"], item.config).score == 1.0, c


# -- the command


def run(*args: object) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_tasks_levels_as_json() -> None:
    found = json.loads(run("tasks", "--levels", "rubiks_cube", "--json").stdout)
    assert found["has_levels"] and "top" in found["cut"]
    size, steps = found["attributes"]
    assert (size["name"], size["lowest"], size["highest"]) == ("cube_size", 0, 3)
    assert size["levels"][0] == {"cube_size": 3} and len(steps["levels"]) == 4
    assert [sample["complexity"] for sample in found["samples"]] == [0, 0.5, 1]
    assert all(sample["question"] and 0 <= sample["seconds"] < 0.5 for sample in found["samples"])
    assert found["samples"][2]["options"]["max_scramble_steps"] == 100


def test_tasks_levels_for_people() -> None:
    shown = run("tasks", "--levels", "chain_sum").stdout
    assert "num_digits" in shown and "complexity 0.5: num_terms 5, num_digits 5" in shown and "question: State" in shown
    assert "acre has no levels and always has its default options" in run("tasks", "--levels", "acre").stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("tasks", "--levels", "chain_sun"), "did you mean chain_sum"),
        (("dataset", "--out", "x.parquet", "--sampling", "stratified"), "--batch-size"),
    ],
)
def test_what_cannot_be_is_one_line(args: tuple[str, ...], says: str) -> None:
    error = run(*args).exception
    assert isinstance(error, ConfigError)
    assert says in str(error) and "\n" not in str(error)


def test_an_export_with_levels(tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    arguments = ("--rows", 4, "--tasks", "gcd", "--complexity-mode", "random", "--sampling", "stratified")
    assert run("dataset", "--out", out, *arguments, "--batch-size", 2).exit_code == 0
    import polars as pl

    assert all(info["level"] for info in pl.read_parquet(out)["extra_info"])


class TestLevelsOfTheMix:
    def test_limits_are_the_ends_of_the_scale(self):
        (task,) = TaskMix.parse({"chain_sum": {"config": {"min_terms": 2, "max_terms": 2}, "levels": LIMITS}}).tasks
        assert task.scale.level(0) == {"num_digits": 0} and task.scale.level(1) == {"num_digits": 1}
        assert task.scale.options(1)["max_digits"] == 2

    @pytest.mark.parametrize(
        ("levels", "message"),
        [
            ({"num_digit": [0, 1]}, "did you mean num_digits"),
            ({"num_terms": [0, 1]}, "no attribute 'num_terms' that can be moved"),
            ({"num_digits": [0, 10]}, "0 <= lowest < highest <= 9"),
            ({"num_digits": [1, 1]}, "lowest < highest"),
            ({"num_digits": 1}, r"must be \[lowest, highest\]"),
            ({"num_digits": [0, True]}, r"must be \[lowest, highest\]"),
            ([0, 1], "must be a mapping of attributes"),
        ],
    )
    def test_wrong_limits_are_one_line(self, levels, message):
        with pytest.raises(ConfigError, match=message) as raised:
            TaskMix.parse({"chain_sum": {"config": {"min_terms": 2, "max_terms": 2}, "levels": levels}})
        assert "\n" not in str(raised.value)

    def test_limits_without_a_complexity_mode_are_refused(self):
        with pytest.raises(ConfigError, match="no effect without complexity_mode"):
            ReasoningGymDataset({"chain_sum": {"levels": LIMITS}})

    def test_rows_have_only_these_levels(self):
        dataset = ReasoningGymDataset({"chain_sum": {"levels": LIMITS}}, size=40, complexity_mode="random")
        assert {json.loads(dataset.item(index).level)["num_digits"] for index in range(40)} == {0, 1}
