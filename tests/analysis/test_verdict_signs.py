"""Signs of broken verifiers: each finds the fault that it is for in a simulated run, and nothing in sound ones."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from rg_env.analysis import verdict_signs as signs
from rg_env.analysis.second_scoring import SIGN as SECOND_SCORING
from rg_env.analysis.signs import NAMES, find_signs
from rg_env.analysis.verdict_signs import TaskFacts
from rg_env.cli import app
from rg_env.configuration.config import LengthPenaltyConfig, RGDumpConfig
from rg_env.dump import DumpWriter, Phase, StepRecord, open_run
from rg_env.rollouts.symptoms import CANARIES, CANARY_FAILURES, EQUAL
from tests.dump.records import RUN_ID, group, rollout

TASKS = ("addition", "spelling", "counting")
STEPS, GROUPS, SAMPLES = 18, 6, 5
CONFIG = RGDumpConfig()


@dataclass
class Response:
    """What a simulated policy says, and its right score."""

    task: str
    step: int
    answer: str
    text: str
    score: float


def simulated(fault=lambda response, rng: response.score, seed=0, reward=None, config=CONFIG):
    """The facts of a run whose policy learns all tasks, and whose verifier gives what `fault` returns.

    Args:
        reward: a function from a response and its score, in place of the score.
    """
    rng = random.Random(seed)
    facts = defaultdict(TaskFacts)
    for step in range(1, STEPS + 1):
        for task in TASKS:
            for number in range(GROUPS):
                made = []
                difficulty = rng.random()
                for sample in range(SAMPLES):
                    is_right = rng.random() < (0.2 + 0.5 * step / STEPS) * (1.5 - difficulty)
                    answer = "42" if is_right else str(rng.randrange(40))
                    words = " ".join(rng.choices(["first", "then", "so", "clearly"], k=rng.randrange(1, 12)))
                    text = f"<think>{words}</think><answer>{answer}</answer>"
                    response = Response(task, step, answer, text, float(is_right))
                    score = fault(response, rng)
                    conversation = [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}]
                    given = score if reward is None else reward(response, score)
                    changes = {"conversation": conversation, "answer": answer, "reward": given}
                    made.append(rollout(score, sample, **changes))
                entry = json.dumps({"question": "?", "answer": "42"})
                one = group(f"{task}-{step}-{number}", made, task=task, step=step, entry=entry)
                facts[task].note(one, config, reference="42")
    return dict(facts)


def found(facts):
    return {(task, reading.sign): reading for task, reading in signs.verdict_signs(facts)}


@pytest.mark.parametrize("seed", range(6))
def test_a_sound_run_has_no_sign(seed):
    assert found(simulated(seed=seed)) == {}


def lost(response, rng):
    """From step 10, a fifth of the right answers gets nothing."""
    return 0.0 if response.step >= 10 and rng.random() < 0.2 else response.score


def long_only(response, rng):
    return response.score if len(response.text) > 60 else 0.0


def test_right_answers_that_are_not_paid_are_found_with_the_step():
    readings = found(simulated(lost))
    for task in TASKS:
        for sign in (signs.UNREWARDED, signs.UNEQUAL):
            assert 10 <= readings[task, sign].step <= 12
        assert 0.05 < readings[task, signs.UNREWARDED].share < 0.25
        assert len(readings[task, signs.UNREWARDED].groups) == 5


def test_what_the_reward_follows_is_named():
    readings = found(simulated(long_only))
    assert "follows the length" in readings["addition", signs.FOLLOWS].what
    assert readings["addition", signs.FOLLOWS].p < 0.001

    def by_word(response, score):
        return score + ("clearly" in response.text)

    readings = found(simulated(reward=by_word))
    assert {sign for _, sign in readings} == {signs.FOLLOWS}
    assert all("follows the word 'clearly'" in reading.what for reading in readings.values())


def test_phantom_groups_are_a_sign_where_they_are_most_of_the_gradient():
    config = RGDumpConfig(format_bonus=0.25)
    shaped = TaskFacts()
    for number in range(60):
        kinds = [rollout(0.0, 0, reward=0.25), rollout(0.0, 1, violation="no_answer", answer="", reward=0.0)]
        shaped.note(group(number, kinds if number < 40 else [1.0, 0.0], step=number // 6), config, reference="1")
    reading = signs.phantoms(shaped)
    assert reading is not None
    assert reading.what == "40 of 60 groups with a gradient have no solved response"
    # The same responses in an evaluation, from which nothing is learned.
    evaluated = TaskFacts()
    for number in range(60):
        evaluated.note(group(number, kinds, phase=Phase.EVAL), config, reference="1")
    assert signs.phantoms(evaluated) is None
    honest = TaskFacts()
    for number in range(60):
        honest.note(group(number, kinds if number < 20 else [1.0, 0.0], step=number // 6), config, reference="1")
    assert signs.phantoms(honest) is None


def test_a_length_penalty_is_no_sign_and_a_single_group_neither():
    penalized = TaskFacts()
    config = RGDumpConfig(length_penalty=LengthPenaltyConfig(kind="kimi"))
    for number in range(40):
        pair = [rollout(1.0, k, answer="1", reward=1 - k / 2, penalty_factor=1 - k / 2) for k in range(2)]
        penalized.note(group(number, pair), config, reference="1")
    assert found({"task": penalized}) == {}
    once = TaskFacts()
    once.note(group(0, [rollout(0.0, k, answer="1") for k in range(8)]), CONFIG, reference="1")
    assert once.unrewarded.number == 8
    assert found({"task": once}) == {}


def test_the_command_names_what_the_steps_of_a_run_show(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        writer.write_blocking([group(k, [1.0, 0.0]) for k in range(4)])
        for step, share in enumerate((0.0, 0.25, 0.5), 1):
            metrics = {CANARIES: 32.0, CANARY_FAILURES: share, EQUAL: 0.32 * step}
            writer.submit([StepRecord(RUN_ID, 1, step, list(metrics), list(metrics.values()))])
    result = find_signs(open_run(tmp_path))
    assert [(finding.sign, finding.step) for finding in result.signs] == [("canaries fail", 2), ("collapse", 3)]
    done = CliRunner().invoke(app, ["dumps", "signs", str(tmp_path)])
    assert "all tasks: canaries fail, from step 2\n" in done.stdout
    assert "the verifier was wrong about 24 of 96 answers whose score was known." in done.stdout
    assert all(name in done.stdout for name in NAMES if name != SECOND_SCORING)
