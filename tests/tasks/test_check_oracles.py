"""The solvers of `scripts/check_oracles.py` agree with our items, and find upstream's wrong answers."""

from __future__ import annotations

from itertools import islice

import pytest

from rg_env.tasks import task_names
from rg_env.tasks.upstream.oracles import _CORRECTIONS, _UNCLEAR
from scripts.check_oracles import check, our_items, stock_items
from scripts.oracles.solvers import SOLVERS

FIXED = sorted(set(_CORRECTIONS) | set(_UNCLEAR))


@pytest.mark.parametrize("task", sorted(SOLVERS))
def test_our_items_agree_with_an_independent_solver(task: str) -> None:
    report = check(task, islice(our_items(task), 3))
    assert (report.agree, report.disagree, report.unclear) == (3, 0, 0), report.examples


@pytest.mark.parametrize("task", ["aiw", "family_relationships", "mahjong_puzzle", "syllogism", "time_intervals"])
def test_upstreams_own_items_do_not(task: str) -> None:
    report = check(task, islice(stock_items(task), 60))
    assert report.disagree + report.unclear > 0


def test_an_answer_that_is_not_paid_disagrees() -> None:
    assert check("gcd", islice(our_items("gcd"), 2), lambda *_: "0").disagree == 2
    assert check("gcd", islice(our_items("gcd"), 2), lambda *_: []).disagree == 2
    assert check("gcd", islice(our_items("gcd"), 2), lambda *_: None).unclear == 2


def test_circuit_inputs_have_names_of_several_letters() -> None:
    metadata = {"assignments": {"A": 0, "AA": 1}, "expression": "(AA&A')+(A&A)", "final_gate": "OR"}
    assert SOLVERS["circuit_logic"]("", metadata, "") == "1"


def test_the_table_of_solvers() -> None:
    assert set(SOLVERS) <= set(task_names())
    assert set(FIXED) <= set(SOLVERS)
    assert len(SOLVERS) >= 80
