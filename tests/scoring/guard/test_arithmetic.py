"""Computed scores of `countdown` and `puzzle24` are those of the upstream scorers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import reasoning_gym
from hypothesis import given
from hypothesis import strategies as st

from rg_env.audit.payloads import Subject, payloads_for
from rg_env.scoring import Scorer, guard
from rg_env.scoring.guard import arithmetic, expressions
from tests.scoring.guard.right_answers import AROUND, variants
from tests.scoring.guard.variants import VARIANTS

Item = Callable[..., dict[str, Any]]
TASKS = sorted(arithmetic.COMPUTED_TASKS)


@cache
def upstream(task: str) -> Any:
    return reasoning_gym.create_dataset(task, seed=1, size=1)


def agrees(entry: dict[str, Any], answer: str) -> bool:
    """Whether there is a computed score, which is then compared with the upstream scorer's."""
    if guard.check(entry, answer) is not None:
        return False
    computed = arithmetic.score(entry, answer, {})
    if computed is None:
        return False
    scorer = upstream(entry["metadata"]["source_dataset"])
    forms = (answer, f"<answer>{answer}</answer>")
    assert computed == tuple(scorer.score_answer(form, copy.deepcopy(entry)) for form in forms), answer
    return True


@st.composite
def _answers(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """An item, and an expression of its numbers, whose target is often the expression's value or close to it."""
    task = draw(st.sampled_from(TASKS))
    numbers = draw(st.lists(st.integers(0, 12 if task == "puzzle24" else 2000), min_size=4, max_size=4))
    used = draw(st.permutations(draw(st.sampled_from([numbers, numbers, numbers, numbers[1:], [*numbers, 1]]))))
    parts = [draw(st.sampled_from(["", "-", "+", " "])) + str(number) for number in used]
    while len(parts) > 1:
        place = draw(st.integers(0, len(parts) - 2))
        operator = draw(st.sampled_from(["+", "-", "*", "/", " - ", " * ", "**", "/-"]))
        whole = f"{parts.pop(place)}{operator}{parts.pop(place)}"
        parts.insert(place, draw(st.sampled_from([f"({whole})", whole, f"-({whole})"])))
    answer = (
        draw(st.sampled_from(["", " ", "\n", "\u00a0"])) + parts[0] + draw(st.sampled_from(["", "", " ", ".", "+0"]))
    )
    entry = {"question": "", "answer": "", "metadata": {"source_dataset": task, "numbers": numbers, "target": 24}}
    value = expressions.read(parts[0], expressions.Grammar()).value if guard.check(entry, answer) is None else 0
    if task == "countdown" and value is not None and abs(value) < 10**9:
        entry["metadata"]["target"] = round(value) + draw(st.sampled_from([0, 0, 1, -2, 100]))
    return entry, answer


@given(_answers())
def test_computed_scores_are_those_of_the_upstream_scorer(pair: tuple[dict[str, Any], str]) -> None:
    agrees(*pair)


@pytest.mark.parametrize("task", TASKS)
def test_right_answers_are_computed_however_they_are_written(task: str, item: Item) -> None:
    entry = item(task)
    assert agrees(entry, entry["answer"])
    assert sum(agrees(entry, answer) for answer in variants(entry, AROUND)) >= 3
    for fields, answers in VARIANTS[task]:
        tried = fields | {"answer": "", "metadata": fields["metadata"] | {"source_dataset": task}}
        tried.setdefault("question", "")
        assert sum(agrees(tried, answer) for answer in answers) >= len(answers) / 2 or "**" in answers[0]


@pytest.mark.parametrize("task", TASKS)
def test_attacks_score_the_same(task: str, item: Item) -> None:
    entry = item(task)
    subject = Subject(entry, entry["answer"], [entry["answer"]], "/nonexistent/canary")
    for payload in payloads_for(task):
        if (answer := payload.answer(subject)) is not None:
            agrees(entry, answer)


@pytest.mark.parametrize(
    "answer", ["8*3*(2-1).", "2**3*3*1", "8*3*(2\n-1)", "8*3*(2-\uff11)", "8*3*2-1 #", "8*3/(2-1-1)", "8*3*2", ""]
)
def test_anything_but_whole_numbers_and_four_operators_is_for_a_worker(answer: str) -> None:
    entry = {"answer": "", "metadata": {"source_dataset": "puzzle24", "numbers": [8, 3, 2, 1]}}
    assert arithmetic.score(entry, "8*3*(2-1)", {}) == (1.0, 0.01)
    assert arithmetic.score(entry, answer, {}) is None


def test_numbers_outside_the_options_earn_nothing_in_puzzle24(scorer: Scorer) -> None:
    entry = {"question": "", "answer": "", "metadata": {"source_dataset": "puzzle24", "numbers": [8, 3, 2, 1]}}
    for options in ({}, {"max_value": 8}, {"min_value": 2}, {"max_value": 7}):
        made = reasoning_gym.create_dataset("puzzle24", **options)
        wanted = made.score_answer("8*3*(2-1)", entry)
        assert [scorer.score(entry, "8*3*(2-1)", options).raw for _ in range(2)] == [wanted, wanted]
    assert "AssertionError" in scorer.score(entry, "8*3*(2-1)", {"max_value": 99}).detail


def test_variables_are_letters_that_sympy_does_not_define() -> None:
    from sympy import Symbol, parse_expr

    for code in range(128):
        letter = chr(code)
        if letter.isalpha():
            calls = guard.calls_code("simple_integration", f"{letter} + 1")
            assert calls == (letter in "EINOQS"), letter
            assert calls or isinstance(parse_expr(letter), Symbol)


@pytest.mark.parametrize(
    ("answer", "calls"),
    [
        ("x**3/2 - 2*x**2 + C", False),
        ("(x**3\n - 4*x**2)/2", False),
        ("0.5*x**2", True),
        ("1e1*x", True),
        ("exp(x)", True),
        ("C1 + x", True),
        ("xy", True),
        ("'x**2'", True),
        ("pi*x", True),
        ("x.diff", True),
        ("\uff58", True),
    ],
)
def test_only_whole_numbers_and_variables_share_a_worker(answer: str, calls: bool) -> None:
    assert guard.calls_code("intermediate_integration", answer) is calls
    assert not guard.calls_code("countdown", answer)
