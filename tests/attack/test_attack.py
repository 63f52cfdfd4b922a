"""The attacks find what is there, and nothing where nothing is."""

from __future__ import annotations

import itertools
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rg_env.attack.attack_run import Hit, Hole, attack_tasks
from rg_env.attack.attacks import attacks
from rg_env.scoring import AnswerScore, Scorer, Status
from tests.running import ROOT, run_command

Rule = Callable[[Mapping[str, Any], str], float]


@pytest.mark.long
def test_users_own_scorers_are_attacked(tmp_path: Path) -> None:
    tasks: dict[str, set[str]] = {
        "careful": set(),
        "evaluating": {"code", "growth"},
        "fragile": {"crash", "hang"},
        "measuring": {"free reward"},
        "remembering": {"poison"},
    }
    shutil.copy(ROOT / "tests" / "programs" / "attacked_tasks.py", tmp_path)
    main = "import rg_env.attack.attack_run as run; run._DEADLINE = 0.3; from rg_env.cli import main; main()"
    options = ["--imports", "attacked_tasks", "--tasks", ",".join(tasks), "--items", "8"]
    done = run_command(sys.executable, "-c", main, "attack", *options, cwd=tmp_path, check=False)
    assert done.returncode == 1, done.stderr
    assert "an answer can use: evaluating, measuring, remembering (3 of 5 tasks)" in done.stdout
    rows = re.split("|".join(f"^ {task} " for task in tasks), done.stdout, flags=re.MULTILINE)[1:]
    for row, holes in zip(rows, tasks.values(), strict=True):
        assert {hole.value for hole in Hole if f"{hole} ×" in " ".join(row.split())} == holes


ASKED = itertools.count()


def right(entry: Mapping[str, Any], answer: str) -> float:
    return float(answer == entry["answer"])


@pytest.mark.parametrize(
    ("task", "rule", "holes"),
    [
        ("syllogism", right, set()),  # Yes is right on two thirds of the items, of two answers
        ("aiw", right, {Hole.OFTEN_RIGHT}),  # the last number + 1
        ("gcd", lambda entry, answer: 0.35 * (answer == "the"), {Hole.FREE_REWARD}),
        ("gcd", lambda entry, answer: -1 if len(answer) > 7000 else right(entry, answer), set()),
        ("gcd", lambda entry, answer: -1 if next(ASKED) % 3 else 0, set()),
    ],
)
def test_what_pays_for_nothing_is_a_hole_and_a_busy_machine_poisons_nothing(
    monkeypatch: pytest.MonkeyPatch, task: str, rule: Rule, holes: set[Hole]
) -> None:
    class ByRule:
        def __init__(self, **_: Any) -> None: ...
        def __enter__(self) -> ByRule:
            return self

        def __exit__(self, *_: object) -> None: ...
        def score_answer(self, entry: Mapping[str, Any], answer: str, config: object = None) -> AnswerScore:
            score = rule(entry, answer)
            excused = AnswerScore.without_score(Status.TIMEOUT, excused=True)
            return excused if score < 0 else AnswerScore(score, 0.0, score, Status.OK)

    monkeypatch.setattr("rg_env.attack.attack_run.Scorer", ByRule)
    monkeypatch.setattr("rg_env.attack.attack_run._probe", lambda *_: [])
    (attacked,) = attack_tasks(task, items=30)
    assert {hit.hole for hit in attacked.hits} == holes


def test_items_scorer_and_probes_have_the_options_of_the_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"min_terms": 5, "max_terms": 5}
    probed: list[Mapping[str, Any]] = []
    scored: list[tuple[int, object]] = []
    score = Scorer.score_answer

    def noting(self: Scorer, entry: Mapping[str, Any], answer: str, config: Any = None) -> AnswerScore:
        scored.append((entry["metadata"]["num_terms"], config))
        return score(self, entry, answer, config)

    def probe(entry: Mapping[str, Any], of_task: Mapping[str, Any]) -> list[Hit]:
        probed.append(of_task)
        return []

    monkeypatch.setattr(Scorer, "score_answer", noting)
    monkeypatch.setattr("rg_env.attack.attack_run._probe", probe)
    monkeypatch.setattr("rg_env.attack.attack_run.attacks", lambda *_: attacks([])[:1])
    (attacked,) = attack_tasks(f"chain_sum: {{config: {options}}}", items=1)
    assert not attacked.problem and probed == [options]
    assert scored and all(seen == (5, options) for seen in scored)


def test_attacks_have_names_of_their_own_and_lengths_up_to_the_limit() -> None:
    every = attacks([])
    assert len({attack.name for attack in every}) == len(every)
    lengths = [len(attack.answer("What is 1 + 1?") or "") for attack in every]
    assert max(lengths) <= 8192
    assert sum(length > 1900 for length in lengths) > 10


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_no_task_of_the_default_mix_has_a_hole() -> None:
    assert [task for task in attack_tasks() if task.fails] == []
