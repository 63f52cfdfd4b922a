"""boxnet and rush_hour: plans whose moves are possible pass in any form, others earn nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import reasoning_gym

from rg_env.audit.policies import policies_for
from rg_env.audit.random_plans import sweep
from rg_env.scoring import Scorer, Status, guard
from tests.scoring.guard import solved_plans

Items = Callable[[str, int], list[dict[str, Any]]]


@pytest.mark.parametrize("task", ["boxnet", "rush_hour"])
def test_plans_that_solve_the_item_earn_1_in_every_form(scorer: Scorer, cured_items: Items, task: str) -> None:
    tried = 0
    for entry in cured_items(task, 6):
        if task == "boxnet":
            forms = solved_plans.boxnet_forms(solved_plans.boxnet(entry))
        else:
            forms = solved_plans.rush_hour_forms(solved_plans.rush_hour(entry))
        for answer in forms:
            scored = scorer.score(entry, answer)
            assert (scored.raw, scored.score) == (1.0, 1.0), (answer, scored.detail)
            tried += 1
    assert tried >= 30


def test_sweeping_boxnet_without_looking_earns_nothing(scorer: Scorer, cured_items: Items) -> None:
    dataset = reasoning_gym.create_dataset("boxnet", seed=1, size=1)
    entries = [entry for entry in cured_items("boxnet", 8) if len(entry["metadata"]["initial_state"]) > 2]
    for entry in entries:
        assert dataset.score_answer(sweep(entry), copy.deepcopy(entry)) == 1.0
        scored = scorer.score(entry, sweep(entry))
        assert (scored.score, scored.status) == (0.0, Status.REJECTED)
    assert len(entries) >= 5


def test_random_moves_of_rush_hour_earn_nothing(scorer: Scorer, cured_items: Items) -> None:
    """2 000 of them move the red car to the exit in one item of ten by chance."""
    dataset = reasoning_gym.create_dataset("rush_hour", seed=1, size=1)
    (policy,) = [policy for policy in policies_for("rush_hour", ()) if "2000 random moves" in policy.name]
    by_chance = 0
    for entry in cured_items("rush_hour", 30):
        answer = str(policy.answer(entry))
        by_chance += dataset.score_answer(answer, copy.deepcopy(entry)) == 1.0
        assert scorer.score(entry, answer).score == 0.0
    assert by_chance > 0


def test_a_plan_longer_than_its_bound_is_wrong(cured_items: Items) -> None:
    entry = cured_items("rush_hour", 1)[0]
    fewest = entry["metadata"]["min_moves"]
    name, cells = solved_plans.rush_hour(entry)[0]
    there_and_back = [f"{name}{cells:+d}", f"{name}{-cells:+d}"]
    assert guard.check(entry, " ".join(there_and_back * (5 * fewest))) is None
    assert "more than" in str(guard.check(entry, " ".join(there_and_back * (5 * fewest) + ["A+1"])))

    entry = next(entry for entry in cured_items("boxnet", 8) if solved_plans.boxnet(entry)[0][0][1].count("square"))
    plan = solved_plans.boxnet(entry)
    assert "more than" in str(guard.check(entry, json.dumps([dict(step) for step in plan] + [{}] * 400)))


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("rush_hour", "A+9"),
        ("rush_hour", "A-5"),
        ("rush_hour", "Z+1"),
        ("rush_hour", "A+99999999"),
        ("boxnet", "[1]"),
        ("boxnet", '{"a": 1}'),
        ("boxnet", '[{"Agent": "move(box_red, target_red)"}]'),
        ("boxnet", '[{"Agent[9.5, 9.5]": "move(box_red, target_red)"}]'),
        ("boxnet", '[{"Agent[0.5, 0.5]": "move(box_red, square[9.5, 9.5])"}]'),
        ("boxnet", '[{"Agent[0.5, 0.5]": "move(box_pink, square[0.5, 1.5])"}]'),
        ("boxnet", '[{"Agent[0.5, 0.5, 0.5]": "move(box_red, square[0.5, 1.5, 0.5])"}]'),
        ("boxnet", '[{"Agent[0.5, 0.5]": 3}]'),
        ("boxnet", '[{"Agent[0.5, 0.5]": "wait"}]'),
    ],
)
def test_impossible_plans_are_refused(cured_items: Items, task: str, answer: str) -> None:
    for entry in cured_items(task, 4):
        reason = guard.check(entry, answer)
        assert reason is not None
        assert "no item" not in reason


def test_two_actions_for_one_agent_in_one_step_are_refused(cured_items: Items) -> None:
    entry = next(entry for entry in cured_items("boxnet", 9) if solved_plans.boxnet(entry)[0][0][1].count("square"))
    (agent, action), *_ = solved_plans.boxnet(entry)[0]
    assert guard.check(entry, json.dumps([{agent: action}])) is None
    assert "two actions" in str(guard.check(entry, json.dumps([{agent: action, agent + " ": action}])))
