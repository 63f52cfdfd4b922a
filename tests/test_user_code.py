"""Modules, reward functions and experiments of users: found, loaded, and one line where they are wrong."""

import asyncio
import re
import sys
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from rg_env.base.errors import RGEnvError
from rg_env.configuration.config import RGDumpConfig
from rg_env.configuration.modules import UserCodeError
from rg_env.configuration.user_code import import_modules, in_user_code, load_object
from rg_env.dump import open_run
from rg_env.dump.validate import validate
from rg_env.rollouts import rewards as rewards_module
from rg_env.rollouts.rewards import RewardFunction, load_reward, set_rewards, try_reward_function
from rg_env.rollouts.rollout import Origin, Rollout, Stopwatch, group_record
from rg_env.scoring import AnswerScore, Status, Verdict, parse_response
from rg_env.skyrl.train_config import load_run
from rg_env.tasks import Item
from tests.documents import ROOT, blocks, python_blocks
from tests.evaluate.server import completion, serving
from tests.running import run_command, run_program

GOOD = "<think>1</think><answer>2</answer>"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module into the current folder, under a name that no other test uses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("RG_ENV_IMPORTS", raising=False)
    monkeypatch.setenv("RG_ENV_IMPORTS", "")
    name = f"user_{tmp_path.name}"

    def write(text):
        Path(f"{name}.py").write_text(text)
        return name

    yield write
    sys.modules.pop(name, None)


def verdict(score):
    return Verdict(parse_response(GOOD), AnswerScore(score, 0.0, score, Status.OK))


def rewards_of(reward, *scores, **config):
    group = [Rollout(verdict(score), 5, "stop") for score in scores]
    settings = RGDumpConfig(**config)
    custom = reward.rate(group, settings) if reward else None
    set_rewards(group, settings, max_length=100, penalize=True, custom=custom)
    return group


def test_a_reward_function_replaces_the_base_score_before_bonus_and_penalty():
    function = RewardFunction(lambda rollouts: [2 * rollout.verdict.scored.score - 1 for rollout in rollouts])
    rewards = rewards_of(function, 1.0, 0.25, format_bonus=0.5)
    assert [(one.score, one.custom_reward, one.reward) for one in rewards] == [(1.0, 1.0, 1.5), (0.25, -0.5, 0.0)]
    assert not any(one.masked for one in rewards)
    assert all(one.custom_reward is None and not one.reward_error for one in rewards_of(None, 1.0, 0.5))


def raising(rollouts):
    raise KeyError("colour")


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 0.0],
        (True, False),
        np.array([1.0, 0.0]),
        np.array([True, False]),
        [Decimal(1), Decimal(0)],
        {"a": 1, "b": 0}.values(),
    ],
)
def test_numbers_of_every_kind_are_rewards(values):
    for function in (lambda rollouts: values, lambda rollouts: (value for value in values)):
        assert [one.reward for one in rewards_of(RewardFunction(function), 0.3, 0.2)] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda rollouts: [1.0], "1 values for 2 rollouts"),
        (lambda rollouts: [1.0, float("nan")], "not finite"),
        (lambda rollouts: [1.0, float("inf")], "not finite"),
        (lambda rollouts: None, "returned nothing, not one number for each rollout"),
        (lambda rollouts: ["1", "0"], "the text '1' in place of a number"),
        (lambda rollouts: np.array(["1", "0"]), "in place of a number"),
        (lambda rollouts: "10", "returned a str, '10', not a list"),
        (lambda rollouts: b"10", "returned a bytes"),
        (lambda rollouts: {1: 0.5, 0: 0.7}, "returned a dict, {1: 0.5, 0: 0.7}, not a list"),
        (lambda rollouts: {0.5, 0.7}, "returned a set"),
        (lambda rollouts: frozenset((0.5, 0.7)), "returned a frozenset"),
        (lambda rollouts: {1: 0.5, 0: 0.7}.keys(), "returned a dict_keys"),
        (raising, "KeyError: 'colour'"),
        (lambda rollouts: sys.exit(), "SystemExit"),
    ],
)
def test_a_reward_function_that_fails_keeps_its_group_out_of_the_loss(function, error):
    rewards = rewards_of(RewardFunction(function), 1.0, 0.0)
    assert all(one.masked and one.reward == 0 and error in one.reward_error for one in rewards)
    assert [one.score for one in rewards] == [1.0, 0.0]
    item = Item.from_extra_info(a_row()["extra_info"])
    record = group_record(Origin("20261121-053012-ab12", 1, "train", 1, 0), item, "0", rewards, 0.99)
    assert {rollout.status for rollout in record.rollouts} == {Status.REWARD_ERROR}
    assert record.outcome == "mixed" and [r.base_score for r in record.rollouts] == [1.0, 0.0]
    assert all(error in rollout.detail and rollout.custom_reward is None for rollout in record.rollouts)


