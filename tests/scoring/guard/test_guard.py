"""What the guard refuses and what it lets through."""

from __future__ import annotations

import copy
import inspect
import re
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reasoning_gym
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reasoning_gym.factory import DATASETS

from rg_env.scoring import Scorer, Status, guard
from tests.scoring.guard.eval_attacks import ATTACKS, CANARY
from tests.scoring.guard.refusal import refusal_of
from tests.scoring.guard.right_answers import AROUND, FORMS, variants
from tests.scoring.guard.variants import VARIANTS

Item = Callable[..., dict[str, Any]]
Items = Callable[[str, int], list[dict[str, Any]]]

_EVALUATES = re.compile(r"\b(eval|exec|parse_expr|sympify)\(")
EVALUATING = sorted(guard.EVALUATING_TASKS)
GUARDED = sorted(guard.GUARDED_TASKS)


def entry_of(task: str, **fields: Any) -> dict[str, Any]:
    metadata = {"source_dataset": task, **fields.pop("metadata", {})}
    return {"question": "", "answer": "", **fields, "metadata": metadata}


CHAIN_SUM = entry_of("chain_sum", answer="4")


def test_the_tasks_that_run_answers_are_those_whose_scorers_evaluate() -> None:
    found = {
        task for task, (dataset, _) in DATASETS.items() if _EVALUATES.search(inspect.getsource(dataset.score_answer))
    }
    # number_sorting evaluates the entry's own answer; propositional_logic has a parser of its own by this name
    assert found - {"number_sorting"} == guard.EVALUATING_TASKS


@pytest.mark.parametrize(
    ("answer", "word"),
    [("4\0", "NUL"), ("\ud83d", "surrogate"), ("ü\udfff", "surrogate"), ("\ud83d\ude00", "surrogate")],
)
def test_what_is_no_text_is_refused(answer: str, word: str) -> None:
    assert word in (refusal_of(CHAIN_SUM, answer) or "")


@pytest.mark.parametrize("answer", ["", "4", "ä ≤ 漢字 😀", "\x01\n\t", "\U0010ffff", "\ud7ff\ue000"])
def test_every_other_text_passes_where_no_task_asks_for_more(answer: str) -> None:
    assert refusal_of(CHAIN_SUM, answer) is None


# -- attacks


@pytest.mark.parametrize("task", EVALUATING)
def test_answers_that_are_more_than_data_or_arithmetic_are_refused(
    scorer: Scorer, item: Item, task: str, tmp_path: Path
) -> None:
    entry = item(task)
    for attack in ATTACKS:
        answer = attack.replace(CANARY, str(tmp_path / CANARY))
        if task == "n_queens" and not answer.strip("_"):
            continue  # a board without queens
        scored = scorer.score_answer(entry, answer)
        assert scored.status is Status.REJECTED, answer[:80]
        assert 10 < len(scored.detail) < 200
        assert scored.detail.isprintable()
    assert not (tmp_path / CANARY).exists()
    assert scorer.score_answer(entry, entry["answer"]).score == 1.0


# -- false rejections


@pytest.mark.parametrize("task", GUARDED)
def test_right_answers_pass_and_score_what_the_raw_scorer_gives(scorer: Scorer, cured_items: Items, task: str) -> None:
    dataset = reasoning_gym.create_dataset(task, seed=1, size=1)
    tried = 0
    for entry in cured_items(task, 20):
        metadata = entry["metadata"]
        answer = entry["answer"] or metadata.get("example_answer") or metadata.get("example_correct_answer")
        if answer is None:
            continue
        scored = scorer.score_answer(entry, answer)
        assert scored.status is Status.OK, (answer, scored.detail)
        assert scored.raw == min(1.0, dataset.score_answer(answer, copy.deepcopy(entry)))
        tried += 1
    assert tried == 20 or task == "rush_hour"  # whose items hold no answer


@pytest.mark.parametrize("task", EVALUATING)
def test_every_written_variant_that_the_raw_scorer_rewards_passes(task: str) -> None:
    dataset = reasoning_gym.create_dataset(task, seed=1, size=1)
    assert sum(len(answers) for _, answers in VARIANTS[task]) >= 30
    for fields, answers in VARIANTS[task]:
        entry = entry_of(task, **fields)
        for answer in answers:
            assert refusal_of(entry, answer) is None, answer
            assert dataset.score_answer(answer, copy.deepcopy(entry)) >= 0.1, answer


