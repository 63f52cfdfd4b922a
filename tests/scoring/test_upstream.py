from __future__ import annotations

import math
import pickle
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import reasoning_gym
import sympy

from rg_env.runner.child_process import number_of
from rg_env.scoring import Scorer, Status
from rg_env.scoring.upstream import make_scorer, read_entry, score_form


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((0.25, 0.25), (1, 1.0), (True, 1.0), (-7, -7.0), (Fraction(1, 4), 0.25), (sympy.Rational(1, 4), 0.25)),
        *((np.float64(0.5), 0.5), (np.float32(0.5), 0.5), (np.int64(1), 1.0), (np.bool_(True), 1.0)),
        *((np.array(0.5), 0.5), (None, None), ("1.0", None), (math.nan, None), (math.inf, None), (10**400, None)),
        *((1j, None), (np.float64("nan"), None), (np.complex128(1), None), ([1.0], None), (np.ones(2), None)),
        (1.0000000000000002, 1.0000000000000002),
    ],
)
def test_what_a_scorer_returns_is_a_finite_float_or_none(value: Any, number: float | None) -> None:
    assert (result := number_of(value)) == number
    assert type(result) in (float, type(None))
    form = score_form(SimpleNamespace(score_answer=lambda answer, entry: value), {}, "4")
    assert isinstance(form, str) if number is None else form == min(1.0, max(0.0, number))


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

    form = score_form(Raising(), {}, "4")
    assert isinstance(form, str)
    assert type(error).__name__ in form


def test_each_form_gets_an_entry_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Spoiling:
        def score_answer(self, answer: str, entry: Any) -> float:
            return float(entry["metadata"]["numbers"].pop())

    monkeypatch.setattr(reasoning_gym, "create_dataset", lambda *_, **__: Spoiling())
    entry = {"answer": "4", "metadata": {"source_dataset": "chain_sum", "numbers": [1]}}
    assert make_scorer("chain_sum", {})(pickle.dumps((pickle.dumps(entry), "4"))) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("task", "options"), [("nope", {}), ("chain_sum", {"nope": 1}), ("chain_sum", {"min_terms": -1})]
)
def test_a_scorer_that_cannot_be_made_says_why(scorer: Scorer, task: str, options: dict[str, Any]) -> None:
    entry = {"question": "", "answer": "4", "metadata": {"source_dataset": task}}
    scored = scorer.score_answer(entry, "4", options)
    assert scored.status is Status.ERROR
    assert scored.detail.startswith(f"no scorer for {task}: ")


@pytest.mark.parametrize(
    "content",
    [
        b'{"metadata": {"source_dataset": "gcd"}}',
        b'{"metadata": {"source_dataset": "countdown"}, "metadata": {"source_dataset": "gcd"}}',
        b'{"metadata": 5}',
        b"{}",
    ],
)
def test_the_guard_reads_an_entry_of_json_as_one_of_the_task_that_scores_it(content: bytes) -> None:
    assert read_entry(content, "countdown")["metadata"]["source_dataset"] == "countdown"
