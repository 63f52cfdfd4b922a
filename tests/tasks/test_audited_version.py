"""Which version of reasoning-gym is accepted, and which of its scorers evaluate."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from rg_env.base.errors import ConfigError
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.scoring.guard import REWRITES
from rg_env.scoring.upstream import make_scorer
from rg_env.tasks import registry, soundness, task_names
from rg_env.tasks.mix import TaskMix
from rg_env.tasks.upstream.patched_dataset import reasoning_gym, registered

_EVALUATES = re.compile(r"\b(eval|exec|compile|parse_expr|sympify|parse_latex)\(")


@pytest.fixture(autouse=True)
def fresh_registry() -> Iterator[None]:
    yield
    reasoning_gym.cache_clear()


def test_the_audited_tasks_are_those_of_the_pinned_version() -> None:
    assert soundness.AUDITED_VERSION == soundness.installed_version() == "0.1.25"
    assert set(task_names()) == soundness.AUDITED_TASKS
    soundness.check_audited()


def test_every_module_with_a_scorer_that_evaluates_an_answer_is_guarded() -> None:
    """In the source of the whole module, so that a helper that the scorer calls counts as well."""
    evaluating = {
        task
        for task, (found, _) in registered().items()
        if _EVALUATES.search(re.sub(r"re\.compile\(", "", inspect.getsource(inspect.getmodule(found))))  # type: ignore[arg-type]
    }
    # What these evaluate, no model wrote: the question, the item's own answer, or what a generator makes.
    harmless = {"basic_arithmetic", "bf", "bitwise_arithmetic", "codeio", "number_sorting", "propositional_logic"}
    assert evaluating - harmless == REWRITES.keys()
    assert harmless <= evaluating


@pytest.fixture
def other_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reasoning-gym of another version."""
    monkeypatch.setattr(soundness, "installed_version", lambda: "0.2.0")
    reasoning_gym.cache_clear()


@pytest.mark.usefixtures("other_version")
@pytest.mark.parametrize("is_imported", [True, False])
def test_another_version_is_one_clear_error(is_imported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_imported:
        monkeypatch.setattr(registry, "sys", SimpleNamespace(modules={}))
    for use in (task_names, TaskMix.parse, lambda: ReasoningGymDataset(["gcd"]), lambda: make_scorer("gcd", {})):
        with pytest.raises(ConfigError) as error:
            use()
        assert str(error.value) == (
            "reasoning-gym 0.2.0 is installed, but only the scorers of 0.1.25 were audited: "
            "pip install reasoning-gym==0.1.25"
        )
