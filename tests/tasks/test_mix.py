"""The task mix: the meaning of a spec, refusals, and the choice by weight."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rg_env.base.errors import ConfigError
from rg_env.tasks import KNOWN_UNSOUND, OFTEN_FREE, TaskMix, TaskSpec, hash64, task_categories, task_names
from rg_env.tasks.mix import warn_of_unsound


@pytest.fixture(autouse=True)
def first_warning() -> None:
    warn_of_unsound.cache_clear()


def weights(spec: Any) -> dict[str, float]:
    return {task.name: task.weight for task in TaskMix.parse(spec).tasks}


def test_the_default_mix_is_every_sound_task_whose_answers_are_not_often_free(warnings: list[str]) -> None:
    assert set(weights(None)) == set(task_names()) - set(KNOWN_UNSOUND) - set(OFTEN_FREE)
    assert set(weights(None).values()) == {1.0}
    assert warnings == []


@pytest.mark.parametrize(
    "spec",
    [
        ["leg_counting", "chain_sum"],
        ["chain_sum", "leg_counting", "chain_sum"],
        "chain_sum,leg_counting",
        " chain_sum , leg_counting ",
        "[chain_sum, leg_counting]",
        '["chain_sum", "leg_counting"]',
        '{"chain_sum": 1, "leg_counting": 1.0}',
        "chain_sum: 1\nleg_counting: {weight: 1}",
        {"chain_sum": {"weight": 1, "config": {}}, "leg_counting": {"config": None}},
    ],
)
def test_forms_of_a_spec(spec: Any) -> None:
    assert weights(spec) == {"chain_sum": 1.0, "leg_counting": 1.0}


def test_categories_and_patterns() -> None:
    assert TaskMix.parse("gcd,chain_sum") == TaskMix.parse("chain_sum,gcd")
    assert set(weights(["category:induction"])) == set(weights("category:induction")) == {"acre", "list_functions"}
    assert set(weights(["*_sum"])) == {"chain_sum", "decimal_chain_sum"}
    assert set(weights({"category:induction": 1, "acre": 0})) == {"list_functions"}
    for category in set(task_categories().values()):
        assert weights([f"category:{category}"])


def test_the_exact_name_wins_wherever_it_stands() -> None:
    exact = {"config": {"min_terms": 3}, "weight": 5}
    for spec in ({"chain_sum": exact, "*_sum": 2}, {"*_sum": 2, "chain_sum": exact}):
        assert weights(spec) == {"chain_sum": 5.0, "decimal_chain_sum": 2.0}
        assert TaskMix.parse(spec).tasks[0].options == {"min_terms": 3}


def test_among_patterns_and_categories_the_later_wins() -> None:
    assert weights({"category:arithmetic": 1, "*_sum": 3})["chain_sum"] == 3.0
    assert weights({"*_sum": 3, "category:arithmetic": 1})["chain_sum"] == 1.0
    mix = TaskMix.parse({"*_sum": {"config": {"min_terms": 3}}})
    assert [dict(task.options) for task in mix.tasks] == [{"min_terms": 3}] * 2


def test_unsound_tasks_come_in_by_exact_name_only_and_with_one_warning(warnings: list[str]) -> None:
    assert "propositional_logic" not in weights(["category:logic"])
    assert "propositional_logic" not in weights(["p*"])
    assert warnings == []
    for _ in range(2):
        assert weights(["propositional_logic", "gcd"]) == {"gcd": 1.0, "propositional_logic": 1.0}
    (warning,) = warnings
    assert warning.startswith("task propositional_logic: its score cannot be trusted: ")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (["chain_sums"], r"unknown task 'chain_sums'; did you mean chain_sum"),
        (["category:game"], r"unknown category 'game'; did you mean games"),
        (["category:zzz"], r"unknown category 'zzz'; there are algebra, algorithmic, "),
        (["zzz*"], r"the pattern 'zzz\*' matches no task"),
        (["prop*"], r"matches only tasks whose scores cannot be trusted \(propositional_logic\); name them exactly"),
        ({"chain_sum": {"config": {"min_terms": 0}}}, r"refuses min_terms=0: min_terms must be positive"),
        ({"chain_sum": {"config": 5}}, r"tasks.chain_sum.config=5: must be a mapping"),
        (
            {"chain_sum": {"wieght": 5}},
            r"tasks.chain_sum: unknown key 'wieght'; it takes `weight`, `config` and `file`",
        ),
        ({"chain_sum": -1}, r"tasks.chain_sum: weight=-1: must be a number of at least 0"),
        ({"chain_sum": float("nan")}, r"weight=nan: must be"),
        ({"chain_sum": float("inf")}, r"weight=inf: must be"),
        ({"chain_sum": "2"}, r"weight='2': must be"),
        ({"chain_sum": 1e308, "gcd": 1e308}, r"the sum of the weights is too large"),
        ({"chain_sum": None}, r"weight=null: must be"),
        ({"chain_sum": True}, r"weight=true: must be"),
        ({"chain_sum": 0, "gcd": 0}, r"the weights sum to 0"),
        ([], r"names no task"),
        ("", r"names no task"),
        ({}, r"names no task"),
        (5, r"tasks=5: must be a list of names"),
        ([5], r"5 is not a task"),
        ([{"chain_sum": 1}], r"\{'chain_sum': 1\} is not a task"),
        ("{gcd: 1, gcd: 2}", r"cannot be read \('gcd' is given twice\)"),
        ("{*_sum: 1}", r"cannot be read \(.*\); put patterns with a \* in quotes"),
    ],
)
def test_bad_specs_are_one_clear_line(spec: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        TaskMix.parse(spec)
    assert "\n" not in str(caught.value)


def test_a_recipe_is_read_as_training_reads_it(tmp_path: Path) -> None:
    recipe, mine = tmp_path / "mine.yaml", "{mine: {file: {path: a.csv, scorer: number, tolerance: 1e-4}}}"
    for before in ("environment.skyrl_gym.rg_dump.tasks: ", "environment: {skyrl_gym: {rg_dump.tasks: "):
        recipe.write_text(f"{before}{mine}{'}' * before.count('{')}")
        assert TaskMix.parse(str(recipe)).files["mine"].tolerance == 1e-4
    assert TaskMix.parse(mine).files["mine"].tolerance == 1e-4
    recipe.write_text("environment.skyrl_gym.rg_dump:\n  tasks: [gcd]\n  tasks: [lcm]\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: is not valid YAML \('tasks' is given twice"):
        TaskMix.parse(str(recipe))
    recipe.write_text("trainer.epochs: 1\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: has no environment\.skyrl_gym\.rg_dump\.tasks$"):
        TaskMix.parse(str(recipe))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(["gcd", "*"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
        max_leaves=6,
    )
)
def test_any_spec_is_a_mix_or_a_config_error(spec: Any) -> None:
    for form in (spec, json.dumps(spec)):
        try:
            assert TaskMix.parse(form).tasks
        except ConfigError as error:
            assert "\n" not in str(error)


def test_draws_follow_the_weights() -> None:
    mix = TaskMix.parse({"chain_sum": 1, "gcd": 3, "lcm": 0.5, "dice": 5.5})
    counts = Counter(mix.pick(hash64("test", i)).name for i in range(20_000))
    expected = {task.name: task.weight * 2000 for task in mix.tasks}
    chi_square = sum((counts[name] - n) ** 2 / n for name, n in expected.items())
    assert chi_square < 16.3  # 3 degrees of freedom, p = .001; the hashes are fixed, so that this cannot flicker
    mix = TaskMix.parse({"chain_sum": 1e-9, "gcd": 1e9})
    assert [mix.pick(number).name for number in (0, 2**64 - 1)] == ["chain_sum", "gcd"]
    assert pickle.loads(pickle.dumps(mix)).pick(0).name == "chain_sum"


def fail_on(*names: str) -> Any:
    def try_task(task: TaskSpec) -> None:
        if task.name in names:
            raise ValueError("it\nbroke")

    return try_task


def test_tasks_that_fail_are_left_out_with_one_warning(warnings: list[str]) -> None:
    kept = TaskMix.parse(["gcd", "lcm", "dice"]).keep(fail_on("gcd", "dice"))
    assert [task.name for task in kept.tasks] == ["lcm"]
    assert warnings == ["2 of 3 tasks left out of the mix: dice (ValueError: it broke), gcd (ValueError: it broke)"]


def test_a_failing_task_that_was_named_with_options_or_is_the_last_is_an_error() -> None:
    mix = TaskMix.parse({"chain_sum": {"config": {"min_terms": 3}}, "gcd": 1})
    with pytest.raises(ConfigError, match=r"task 'chain_sum' with \{'min_terms': 3\}: ValueError: it broke"):
        mix.keep(fail_on("chain_sum"))
    with pytest.raises(ConfigError, match=r"no task can be used: gcd \(ValueError: it broke\)"):
        TaskMix.parse(["gcd"]).keep(fail_on("gcd"))