def test_a_reward_function_is_tried_before_a_run_starts(module):
    name = module("def reward(rollouts):\n    return [rollout.score for rollout in rollouts]\n")
    with pytest.raises(RGEnvError, match=rf"fails on a made-up group: \S+{name}.py:2: AttributeError"):
        load_run([f"environment.skyrl_gym.rg_dump.reward={name}.reward", "environment.env_class=rg_dump"])


def test_a_mapping_in_place_of_a_list_is_refused_before_a_run_starts(module):
    name = module("def reward(rollouts):\n    return {one.repetition: one.verdict.scored.score for one in rollouts}\n")
    with pytest.raises(RGEnvError, match="fails on a made-up group: the reward function returned a dict") as refused:
        load_run([f"environment.skyrl_gym.rg_dump.reward={name}.reward", "environment.env_class=rg_dump"])
    assert len([line for line in str(refused.value).splitlines() if "reward" in line]) == 1


def test_calls_run_one_after_another_and_block_no_event_loop():
    running, most = 0, 0

    def slow(rollouts):
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.05)
        running -= 1
        return [1.0] * len(rollouts)

    async def five_groups():
        function, ticks = RewardFunction(slow), 0
        calls = asyncio.gather(*(function.rate_async([Rollout(verdict(1.0))], RGDumpConfig()) for _ in range(5)))
        while not calls.done():
            ticks += 1
            await asyncio.sleep(0.001)
        return await calls, ticks

    values, ticks = asyncio.run(five_groups())
    assert values == [[1.0]] * 5 and most == 1
    assert ticks > 5


def test_a_coroutine_function_is_awaited_in_one_event_loop():
    loops = set()

    async def patient(rollouts):
        await asyncio.sleep(0)
        loops.add(asyncio.get_running_loop())
        return [0.5 for _ in rollouts]

    function = RewardFunction(patient)
    assert [function.rate([Rollout(verdict(1.0))], RGDumpConfig()) for _ in range(2)] == [[0.5]] * 2
    assert len(loops) == 1


def test_a_slow_call_is_said_once(monkeypatch, warnings):
    monkeypatch.setattr(rewards_module, "_SLOW", 0.01)
    function = RewardFunction(lambda rollouts: [time.sleep(0.1) or 1.0])
    for _ in range(2):
        assert function.rate([Rollout(verdict(1.0))], RGDumpConfig()) == [1.0]
    assert len([line for line in warnings if "reward function takes over" in line]) == 1


def test_the_examples_make_tokens_and_time_cost_something():
    """As docs/your-code.md shows them."""

    def rollout(score, tokens, seconds, stop_reason="stop"):
        watch = Stopwatch()
        watch.generation = seconds
        return Rollout(verdict(score), tokens, stop_reason, stopwatch=watch)

    group = [rollout(1.0, 1000, 1.0), rollout(1.0, 3000, 4.0), rollout(1.0, 100, 1.0, "length")]
    wrong = [rollout(0.0, 1000, 1.0), rollout(0.0, 1, 4.0)]
    of_tokens = load_reward(RGDumpConfig(reward="examples.costs.of_tokens"))
    of_time = load_reward(RGDumpConfig(reward="examples.costs:of_time"))
    assert of_tokens.rate(group, RGDumpConfig()) == pytest.approx([0.9, 0.7, 0.0])
    assert of_time.rate(group, RGDumpConfig()) == pytest.approx([1.0, 0.85, 1.0])
    for function in (of_tokens, of_time):
        assert function.rate(wrong, RGDumpConfig()) == [0.0, 0.0]  # no signal, which would teach to say nothing
        try_reward_function(function)


