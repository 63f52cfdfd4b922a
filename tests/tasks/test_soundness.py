"""Reproduces every claim about upstream's scorers on the raw scorer, and checks that the guard closes it."""

from __future__ import annotations

import builtins
import copy
import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import reasoning_gym

from rg_env.attack.attacks import CONSTANTS
from rg_env.scoring import guard
from rg_env.tasks import KNOWN_UNSOUND, Soundness, TaskMix, soundness_of, task_names
from rg_env.tasks.soundness import GUARDED
from rg_env.tasks.upstream.patched_dataset import UpstreamDataset
from tests.scoring.guard.right_answers import refusal_of

Entry = dict[str, Any]


@functools.cache
def raw(task: str) -> Any:
    return reasoning_gym.create_dataset(task, seed=1, size=10 if task == "intermediate_integration" else 20)


@functools.cache
def entries_of(task: str) -> list[Entry]:
    """The items of `raw(task)`, which makes them at each access."""
    return list(raw(task))


def raw_mean(task: str, answer: Callable[[Entry], str]) -> float:
    """The mean score of the answers on 20 items from upstream's own scorer, in this process: harmless answers only."""
    dataset = raw(task)
    return fmean(dataset.score_answer(answer(entry), copy.deepcopy(entry)) for entry in entries_of(task))


def same(answer: str) -> Callable[[Entry], str]:
    return lambda entry: answer


def expand_the_question(entry: Entry) -> str:
    return f"expand({entry['metadata']['polynomial_expr']})"


def integrate_the_question(entry: Entry) -> str:
    return f"integrate({entry['metadata']['integrand']}, {entry['metadata']['variable']})"


def both_roles_of_one(entry: Entry) -> str:
    name, terms = entry["metadata"]["names"][0], entry["metadata"]["knight_knave_terms"]
    return f"{name} is a {terms['knight']}, {name} is a {terms['knave']}"


def not_a_number_each(entry: Entry) -> str:
    return json.dumps([float("nan")] * (entry["answer"].count(",") + 1))


def some_interval(entry: Entry) -> str:
    kind = entry["metadata"]["task_type"]
    return "40 days" if kind == "date" else "40 days, 12:00:00" if kind.startswith("datetime") else "08:00:00"


FREE: list[tuple[str, Callable[[Entry], str], float]] = [
    ("acre", same("on off undetermined"), 0.15),
    ("codeio", same('{"":' * 200 + "{}" + "}" * 200), 0.5),
    ("coin_flip", same("0"), 0.8),
    ("complex_arithmetic", same("nan"), 1.0),
    ("complex_arithmetic", same("nan+1j"), 1.0),
    ("course_schedule", same("True False"), 0.4),
    ("game_of_life", same(json.dumps([[0] * 50] * 50)), 0.9),
    ("game_of_life_halting", same("any text"), 1.0),
    ("gsm_symbolic", lambda entry: entry["answer"] + " or 123456.5", 1.0),
    ("intermediate_integration", integrate_the_question, 0.8),
    ("isomorphic_strings", same("True False"), 0.4),
    ("knights_knaves", both_roles_of_one, 0.6),
    ("letter_jumble", lambda entry: entry["answer"] + " and more", 1.0),
    ("mahjong_puzzle", same("Peng Chi Pass"), 0.25),
    ("number_sorting", not_a_number_each, 1.0),
    ("polynomial_equations", same("0.0317"), 0.2),
    ("polynomial_multiplication", expand_the_question, 1.0),
    ("prime_factorization", lambda entry: entry["question"].split(" of ")[1].split(".")[0], 0.5),
    ("puzzle24", same("4*3*2*1"), 1.0),
    ("ransom_note", same("True False"), 0.4),
    ("simple_integration", integrate_the_question, 1.0),
    ("spell_backward", lambda entry: entry["question"][::-1], 0.9),
    ("spell_backward", lambda entry: entry["answer"] + " or so", 0.9),
    ("syllogism", same("Yes No"), 0.35),
    ("time_intervals", some_interval, 0.7),
    ("word_sorting", lambda entry: entry["answer"] + ", zorp", 1.0),
]


