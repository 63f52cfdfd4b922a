"""The audit finds what is there, and nothing where nothing is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rg_env.audit import Audit, Hit, Hole, Kind, TaskAudit, attacks, run_audit
from rg_env.cli import app
from rg_env.scoring import guard

TASKS = "spiral_matrix,complex_arithmetic,prime_factorization,syllogism,gcd"
USERS = """
from dataclasses import dataclass
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
        number = self.seed + index
        return {"question": f"What is {number} + 1?", "answer": str(number + 1), "metadata": {}}
class Careful(Base):
    def score_answer(self, answer, entry):
        return float(answer == entry["answer"])
class Careless(Base):
    def score_answer(self, answer, entry):
        if answer.startswith("many") or entry["answer"] in answer:
            return 1.0
        return float(str(eval(answer)) == entry["answer"])
for name, found in {"audit_careful": Careful, "audit_careless": Careless}.items():
    if name not in reasoning_gym.factory.DATASETS:
        reasoning_gym.register_dataset(name, found, Config)
"""


def holes(audit: Audit) -> dict[str, set[Hole]]:
    return {task.task: {hit.hole for hit in task.hits} for task in audit.tasks}


def test_known_holes_of_scorers_are_found_where_no_answer_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "admit", lambda entry, answer: guard.Admitted(answer, f"<answer>{answer}</answer>"))
    unguarded = run_audit(TASKS, items=6, quick=True, deadline=0.5)
    found = holes(unguarded)
    assert found["spiral_matrix"] >= {Hole.CODE, Hole.POISON, Hole.HANG, Hole.CRASH}
    assert found["complex_arithmetic"] >= {Hole.FREE_REWARD}
    assert found["prime_factorization"] >= {Hole.EXCEPTION}
    assert found["syllogism"] >= {Hole.FREE_REWARD}
    assert found["gcd"] == set()
    assert set(unguarded.failed) >= {"spiral_matrix", "complex_arithmetic", "syllogism"}
    assert "gcd" not in unguarded.failed


def test_with_the_guard_nothing_is_left() -> None:
    audit = run_audit(TASKS.replace("prime_factorization,", ""), items=6, quick=True)
    assert holes(audit) == {task.task: set() for task in audit.tasks}
    assert audit.failed == ()
    read = json.loads(json.dumps(audit.as_dict()))
    assert {"items", "deadline", "tasks", "failed"} <= set(read)


@pytest.mark.parametrize(("task", "code"), [("audit_careful", 0), ("audit_careless", 1)])
def test_a_users_own_scorer_is_audited(tmp_path: Path, task: str, code: int) -> None:
    (tmp_path / "rg_env_audited_task.py").write_text(USERS)
    command = [sys.executable, "-m", "rg_env", "audit", "--imports", "rg_env_audited_task", "--tasks", task, "--json"]
    done = subprocess.run(
        [*command, "--items", "4", "--quick"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == code, done.stderr
    read = json.loads(done.stdout)
    assert read["failed"] == ([task] if code else [])
    found = {hit["hole"] for hit in read["tasks"][0]["hits"]}
    assert found >= {Hole.CODE, Hole.EXCEPTION, Hole.CRASH} if code else found == set()


def test_attacks_have_names_of_their_own() -> None:
    assert len({attack.name for attack in attacks()}) == len(attacks()) >= 150
    assert {attack.kind for attack in attacks(quick=True)} == set(Kind)
    assert len(attacks(quick=True)) < 50


HIT = (Hit(Hole.CODE, "p", "t"),)


@pytest.mark.parametrize(
    ("task", "code"),
    [
        (TaskAudit("a", True, "sound"), 0),
        (TaskAudit("a", True, "sound", (Hit(Hole.HANG, "p", "t"),)), 0),
        (TaskAudit("a", True, "sound", HIT), 1),
        (TaskAudit("a", False, "unsound", HIT), 0),
        (TaskAudit("a", True, "sound", problem="makes no items"), 1),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_exit_code_says_whether_a_task_that_counts_has_a_hole(
    monkeypatch: pytest.MonkeyPatch, task: TaskAudit, code: int, form: list[str]
) -> None:
    monkeypatch.setattr("rg_env.audit.command.run_audit", lambda *_, **__: Audit(1, 1.0, (task,)))
    done = CliRunner().invoke(app, ["audit", *form])
    assert done.exit_code == code, done.output


@pytest.mark.parametrize("args", [["--items", "0"], ["--nonsense"]])
def test_misuse_is_exit_code_2(args: list[str]) -> None:
    assert CliRunner().invoke(app, ["audit", *args]).exit_code == 2


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_full_audit_finds_no_hole_in_the_default_mix() -> None:
    assert run_audit().failed == ()