@pytest.mark.parametrize("task", FORMS)
def test_right_answers_pass_however_they_are_written(cured_items: Items, task: str) -> None:
    """Where spaces are all that is around them, even those that upstream gives a part of the score."""
    dataset = reasoning_gym.create_dataset(task, seed=1, size=1)
    for entry in cured_items(task, 3):
        spaced = set(variants(entry)) if task not in guard.EVALUATING_TASKS else ()
        refused = [answer for answer in variants(entry, AROUND) if refusal_of(entry, answer) is not None]
        assert not [
            answer for answer in refused if _upstream(dataset, answer, entry) >= (0.1 if answer in spaced else 1 - 1e-9)
        ]


def test_the_forms_cover_every_guarded_task() -> None:
    assert set(FORMS) == guard.GUARDED_TASKS - {"rush_hour"}


def _upstream(dataset: Any, answer: str, entry: dict[str, Any]) -> float:
    try:
        return float(dataset.score_answer(answer, copy.deepcopy(entry)))
    except Exception:
        return 0.0


_BOARD = "[[0,0],[1,0]]"
_JSON = [
    *('{"":' * depth + "{}" + "}" * depth for depth in (0, 20, 100, 350, 1300)),
    *(
        "{" + ",".join(f'"{key * number}":{value}' for number in range(60)) + "}"
        for key in " a"
        for value in ("0", "{}")
    ),
    *(f'{{"": {value}}}' for value in ('"' + "\U0001f600" * 4000 + '"', "9" * 5000, "1e400", "NaN", "[" * 4000)),
    *("{", "}{", "null", "[]", '""'),
]
"""Objects that are deep, wide or long, which upstream's codeio paid whatever was asked."""


@pytest.mark.parametrize(
    ("task", "fields", "answers"),
    [
        ("coin_flip", {"answer": "0.0029296875"}, ["0.0029", "0.00293", "3/1024"]),
        ("coin_flip", {"answer": "0.000244140625"}, ["0.0002"]),
        (
            "simple_integration",
            {"metadata": {"integrand": "2*x/3", "variable": "x"}},
            [
                "Rational(1,3)*x**2",
                "S(1)/3*x**2",
                "x**2/3 + C_1",
                "x**2/3 + constant",
                '"x**2/3 + C"',
                "'x^2/3 + C'",
                "x**2/3 + 0*X + C",
            ],
        ),
        (
            "intermediate_integration",
            {"metadata": {"integrand": "sqrt(x)", "variable": "x"}},
            ["Rational(2,3)*x**Rational(3,2)", "2*x**(3/2)/3 + C_1", '"2*x**(3/2)/3 + constant"'],
        ),
        ("simple_integration", {"metadata": {"integrand": "0", "variable": "x"}}, ["0*X + C", "0*x + C", "C"]),
        ("puzzle24", {"metadata": {"numbers": [8, 3, 2, 1]}}, ["(2-1)*8*3.", "8.*3*(2-1.)"]),
        ("countdown", {"metadata": {"numbers": [25, 4, 6, 2], "target": 112}}, ["25*4+6*2.", "25*4 + 6*2. "]),
        ("codeio", {"answer": '{"b": 2.0, "a": [1, {}]}'}, ['{"a":[1,{}],"b":2}', ' {"b": 2.00, "a": [1e0, {}]}\n']),
        ("codeio", {"answer": "[1, 2]"}, ["[1, 2]", " [1, 2] "]),
        ("polynomial_equations", {"answer": "-0.5, 0.25"}, ["0.25, -0.5000", "-.5,.25"]),
        ("game_of_life_halting", {"answer": "True"}, ["True.", "**True**", "true", "$\\boxed{True}$", "'TRUE'"]),
        ("game_of_life_halting", {"answer": "False"}, ["False.", "**False**", "false"]),
        ("game_of_life", {"answer": _BOARD}, ["[[0.0,0.0],[1.0,0.0]]", "[[false, false], [true, false]]"]),
        ("prime_factorization", {"answer": "3 × 103"}, ["+3 × 103", "+3 × +103"]),
        ("spell_backward", {"answer": "ainomma"}, ["ainomma.", "Ainomma!"]),
    ],
)
def test_forms_that_were_once_refused_score_1(
    scorer: Scorer, task: str, fields: dict[str, Any], answers: list[str]
) -> None:
    for answer in answers:
        scored = scorer.score_answer(entry_of(task, **fields), answer)
        assert scored.score >= (0.8 if task == "spell_backward" else 1.0), (answer, scored.detail)


