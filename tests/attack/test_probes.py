"""Probes find what evaluates text of an answer and what an answer can keep busy, and nothing behind the guard."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from pathlib import Path

import pytest
import reasoning_gym

from rg_env import ReasoningGymDataset
from rg_env.attack.probes import FORMS, TRACE, TRACES, Cost, Prober, growth_of
from rg_env.scoring import guard

HANGING = ("coin_flip", "propositional_logic", "rubiks_cube", "rush_hour")
"""Tasks that evaluate nothing and that one text keeps busy (evidence/upstream-findings.md)."""
QUICK = ("coin_flip", "spiral_matrix")


@pytest.mark.parametrize(
    "task",
    [task if task in QUICK else pytest.param(task, marks=pytest.mark.long) for task in (*HANGING, *guard.REWRITES)],
)
def test_each_task_that_evaluates_or_hangs_is_found_without_the_guard_and_none_behind_it(task: str) -> None:
    entry = reasoning_gym.create_dataset(task, seed=3, size=5)[0]
    with Prober(entry, is_guarded=False) as bare:
        found = bare.find()
    assert any(one.is_code for one in found) == (task in guard.REWRITES)
    assert any("a text of" in one.probe and "would take about an hour" in one.probe for one in found)
    assert not any(one.failure for one in found)
    with Prober(entry) as guarded:
        assert guarded.find() == []
    assert not hasattr(builtins, TRACE)


def test_the_function_of_a_file_is_probed(tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"
    path.write_text("\n".join(f'{{"question": "{n} + 1 =", "answer": "{n + 1}"}}' for n in range(40)))
    found = {}
    for name in ("careless", "acting"):
        file = {"path": str(path), "scorer": f"tests.scoring.file_scorer_functions.{name}"}
        with Prober(ReasoningGymDataset({"sums": {"file": file}}).item(0).entry) as prober:
            found[name] = prober.find()
    assert any(one.is_code for one in found["careless"]) and any("an hour" in one.probe for one in found["careless"])
    assert found["acting"] == []


def test_no_probe_is_long() -> None:
    assert all(len(text) < 60 for text in TRACES)
    assert max(len(form.make(size)) for form in FORMS for size in form.sizes) <= 8192
    assert all(len(form.sizes) >= 3 for form in FORMS)


LENGTHS = (500, 1000, 2000)


@pytest.mark.parametrize(
    ("seconds", "memory", "said"),
    [
        ((0.02, 0.04, 0.08), (50, 51, 52), ""),  # linear
        ((9.02, 9.04, 9.08), (50, 51, 52), ""),
        ((0.0002, 0.0008, 0.0032), (50, 51, 52), ""),  # quadratic, and done in time
        ((0.02, 0.08, 0.32), (50, 51, 52), "a text of 244,949 characters would take about an hour"),
        ((9.02, 9.08, 9.32), (50, 51, 52), "a text of 244,949 characters would take about an hour"),
        ((0.0, 0.0, 0.0), (50, 50, 50), ""),
        ((0.03, 0.02, 0.01), (50, 50, 50), ""),
        ((0.01, 0.01, 1e9), (50, 51, 52), "would take about an hour"),
        ((0.0, 0.0, 0.0), (100, 200, 900), "would need about a terabyte"),
    ],
)
def test_growth_is_what_outgrows_the_text_and_the_limit(
    seconds: Sequence[float], memory: Sequence[float], said: str
) -> None:
    costs = [Cost(0.0, *cost) for cost in zip(seconds, memory, strict=True)]
    found = growth_of(LENGTHS, costs)
    assert found.endswith(said)
    assert bool(found) == bool(said)
