from __future__ import annotations

import doctest
import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import reasoning_gym
import sympy

from rg_env.scoring import Scorer, Status
from rg_env.scoring.workers import scoring
from rg_env.scoring.workers.scoring import as_score, make_scorer, score_form


def test_the_examples_in_its_docstrings_hold() -> None:
    result = doctest.testmod(scoring)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (0.25, 0.25),
        (1, 1.0),
        (True, 1.0),
        (False, 0.0),
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(1), 1.0),
        (np.bool_(True), 1.0),
        (np.array(0.5), 0.5),
        (Fraction(1, 4), 0.25),
        (sympy.Rational(1, 4), 0.25),
        (1.0000000000000002, 1.0),
        (-0.1, 0.0),
        (7, 1.0),
    ],
)
def test_numbers_become_floats_in_the_unit_interval(value: Any, score: float) -> None:
    result = as_score(value)
    assert type(result) is float
    assert result == score


@pytest.mark.parametrize(
    "value", [None, "1.0", math.nan, math.inf, -math.inf, 1j, np.float64("nan"), np.complex128(1), [1.0], object()]
)
def test_what_is_no_score_is_named(value: Any) -> None:
    result = as_score(value)
    assert isinstance(result, str)
    assert "not a score" in result


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "error", [ValueError("a\nb"), SystemExit(1), KeyboardInterrupt(), MemoryError(), UnprintableError()]
)
def test_no_exception_escapes_a_scorer(error: BaseException) -> None:
    class Raising:
        def score_answer(self, answer: str, entry: Any) -> float:
            raise error

    form = score_form(Raising(), pickle.dumps({}), "4")
    assert isinstance(form, str)
    assert type(error).__name__ in form


def test_each_form_gets_an_entry_of_its_own() -> None:
    class Spoiling:
        def score_answer(self, answer: str, entry: Any) -> float:
            return float(entry["numbers"].pop())

    entry = pickle.dumps({"numbers": [1]})
    assert [score_form(Spoiling(), entry, "4") for _ in range(2)] == [1.0, 1.0]


def test_a_scorer_is_made_with_the_options_given_and_without_items(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    create = reasoning_gym.create_dataset
    monkeypatch.setattr(reasoning_gym, "create_dataset", lambda *a, **k: made.append(create(*a, **k)) or made[-1])
    make_scorer("acre", {"size": 10**9})
    make_scorer("chain_sum", {"min_terms": 5, "max_terms": 5})
    assert [made[0].config.size, made[1].config.min_terms] == [1, 5]


@pytest.mark.parametrize(
    ("task", "options"), [("nope", {}), ("chain_sum", {"nope": 1}), ("chain_sum", {"min_terms": -1})]
)
def test_a_scorer_that_cannot_be_made_says_why(scorer: Scorer, task: str, options: dict[str, Any]) -> None:
    entry = {"question": "", "answer": "4", "metadata": {"source_dataset": task}}
    scored = scorer.score(entry, "4", options)
    assert scored.status is Status.ERROR
    assert scored.detail.startswith(f"no scorer for {task}: ")