@pytest.mark.parametrize(
    ("task", "fields", "answers"),
    [
        ("coin_flip", {"answer": "0.0029296875"}, ["0", "0.0", "0.003", "0.0028"]),
        ("coin_flip", {"answer": "0.00003"}, ["0", "0.0000", "0.0001"]),
        (
            "codeio",
            {"answer": '{"root": 20.28}'},
            [*_JSON, '{"root": 20.29}', '{"root": "20.28"}', '{"root": [20.28]}'],
        ),
        (
            "codeio",
            {"answer": '{"a": [true, 1]}'},
            [*_JSON, '{"a": [1, true]}', '{"a": [true]}', '{"a": [true, 1, 1]}'],
        ),
        ("codeio", {"answer": "7"}, [*_JSON, "8", "{7}"]),
        ("countdown", {"metadata": {"numbers": [9, 53, 22], "target": 199}}, ["9**(53/22)"]),
        ("countdown", {"metadata": {"numbers": [10, 2, 5], "target": 105}}, ["10**2 + 5"]),
        (
            "countdown",
            {"metadata": {"numbers": [6, 24, 80, 24, 20, 1], "target": 500}},
            ["(20*(24+1))+6**(-(80/24))", "20*(24+1)+6*(80-80)", "500"],
        ),
        (
            "polynomial_equations",
            {"answer": "-0.5, 0.25"},
            ["-0.5", "0.25", "-0.5, 0.2502", "-0.5, 0.25, 1", "nan, 0.25"],
        ),
        ("syllogism", {"answer": "Yes"}, ["Yes No", "Yes. No.", "**Yes** or No", "", ".", "Yess"]),
        ("game_of_life_halting", {"answer": "True"}, ["False", "True False", "not True", "1", "", "untrue"]),
        ("game_of_life", {"answer": _BOARD}, ["[[0,2],[1,0]]", "[[0,0],[1,0],[0,0]]", "[" * 5000, "9" * 5000, "{}"]),
        ("prime_factorization", {"answer": "3 × 103"}, ["-3 × -103", "+309", "309", "3 × 103 × +1 × 309"]),
        ("puzzle24", {"metadata": {"numbers": [8, 3, 2, 1]}}, ["8.5*3*(2-1)", "8*3*(2-1).0"]),
        ("simple_integration", {"metadata": {"integrand": "2*x", "variable": "x"}}, ["'open(1)'", "'x**2\"", "''x''"]),
    ],
)
def test_what_is_near_to_those_forms_is_refused(task: str, fields: dict[str, Any], answers: list[str]) -> None:
    for answer in answers:
        assert refusal_of(entry_of(task, **fields), answer) is not None, answer


def test_items_beyond_the_default_difficulty_may_have_answers_as_large(cured_items: Items) -> None:
    hard = {
        "max_terms": 16,
        "min_degree": 9,
        "max_degree": 10,
        "min_polynomials": 9,
        "max_polynomials": 10,
        "max_value": 10**8,
    }
    for seed in range(5):
        entry = reasoning_gym.create_dataset("polynomial_multiplication", seed=seed, size=1, **hard)[0]
        assert refusal_of(entry, entry["answer"]) is None
    entry = reasoning_gym.create_dataset("simple_integration", seed=1, size=1, min_degree=400, max_degree=500)[0]
    assert refusal_of(entry, entry["answer"]) is None


def test_an_item_whose_own_answer_is_long_allows_long_answers(scorer: Scorer) -> None:
    entry = reasoning_gym.create_dataset("spiral_matrix", seed=1, size=1, min_n=100, max_n=100)[0]
    assert len(entry["answer"]) > 8192
    verdict = scorer.score_response(entry, f"<think></think><answer>{entry['answer']}</answer>")
    assert (verdict.scored.status, verdict.scored.score) == (Status.OK, 1.0)
    assert scorer.score_answer(entry, "1 " * 20_000).status is Status.REJECTED


# -- whatever the text

_ALPHABET = st.sampled_from(
    [
        *string.printable,
        *("Q", "_", "×", "∧", "\u00a0", "１", "**", "exp(", "x", "[[", "]]", "', '", "1 2", "9" * 50, "e9"),
    ]
)
_JUNK = st.lists(_ALPHABET, max_size=40).map("".join) | st.text(max_size=60)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answer=_JUNK)
def test_no_text_makes_the_guard_raise(item: Item, answer: str) -> None:
    for task in GUARDED:
        reason = refusal_of(_entry(task), answer)
        assert reason is None or (reason and "\n" not in reason)


_entries: dict[str, dict[str, Any]] = {}


def _entry(task: str) -> dict[str, Any]:
    if task not in _entries:
        _entries[task] = reasoning_gym.create_dataset(task, seed=3, size=5)[0]
    return _entries[task]
