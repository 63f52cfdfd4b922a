"""Discovery, listing, and the checks of names and options."""

from __future__ import annotations

from typing import Any

import pytest

from rg_env.base.errors import ConfigError
from rg_env.tasks import KNOWN_UNSOUND, Soundness, list_tasks
from rg_env.tasks.registry import check_name, check_options
from tests.running import run_program


def test_listing() -> None:
    listed = {task.name: task for task in list_tasks()}
    assert len(listed) == 105 and list(listed) == sorted(listed)
    assert set(KNOWN_UNSOUND) < set(listed) and "composite" not in listed
    unsound, guarded, plain = (listed[name] for name in ("propositional_logic", "countdown", "chain_sum"))
    assert (unsound.soundness, unsound.in_default_mix) == (Soundness.UNSOUND, False)
    assert unsound.reason == KNOWN_UNSOUND["propositional_logic"]
    assert (guarded.soundness, guarded.in_default_mix) == (Soundness.GUARDED, True)
    assert "given numbers" in guarded.reason
    assert (plain.category, plain.in_default_mix, plain.has_levels) == ("arithmetic", True, True)
    assert not listed["acre"].has_levels


def test_options_are_checked() -> None:
    assert check_options("chain_sum", {}) == {}
    assert check_options("chain_sum", {"min_terms": 3, "max_terms": 4}) == {"min_terms": 3, "max_terms": 4}
    assert check_options("polynomial_multiplication", {"operators": ["+"]}) == {"operators": ("+",)}  # as its default
    assert check_options("time_intervals", {"task_types": ["date"]}) == {"task_types": ["date"]}


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("chain_sum", {"min_term": 3}, r"task 'chain_sum' has no option 'min_term'; did you mean min_terms"),
        ("chain_sum", {"qqq": 3}, r"has no option 'qqq'; it has allow_negation, max_digits, "),
        ("chain_sum", {"size": 3}, r"does not take 'size': set the dataset's own `size`"),
        ("chain_sum", {"seed": 3}, r"does not take 'seed': set the dataset's own `seed`"),
        ("chain_sum", {"min_terms": "3"}, r"option min_terms='3': must be a whole number"),
        ("chain_sum", {"min_terms": 2.5}, r"option min_terms=2.5: must be a whole number"),
        ("chain_sum", {"min_terms": True}, r"option min_terms=true: must be a whole number"),
        ("chain_sum", {"allow_negation": "yes"}, r"option allow_negation='yes': must be true or false"),
        ("chain_sum", {"min_terms": 9}, r"task 'chain_sum' refuses min_terms=9: max_terms must be >= min_terms"),
        ("time_intervals", {"task_types": "date"}, r"option task_types='date': must be a list; write \[date\]"),
        ("time_intervals", {"task_types": ["dates"]}, r"option task_types\[0\]='dates'.*date"),
        ("family_relationships", {"male_names": "Tom"}, r"option male_names='Tom': must be a list; write \[Tom\]"),
        ("word_ladder", {"max_word_length": 9}, r"refuses max_word_length=9: max_word_length must be <= 5"),
    ],
)
def test_bad_options_are_one_clear_line(task: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check_options(task, options)
    assert "\n" not in str(caught.value)


def test_what_is_no_task_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown task 'qqqqqq'; `rg-env tasks` lists them"):
        check_name("qqqqqq")
    with pytest.raises(ConfigError, match=r"only mixes other tasks"):
        check_name("composite")


def test_the_import_is_light() -> None:
    assert run_program("loaded", "rg_env.tasks", "rg_env.rows.dataset").stdout == "[]\n"
