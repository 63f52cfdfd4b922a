from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from rg_env import ReasoningGymDataset
from rg_env.config import RGDumpConfig
from rg_env.curriculum import check_difficulty
from rg_env.errors import ConfigError
from rg_env.tasks.levels import scale_of
from tests.curriculum.policies import Curriculum, Policy, group, train

TASKS = {"spell_backward": 1, "gcd": 2, "chain_sum": 1}


def test_a_curriculum_draws_the_same_tasks_from_easy_questions_on():
    pure = ReasoningGymDataset(TASKS, seed=0)
    for plain, draw in zip(map(pure.draw, range(64)), Curriculum(TASKS).plan(0, 64), strict=True):
        assert (draw.task, draw.index, draw.probability) == (plain.task, plain.index, plain.probability)
        assert draw.complexity == 0.3


def test_tasks_without_levels_keep_their_default_options():
    mixed = Curriculum(["acre", "gcd"])
    assert {(draw.task, draw.complexity) for draw in mixed.plan(0, 50)} == {("acre", None), ("gcd", 0.3)}
    assert set(mixed.complexities()) == {"gcd"}
    assert mixed.observe([group("acre", 8)] * 40) == []


@pytest.mark.parametrize("stratify", [None, 16])
def test_a_draw_is_a_function_of_seed_position_and_state(stratify):
    one, other = (Curriculum(TASKS, 3, stratify) for _ in range(2))
    one.plan(100, 16)  # drawing changes nothing
    assert one.plan(0, 16) == other.plan(0, 16)
    assert [draw.index for draw in one.plan(7, 5)] == [7, 8, 9, 10, 11]
    assert one.plan(0, 16) != Curriculum(TASKS, 4, stratify).plan(0, 16)
    train(one, Policy(0.5), 4)
    train(other, Policy(0.5), 4)
    assert one.plan(80, 16) == other.plan(80, 16)


def test_stratified_batches_hold_the_mix():
    for batch in range(10):
        drawn = Counter(draw.task for draw in Curriculum(TASKS, stratify=16).plan(batch * 16, 16))
        assert drawn == {"spell_backward": 4, "gcd": 8, "chain_sum": 4}


PROGRAM = """
import json
from tests.curriculum.policies import Curriculum, Policy, train
from tests.curriculum.test_controller import TASKS
one = Curriculum(TASKS)
position = train(one, Policy(0.6), steps=12)
print(json.dumps([one.state_dict(), [str(draw) for draw in one.plan(position, 16)]]))
"""


def test_draws_and_levels_do_not_depend_on_the_hash_seed():
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0])[0]["version"] == 12


@pytest.mark.parametrize("stratify", [None, 16])
def test_a_resumed_run_continues_as_if_uninterrupted(stratify):
    whole, first = Curriculum(TASKS, 0, stratify), Curriculum(TASKS, 0, stratify)
    seen: list[object] = []
    train(whole, Policy(0.6), 20, each=lambda draws, moves: seen.append((draws, moves)))
    again: list[object] = []
    # The loop plans one batch ahead; this plan is part of a checkpoint, so the resumed half starts with it.
    pending = first.plan(0, 16)
    resumed = first
    for step in range(20):
        if step == 9:
            resumed = Curriculum(TASKS, 0, stratify)
            resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
        draws, pending = pending, resumed.plan((step + 1) * 16, 16)
        again.append((draws, resumed.observe([Policy(0.6).answer(draw) for draw in draws])))
    assert again == seen
    assert resumed.state_dict() == whole.state_dict()
    assert any(moves for _, moves in again), "some level moved"


def test_a_state_of_another_mix_is_used_as_far_as_it_fits():
    one = Curriculum(TASKS)
    train(one, Policy(0.9), 20)
    other = Curriculum(["gcd", "lcm"])
    other.load_state_dict(one.state_dict())
    assert other.complexities() == {"gcd": one.complexities()["gcd"], "lcm": 0.3}


def test_the_level_follows_a_policy_that_is_reset():
    """The target .7 is met at c = skill − .2."""
    one = Curriculum(["gcd"])
    moves: list[object] = []
    position = train(one, Policy(0.9), 60, each=lambda _, made: moves.extend(made))
    top = one.complexities()["gcd"]
    assert 0.5 <= top <= 0.9
    assert moves
    train(one, Policy(0.2), 60, start=position)
    assert one.complexities()["gcd"] <= 0.2


def test_a_move_says_why():
    one = Curriculum(["gcd"])
    (move,) = one.observe([group("gcd", 8)] * 4)
    why = move.evidence
    assert (move.task, move.before, why.groups, why.rollouts) == ("gcd", 0.3, 4, 32)
    assert move.after > 0.3 and why.solve_rate == 1.0 and why.lower > 0.7
    assert "32 of 32 rollouts in 4 groups solved" in why.reason and "above the target 0.7" in why.reason


def test_a_move_is_at_least_one_level_of_an_attribute():
    one, scale = Curriculum(["spell_backward"]), scale_of("spell_backward", {})
    (move,) = one.observe([group("spell_backward", 8)] * 4)
    assert scale is not None
    assert move.after - move.before > 0.05, "one step leaves the word as long as it was"
    assert scale.level(move.after)["word_len"] == scale.level(move.before)["word_len"] + 1


def test_after_a_move_groups_from_before_it_do_not_count():
    one = Curriculum(["gcd"])
    assert one.observe([group("gcd", 8, version=0)] * 4)
    level = one.complexities()["gcd"]
    for _ in range(30):
        assert one.observe([group("gcd", 0, version=0)] * 4) == [], "late groups of an older version"
    assert one.complexities()["gcd"] == level
    assert one.observe([group("gcd", 0, version=1)] * 4)
    assert one.complexities()["gcd"] < level


def test_what_is_not_difficulty_does_not_lower_a_level():
    """No rollout of one task counts, until the flaw is gone."""
    one = Curriculum(["gcd", "spell_backward", "chain_sum"])
    levels = [one.complexities()["gcd"]]

    def watch(*_: object) -> None:
        levels.append(one.complexities()["gcd"])

    position = train(one, Policy(0.7, flawed=["gcd"]), 40, each=watch)
    assert levels == [0.3] * 41
    train(one, Policy(0.7), 40, start=position, each=watch)
    assert one.complexities()["gcd"] > 0.3, "it recovers"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"items": 10, "complexity_mode": "curriculum"}, "complexity_mode='curriculum': must be random or null"),
        ({"items": 10, "sampling": "stratified"}, "sampling='stratified': must be weighted"),
    ],
)
def test_settings_that_exclude_each_other(settings, message):
    with pytest.raises(ConfigError) as error:
        check_difficulty(RGDumpConfig(**settings), {"gcd": scale_of("gcd", {})})
    assert message in str(error.value)


@pytest.mark.parametrize("mode", ["random", "curriculum"])
def test_a_mix_without_levels_has_no_difficulty_to_control(mode):
    with pytest.raises(ConfigError, match="no task of the mix has levels"):
        check_difficulty(RGDumpConfig(complexity_mode=mode), {})