def a_row():
    from rg_env import ReasoningGymDataset

    return ReasoningGymDataset(["chain_sum"], size=1).row(0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1 /\n", ":1: SyntaxError"),
        ("import math\nx = 1 / 0\n", ":2: ZeroDivisionError: division by zero"),
        (
            "x = 1\nraise SystemExit(3)\n",
            ":2: importing the module {name} exits the process; put what ends it under `if",
        ),
        ("import no_such_package\n", ":1: ModuleNotFoundError: No module named 'no_such_package'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_line_with_its_place(module, text, expected):
    name = module(text)
    with pytest.raises(UserCodeError) as error:
        import_modules(RGDumpConfig(imports=[name]))
    assert f"{name}.py{expected}".replace("{name}", name) in str(error.value)
    assert "\n" not in str(error.value)


def test_what_does_not_exist_is_named(module):
    name = module("def reward(rollouts): ...\nnumber = 3\n")
    with pytest.raises(UserCodeError, match="no module 'no_such_module'"):
        import_modules(RGDumpConfig(imports=["no_such_module"]))
    import_modules(RGDumpConfig(imports=[name]))
    with pytest.raises(RGEnvError, match="has no 'rewrad'"):
        load_object("reward", f"{name}.rewrad")
    with pytest.raises(RGEnvError, match="is not a function"):
        load_reward(RGDumpConfig(reward=f"{name}.number"))


def test_an_error_during_a_run_is_one_line_and_its_first_traceback_is_in_the_log(module, tmp_path):
    name = module("def reward(rollouts):\n    return [1 / 0 for verdict in rollouts]\n")
    config = RGDumpConfig(reward=f"{name}.reward")
    import_modules(config)
    log = tmp_path / "logs" / "user_code.log"
    for _ in range(2):
        rewards = rewards_of(load_reward(config, str(log.parent)), 1.0)
    line = f"{tmp_path / name}.py:2: ZeroDivisionError: division by zero"
    assert rewards[0].reward_error == f"{line}; the traceback is in {log}"
    assert log.read_text().count("Traceback") == 1
    with pytest.raises(ZeroDivisionError) as raised:
        load_object("reward", config.reward)([1])
    assert str(in_user_code(raised.value, config, None)) == line
    with pytest.raises(ZeroDivisionError) as other:
        1 / 0  # noqa: B018
    assert in_user_code(other.value, config, str(tmp_path)) is None


def test_a_custom_task_is_scored_in_the_scorer_processes():
    """In a process of its own, because a task cannot be unregistered."""
    done = run_program("custom_task")
    assert done.stdout.split() == ["1.0", "0.0", "custom", "True"], done.stderr


def test_the_code_in_the_docs_is_that_of_the_examples():
    parts = [block for block in python_blocks(ROOT / "docs" / "your-code.md") if block.marks]
    assert len(parts) == 2
    for block in parts:
        assert block.code in (ROOT / block.marks[0].reason.removeprefix("part of ")).read_text()
    _, settings = [block.code for block in blocks(ROOT / "docs" / "your-code.md") if block.kind == "yaml"]
    assert settings in (ROOT / "examples" / "my_task.yaml").read_text()


def rg_env(*args, cwd):
    command = (sys.executable, "-m", "rg_env", *args)
    return run_command(*command, cwd=cwd, check=False, env={"PYTHONPATH": str(ROOT)})


@pytest.mark.long
def test_every_command_finds_a_task_of_a_module(tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    (here / "my_double.py").write_text((ROOT / "examples" / "my_task.py").read_text())
    options = ("--imports", "my_double")
    assert "What is" in rg_env("score", "double", *options, cwd=here).stdout
    with serving(lambda *_: completion(GOOD)) as server:
        reach = ("--endpoint", f"{server.url}/v1", "--model", "m", "--tasks", "double", *options)
        collected = rg_env("collect", *reach, "--groups", 2, "--samples", 1, "--out", elsewhere / "dump", cwd=here)
    assert collected.returncode == 0, collected.stderr
    again = rg_env("dumps", "rescore", elsewhere / "dump", *options, cwd=here)
    assert (again.returncode, again.stdout) == (0, "2 rollouts scored again, 0 changed\n")
    refused = rg_env("dumps", "rescore", elsewhere / "dump", cwd=here)
    assert refused.returncode == 2
    assert "cannot score double: " in refused.stderr
    assert "the run imported my_double" in refused.stderr.replace("\n", " ")


def test_the_minimal_example_runs_from_question_to_statistics():
    done = run_command(sys.executable, "examples/minimal.py")
    assert re.findall(r"base score (\S+) \((\w+)\)", done.stdout) == [
        ("1.00", "ok"),
        ("1.00", "ok"),
        ("0.00", "ok"),
        ("0.00", "no_think"),
    ]
    rewards = [float(reward) for reward in re.findall(r"reward (\S+)", done.stdout)]
    assert rewards[0] > rewards[1] > rewards[2]  # the length penalty
    assert "chain_sum ┆ 1      ┆ 4        ┆ 0.5" in done.stdout


def test_a_trainer_of_ones_own_learns_and_leaves_a_whole_dump(tmp_path):
    """examples/own_trainer.py: 20 steps of 4 groups of 8."""
    done = run_command(sys.executable, "examples/own_trainer.py", tmp_path)
    rewards = [float(reward) for reward in re.findall(r"reward (\S+), canaries that failed: 0", done.stdout)]
    assert len(rewards) == 20 and sum(rewards[-5:]) > 2 * sum(rewards[:2])
    dump = open_run(tmp_path / "dumps")
    groups = list(dump.groups())
    assert validate(tmp_path / "dumps").good and dump.has_every_group and len(groups) == 80
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert len(rollouts) == 640 and all(rollout.reward == rollout.custom_reward for rollout in rollouts)
