"""Which version is accepted, what the digests cover, and what `rg-env audit --record` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rg_env.dataset import ReasoningGymDataset
from rg_env.errors import ConfigError
from rg_env.scoring.guard import EVALUATING_TASKS
from rg_env.scoring.workers.worker import make_scorer
from rg_env.tasks import audited, task_categories, task_names
from rg_env.tasks.mix import TaskMix
from rg_env.tasks.upstream.dataset import reasoning_gym, registered

CLASSES = {task: dataset_class for task, (dataset_class, _) in registered().items()}


@pytest.fixture
def record_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A record in place of `audited.json`, which stays as it is."""
    known = audited._RECORD.read_text()
    assert json.loads(known) == audited._record()
    monkeypatch.setattr(audited, "_RECORD", tmp_path / "audited.json")
    yield audited._RECORD
    audited._record.cache_clear()


@pytest.fixture(autouse=True)
def fresh_registry() -> Iterator[None]:
    yield
    reasoning_gym.cache_clear()
    task_categories.cache_clear()


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


@pytest.mark.parametrize("scorer", [Direct, ByWayOfAHelper, Nested, Renamed])
def test_a_scorer_that_evaluates_is_not_recorded_unless_guarded(scorer: type[Base], record_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"'mine'.*eval.*no guard"):
        audited.record({"mine": scorer}, frozenset())
    assert not record_file.exists()
    audited.record({"mine": scorer}, frozenset({"mine"}))
    assert json.loads(record_file.read_text())["scorers"].keys() == {"mine"}


def test_what_the_scorer_does_not_reach_is_not_counted() -> None:
    assert audited.evaluating_calls(Harmless) == ()


def test_every_evaluating_scorer_of_the_audited_version_is_guarded_or_known() -> None:
    evaluating = {task for task, found in CLASSES.items() if audited.evaluating_calls(found)}
    # two evaluate their own question, which no model wrote; the last has a plain parser named `parse_expr`
    assert evaluating == EVALUATING_TASKS | {"bitwise_arithmetic", "number_sorting", "propositional_logic"}


def test_the_record_is_that_of_the_pinned_version() -> None:
    assert audited.audited_version() == "0.1.25"
    assert audited.changed_scorers(CLASSES) == ()
    assert set(audited._record()["scorers"]) == set(task_names())
    audited.check_audited()


def test_recording_names_what_changed_and_repeats_itself(record_file: Path) -> None:
    before = audited._record()
    known = {"reasoning_gym": "0.0.1", "scorers": {**before["scorers"], "gcd": "0" * 64}}
    del known["scorers"]["lcm"]
    record_file.write_text(json.dumps(known))
    audited._record.cache_clear()
    assert audited.record(CLASSES, EVALUATING_TASKS) == ("gcd", "lcm")
    assert json.loads(record_file.read_text()) == before
    assert audited.record(CLASSES, EVALUATING_TASKS) == ()


@pytest.fixture
def other_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reasoning-gym of another version."""
    monkeypatch.setattr(audited, "installed_version", lambda: "0.2.0")
    monkeypatch.delenv(audited.UNAUDITED_VARIABLE, raising=False)
    reasoning_gym.cache_clear()
    task_categories.cache_clear()


@pytest.mark.usefixtures("other_version")
@pytest.mark.parametrize("use", [task_names, TaskMix.parse, lambda: ReasoningGymDataset(["gcd"])])
def test_another_version_is_one_clear_error(use: Callable[[], object]) -> None:
    with pytest.raises(ConfigError) as error:
        use()
    assert str(error.value) == (
        "reasoning-gym 0.2.0 is installed, but only the scorers of 0.1.25 were audited: "
        "pip install reasoning-gym==0.1.25 (maintainers: `rg-env audit --record`)"
    )


@pytest.mark.usefixtures("other_version")
def test_workers_do_not_score_with_another_version() -> None:
    assert "only the scorers of 0.1.25 were audited" in make_scorer("gcd", {})


@pytest.mark.usefixtures("other_version")
def test_an_audit_may_use_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(audited.UNAUDITED_VARIABLE, "1")
    assert "gcd" in task_names()
    assert not isinstance(make_scorer("gcd", {}), str)


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