@pytest.mark.parametrize(("task", "answer", "least"), FREE)
def test_the_guard_closes_what_upstream_rewards_for_nothing(
    task: str, answer: Callable[[Entry], str], least: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # snippets of codeio write files
    assert raw_mean(task, answer) >= least
    scorer = raw(task)
    left = [
        0.0 if refusal_of(entry, answer(entry)) else scorer.score_answer(answer(entry), copy.deepcopy(entry))
        for entry in entries_of(task)
    ]
    right = [float(str(answer(entry)).strip() == str(entry["answer"])) for entry in entries_of(task)]
    assert left == right  # nothing but what is right by chance: a prime number is its own factorization


def test_upstream_runs_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(builtins, "zorp", calls.append, raising=False)
    for number, task in enumerate(sorted(guard.REWRITES)):
        entry = entries_of(task)[0]
        raw(task).score_answer("zorp(1)", copy.deepcopy(entry))
        assert len(calls) > number, task
        assert refusal_of(entry, "zorp(1)"), task


def test_upstream_takes_near_misses() -> None:
    entry = {"question": "", "answer": "", "metadata": {"source_dataset": "puzzle24", "numbers": [7, 7, 2, 1]}}
    assert raw("puzzle24").score_answer("(7*7)/2*1", entry) == 1.0  # 24.5
    assert "not exactly 24" in str(refusal_of(entry, "(7*7)/2*1"))
    metadata = {"source_dataset": "countdown", "numbers": [999, 1000, 1, 1], "target": 1000}
    near = {"question": "", "answer": "", "metadata": metadata}
    assert raw("countdown").score_answer("1000 + 1/999*1", near) == 1.0  # 1000.001
    assert "not exactly 1000" in str(refusal_of(near, "1000 + 1/999*1"))


def test_upstream_writes_out_every_repeated_turn() -> None:
    assert len(raw("rubiks_cube").expand_moves("R9999").split()) == 9999
    entry = raw("rubiks_cube")[0]
    assert refusal_of(entry, "R1001")
    assert refusal_of(entry, "R999 " * 3)
    assert refusal_of(entry, "R00001")  # more digits than any number of turns has
    assert refusal_of(entry, "R٠٠٠٠١")
    assert refusal_of(entry, "R2 U' F R3 B2") is None


def test_numbers_whose_size_keeps_upstream_busy_are_refused() -> None:
    """`tests/attack/test_probes.py` shows how the time grows."""
    assert refusal_of(raw("coin_flip")[0], "1e100")
    assert refusal_of(raw("rush_hour")[0], "A+100")
    assert refusal_of(raw("rush_hour")[0], "A+99") is None
    entry = {**raw("propositional_logic")[0]}
    assert refusal_of(entry, "¬" * 201 + "P")
    assert refusal_of(entry, "¬" * 200 + "P") is None


# -- the exclusions


def test_a_premise_copied_from_the_question_is_a_conclusion() -> None:
    assert raw_mean("propositional_logic", lambda entry: entry["metadata"]["premises"][0]) > 0.7


def every_box_through_every_square(entry: Entry) -> str:
    """Along a snake path backward and then forward, trying each target."""
    squares = [tuple(map(float, name.split("_"))) for name in entry["metadata"]["initial_state"]]
    snake = sorted(squares, key=lambda square: (square[0], square[1] if square[0] % 2 == 0.5 else -square[1]))
    plan = []
    for path in (snake[::-1], snake):
        for (x, y), to in zip(path, [*path[1:], None], strict=True):
            for color in ("red", "blue", "green"):
                goals = [f"target_{color}"] if path is snake else []
                goals += [f"square[{to[0]}, {to[1]}]"] if to is not None else []
                plan += [{f"Agent[{x}, {y}]": f"move(box_{color}, {goal})"} for goal in goals]
    return json.dumps(plan)


def random_drives(entry: Entry) -> str:
    drives = [f"{letter}{sign}{cells}" for letter in "ABCDEFGHIJKL" for sign in "+-" for cells in (1, 2, 3, 4)]
    return " ".join(random.Random(entry["question"]).choices(drives, k=2000)) + " A+4"


@pytest.mark.parametrize(
    ("task", "plan", "least"), [("boxnet", every_box_through_every_square, 0.7), ("rush_hour", random_drives, 0.03)]
)
def test_random_plans_score_where_impossible_moves_are_skipped(
    task: str, plan: Callable[[Entry], str], least: float, warnings: list[str]
) -> None:
    assert raw_mean(task, plan) > least
    assert soundness_of(task) is Soundness.UNSOUND
    assert task not in {one.name for one in TaskMix.parse(None).tasks}
    assert [one.name for one in TaskMix.parse(task).tasks] == [task]
    assert [task in line and "impossible moves" in line for line in warnings] == [True]


def test_the_table_and_the_guard_know_the_same_tasks() -> None:
    assert set(GUARDED) == (guard.REWRITES | guard.CHECKS).keys() - set(KNOWN_UNSOUND)
    assert set(KNOWN_UNSOUND) | set(GUARDED) < set(task_names())


def test_a_sound_task_rewards_only_right_answers() -> None:
    for task in [task for task in task_names() if soundness_of(task) is Soundness.SOUND]:
        dataset = raw(task)
        for entry in entries_of(task):
            right = entry["answer"]
            for answer in [*CONSTANTS[:20], entry["question"], f"{right} {right}", right * 2, right]:
                assert dataset.score_answer(answer, copy.deepcopy(entry)) == float(answer == right), (task, answer)


# -- answers that upstream gets wrong


def test_integrals_that_upstream_leaves_as_they_are_are_worked_out() -> None:
    upstream = [reasoning_gym.create_dataset("intermediate_integration", seed=seed, size=1)[0] for seed in range(8)]
    assert any("Integral(" in entry["answer"] for entry in upstream)
    ours = UpstreamDataset("intermediate_integration", {})
    scorer = raw("intermediate_integration")
    for seed, entry in enumerate(upstream):
        made = ours.make(seed)
        if "Integral(" not in entry["answer"]:
            assert made["answer"] == entry["answer"]
            continue
        assert made["question"] == entry["question"]
        assert "Integral" not in made["answer"]
        assert scorer.score_answer(made["answer"], made) == 1.0
