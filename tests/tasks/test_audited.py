"""Which scorers count as audited, and which are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import reasoning_gym
from reasoning_gym.factory import DATASETS

from rg_env.errors import ConfigError
from rg_env.scoring.guard import EVALUATING_TASKS
from rg_env.scoring.workers.worker import make_scorer
from rg_env.tasks import audited, task_names
from rg_env.tasks.mix import TaskMix
from rg_env.tasks.soundness import Soundness, reason_for, soundness_of


def helper(text: str) -> float:
    return float(eval(text))


class Base:
    def __init__(self, config: Any = None) -> None:
        self.config = config

    def score_answer(self, answer: str, entry: dict[str, Any]) -> float:
        return self.judge(answer)


class Direct(Base):
    def judge(self, answer: str) -> float:
        return float(eval(answer))


class ByWayOfAHelper(Base):
    @staticmethod
    def judge(answer: str) -> float:
        return helper(answer)


class Nested(Base):
    def judge(self, answer: str) -> float:
        return max((lambda text: helper(text))(part) for part in [answer])


class Renamed(Base):
    def judge(self, answer: str) -> float:
        run = eval
        return float(run(answer))


class Harmless(Base):
    pattern = re.compile("a")

    def judge(self, answer: str) -> float:
        return float(re.compile("b").fullmatch(answer) is not None)

    def make(self) -> int:
        return int(eval("1"))  # a generator's own business


@pytest.fixture
def fake_task() -> Iterator[str]:
    from dataclasses import dataclass

    @dataclass
    class Config:
        size: int = 1
        seed: int = 0

    DATASETS["fake_task"] = (Direct, Config)
    yield "fake_task"
    del DATASETS["fake_task"]


@pytest.mark.parametrize("scorer", [Direct, ByWayOfAHelper, Nested, Renamed])
def test_a_scorer_that_evaluates_is_refused_unless_guarded(scorer: type[Base]) -> None:
    with pytest.raises(ConfigError, match=r"'mine'.*eval"):
        audited.refuse_unguarded("mine", scorer, frozenset())
    audited.refuse_unguarded("mine", scorer, frozenset({"mine"}))


def test_what_the_scorer_does_not_reach_is_not_held_against_it() -> None:
    assert audited.evaluating_calls(Harmless) == ()


def test_workers_make_no_scorer_that_evaluates_unguarded(fake_task: str) -> None:
    refusal = make_scorer(fake_task, {})
    assert isinstance(refusal, str)
    assert "no guard" in refusal


def test_every_evaluating_scorer_of_the_audited_version_is_guarded_or_known() -> None:
    evaluating = {task for task in task_names() if audited.evaluating_calls(DATASETS[task][0])}
    # two evaluate their own question, which no model wrote; the last has a plain parser by the name of `parse_expr`
    assert evaluating == EVALUATING_TASKS | {"bitwise_arithmetic", "number_sorting", "propositional_logic"}


def test_the_record_is_that_of_the_pinned_version() -> None:
    assert audited.audited_version() == "0.1.25"
    assert audited.changed_since(audited._record()["scorers"], audited._dataset_classes()) == ()
    assert set(audited._record()["scorers"]) == set(task_names())
    assert audited.changed_tasks() == ()


def test_another_version_names_the_tasks_whose_scorers_changed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(audited, "installed_version", lambda: "0.2.0")
    monkeypatch.setattr(audited.logger, "warning", lambda text, *args: said.append(text.format(*args)))
    monkeypatch.setitem(DATASETS, "gcd", (Harmless, DATASETS["gcd"][1]))
    audited.changed_tasks.cache_clear()
    try:
        assert [audited.changed_tasks() for _ in range(3)] == [("gcd",)] * 3
    finally:
        audited.changed_tasks.cache_clear()
    assert len(said) == 1
    assert said[0].endswith(": gcd")
    assert "0.2.0" in said[0]


def test_a_digest_changes_with_a_helper_and_not_with_the_generator(tmp_path: Any, monkeypatch: Any) -> None:
    text = (
        "def helper(a): return {0}\nclass D:\n    def score_answer(self, answer, entry): return helper(answer)\n"
        "    def make(self): return {1}\n"
    )
    digests = []
    for number, (score, item) in enumerate([(0, 0), (0, 1), (1, 0)]):
        (tmp_path / f"fake{number}.py").write_text(text.format(score, item))
        monkeypatch.syspath_prepend(str(tmp_path))
        digests.append(audited.scorer_digest(__import__(f"fake{number}").D))
    assert digests[0] == digests[1] != digests[2]


def test_a_new_scorer_that_is_the_audited_one_may_evaluate_its_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audited, "installed_version", lambda: "0.2.0")
    number_sorting = type(reasoning_gym.create_dataset("number_sorting", size=1))
    audited.refuse_unguarded("number_sorting", number_sorting, frozenset())
    with pytest.raises(ConfigError):
        audited.refuse_unguarded("other_task", number_sorting, frozenset())


@pytest.fixture
def another_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A reasoning-gym of another version, in which one scorer differs from the audited one."""
    known = {"reasoning_gym": "0.0.1", "scorers": {**audited._record()["scorers"], "gcd": "0" * 64}}
    monkeypatch.setattr(audited, "_record", lambda: known)
    audited.changed_tasks.cache_clear()
    yield
    audited.changed_tasks.cache_clear()


@pytest.mark.usefixtures("another_version")
def test_a_task_whose_scorer_changed_is_unsound_until_audited() -> None:
    assert soundness_of("gcd") is Soundness.UNSOUND
    assert "0.0.1" in reason_for("gcd") and "rg-env audit" in reason_for("gcd")
    names = {task.name for task in TaskMix.parse(None).tasks}
    assert "gcd" not in names and "lcm" in names
    assert [task.name for task in TaskMix.parse(["gcd"]).tasks] == ["gcd"]  # an explicit wish


def test_where_no_scorer_is_the_audited_one_there_is_no_default_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rg_env.tasks.mix.soundness_of", lambda task: Soundness.UNSOUND)
    with pytest.raises(ConfigError, match="no task can be trusted"):
        TaskMix.parse(None)
