"""What other people's code, files and scripts rely on is there: names, entrypoints, commands."""

from collections.abc import Iterator
from typing import Any

import pytest
import skyrl_gym
import typer

import rg_env
import rg_env.scoring
from rg_env.cli import app
from rg_env.cli.base import commands_of
from rg_env.dump import open_run
from rg_env.rows.dataset import ReasoningGymDataset
from tests.running import run_program


@pytest.mark.parametrize("name", rg_env.__all__)
def test_public_names_can_be_imported_and_are_listed(name):
    namespace = {}
    exec(f"from rg_env import {name}", namespace)
    assert namespace[name].__name__.removeprefix("rg_env.") == name
    public = [listed for listed in dir(rg_env) if not listed.startswith("__")]
    assert public == sorted(rg_env.__all__) and "__version__" in dir(rg_env)
    with pytest.raises(AttributeError, match=f"no attribute '{name}s'"):
        getattr(rg_env, f"{name}s")


def test_the_names_of_scoring_can_be_imported():
    names = {"parse_response", "length_penalty", "group_penalty", "Scorer", "shared_scorer", "Verdict", "AnswerScore"}
    assert names <= set(rg_env.scoring.__all__)
    assert all(hasattr(rg_env.scoring, name) for name in rg_env.scoring.__all__)


def test_importing_the_package_imports_nothing_heavy():
    assert run_program("loaded", "rg_env").stdout == "[]\n"


def test_register_makes_the_environment_known():
    for _ in range(2):
        rg_env.register()
    _, _, extras, _ = ReasoningGymDataset(["chain_sum"], size=1)[0]
    env = skyrl_gym.make("rg_dump", env_config=rg_env.RGDumpConfig(), extras=extras)
    answer = extras["reward_spec"]["ground_truth"]
    step = env.step(f"<think>sum</think><answer>{answer}</answer>")
    assert step["reward"] == 1.0
    assert step["done"]


def test_entrypoints():
    import rg_env.train

    assert callable(rg_env.train.main)  # what SkyRL's `trainer.override_entrypoint=rg_env.train` calls
    assert callable(open_run)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in commands_of(command).items():
        yield from commands(inner, (*path, name))


def test_every_command_that_was_promised_is_there():
    promised = {"train", "eval", "tasks", "dataset", "score", "attack"}
    promised |= {f"dumps {name}" for name in ("stats", "show", "report", "export", "validate", "rescore")}
    names = {" ".join(path) for path in commands(typer.main.get_command(app))}
    assert promised <= names
