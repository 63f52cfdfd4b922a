"""The attacks find what is there, and nothing where nothing is."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rg_env.attack.attacks import attacks
from rg_env.attack.run import AttackedTask, Hit, Hole, attack_tasks
from rg_env.cli import app
from rg_env.scoring import AnswerScore, Status, guard

Rule = Callable[[Mapping[str, Any], str], float]
USERS = """
from dataclasses import dataclass
import json
import reasoning_gym
from reasoning_gym.dataset import ProceduralDataset
@dataclass
class Config:
    seed: int = 0
    size: int = 1
class Base(ProceduralDataset):
    def __init__(self, config):
        super().__init__(config=config, seed=config.seed, size=config.size)
    def __getitem__(self, index):
        number = self.seed % 90
        return {"question": f"What is {number} * 7 + 3?", "answer": str(number * 7 + 3), "metadata": {}}
class Careful(Base):
    def score_answer(self, answer, entry):
        return float(answer == entry["answer"])
class Evaluating(Base):
    def score_answer(self, answer, entry):
        return float(str(eval(answer)) == entry["answer"])
class Measuring(Base):
    def score_answer(self, answer, entry):
        return 1 - 20 / len(answer) if answer.startswith('{"":{"":') and len(answer) > 100 else 0.0
for name, found in {"careful": Careful, "evaluating": Evaluating, "measuring": Measuring}.items():
    if name not in reasoning_gym.factory.DATASETS:
        reasoning_gym.register_dataset(name, found, Config)
"""


def scored_by(rule: Rule) -> type:
    class ByRule:
        def __init__(self, **_: Any) -> None: ...
        def __enter__(self) -> ByRule:
            return self

        def __exit__(self, *_: object) -> None: ...
        def score_answer(self, entry: Mapping[str, Any], answer: str) -> AnswerScore:
            score = rule(entry, answer)
            failed = AnswerScore.unscored(Status.TIMEOUT, starved=True)
            return failed if score < 0 else AnswerScore(score, 0.0, score, Status.OK)

    return ByRule


def test_known_holes_of_scorers_are_found_where_no_answer_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def admit_all(entry: dict[str, Any], answer: str) -> guard.Admitted:
        return guard.Admitted(answer, f"<answer>{answer}</answer>", pickle.dumps(entry))

    monkeypatch.setattr(guard, "admit", admit_all)
    monkeypatch.setattr("rg_env.attack.run._DEADLINE", 0.3)
    attacked = attack_tasks("spiral_matrix,complex_arithmetic,syllogism", items=4)
    found = {task.task: {hit.hole for hit in task.hits} for task in attacked}
    assert found["spiral_matrix"] >= {Hole.CODE, Hole.POISON, Hole.HANG, Hole.CRASH}
    assert Hole.FREE_REWARD in found["complex_arithmetic"] & found["syllogism"]
    assert [task.task for task in attacked if task.fails] == ["complex_arithmetic", "spiral_matrix", "syllogism"]


@pytest.mark.parametrize(
    ("task", "holes"),
    [
        ("careful", ()),
        ("evaluating", ("code", "crash", "hang", "poison")),
        ("measuring", ("free reward",)),
    ],
)
def test_a_users_own_scorer_is_attacked(tmp_path: Path, task: str, holes: tuple[str, ...]) -> None:
    (tmp_path / "attacked_tasks.py").write_text(USERS)
    command = [sys.executable, "-m", "rg_env", "attack", "--imports", "attacked_tasks", "--tasks", task, "--items", "8"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == bool(holes), done.stderr
    assert f"an answer can use: {task if holes else 'none'} ({int(bool(holes))} of 1 tasks)" in done.stdout
    assert {hole.value for hole in Hole if f"{hole} ×" in " ".join(done.stdout.split())} == set(holes)


@pytest.mark.parametrize(
    ("rule", "holes"),
    [
        (lambda entry, answer: float(answer == entry["answer"]), set()),
        (lambda entry, answer: 0.35 * (answer == "the"), {Hole.FREE_REWARD}),
        (lambda entry, answer: float(answer == entry["question"]), {Hole.FREE_REWARD}),
        (lambda entry, answer: -1.0 if len(answer) > 7000 else float(answer == entry["answer"]), set()),
    ],
)
def test_what_pays_for_nothing_is_a_hole_and_a_busy_machine_is_none(
    monkeypatch: pytest.MonkeyPatch, rule: Rule, holes: set[Hole]
) -> None:
    monkeypatch.setattr("rg_env.attack.run.Scorer", scored_by(rule))
    (attacked,) = attack_tasks("syllogism", items=20)
    assert {hit.hole for hit in attacked.hits} == holes


def test_a_machine_without_a_free_core_poisons_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = iter(range(10**9))
    rule = scored_by(lambda entry, answer: -1.0 if next(asked) % 3 else 0.0)
    monkeypatch.setattr("rg_env.attack.run.Scorer", rule)
    assert attack_tasks("gcd", items=2)[0].hits == ()


def test_an_answer_that_is_right_on_most_items_is_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    right = scored_by(lambda entry, answer: float(answer == entry["answer"]))
    monkeypatch.setattr("rg_env.attack.run.Scorer", right)
    tasks = "aiw,syllogism"  # the last number + 1; Yes, on two thirds of the items, of two answers
    assert [{hit.hole for hit in task.hits} for task in attack_tasks(tasks, items=60)] == [{Hole.OFTEN_RIGHT}, set()]


def test_attacks_have_names_of_their_own_and_a_length_below_the_limit() -> None:
    every = attacks("/canary", [])
    assert len({attack.name for attack in every}) == len(every)
    lengths = sorted({len(attack.answer("What is 1 + 1?") or "") for attack in every})
    assert lengths[-1] <= 8192
    assert sum(length > 1900 for length in lengths) > 10


@pytest.mark.parametrize(
    ("hits", "counts", "code"),
    [
        ((), True, 0),
        ((Hit(Hole.HANG, "a"),), True, 0),
        ((Hit(Hole.CODE, "a"),), True, 1),
        ((Hit(Hole.CODE, "a"),), False, 0),
    ],
)
def test_the_exit_code_says_whether_a_task_that_counts_has_a_hole(
    monkeypatch: pytest.MonkeyPatch, hits: tuple[Hit, ...], counts: bool, code: int
) -> None:
    monkeypatch.setattr("rg_env.attack.run.attack_tasks", lambda *_: [AttackedTask("a", counts, hits)])
    assert CliRunner().invoke(app, ["attack"]).exit_code == code


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_no_task_of_the_default_mix_has_a_hole() -> None:
    assert [task for task in attack_tasks() if task.fails] == []
