"""The real package, with a scripted server as the model."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

from rg_env.scoring import AnswerScore, Scorer, Status
from tests.rollouts.server import completion, serving

vf = pytest.importorskip("verifiers")
pytestmark = pytest.mark.verifiers

TASKS = {"chain_sum": {"weight": 1, "config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}}


@pytest.fixture(scope="module")
def environment():
    return vf.load_environment(
        "rg_env.integrations.verifiers",
        tasks=TASKS,
        num_train_examples=3,
        num_eval_examples=2,
        settings={"format_bonus": 0.5},
    )


def evaluated(environment, script, samples, **options):
    with serving(script) as server:
        client = vf.ClientConfig(api_base_url=f"{server.url}/v1", max_retries=0)
        made = environment.evaluate(
            client, "m", {"max_tokens": 64}, rollouts_per_example=samples, save_results=False, **options
        )
        return asyncio.run(made)["outputs"]


def answers(environment):
    return {row["prompt"][-1]["content"]: row["answer"] for row in environment.get_eval_dataset()}


def test_questions_of_both_sets_differ(environment):
    train, evaluation = environment.get_dataset(), environment.get_eval_dataset()
    assert (len(train), len(evaluation)) == (3, 2)
    assert [message["role"] for message in train[0]["prompt"]] == ["system", "user"]
    items = {json.loads(row["info"]["rg_item"])["item"] for rows in (train, evaluation) for row in rows}
    assert len(items) == 5


@pytest.mark.parametrize("alone", [False, True])
def test_rollouts_are_scored(environment, alone):
    known = answers(environment)

    def script(number, body):
        answer = known[body["messages"][-1]["content"]] if number % 2 else "none"
        return completion(f"<think>I add.</think><answer>{answer}</answer>")

    outputs = evaluated(environment, script, 4, max_concurrent=1, independent_scoring=alone)
    assert sorted(output["reward"] for output in outputs) == [0.5] * 4 + [1.5] * 4
    assert all(output["metrics"]["solved"] == (output["reward"] == 1.5) for output in outputs)
    assert {(output["metrics"]["scored"], output.get("error")) for output in outputs} == {(1.0, None)}


def test_a_scorer_that_fails_is_an_error_and_never_0(environment, monkeypatch):
    async def failing(self, task, config, entry, answer, waiting):
        if answer == "none":
            return AnswerScore.unscored(Status.CRASHED, "gone")
        return AnswerScore(1.0, 0.0, 1.0, Status.OK)

    monkeypatch.setattr(Scorer, "_score_form", failing)

    def script(number, body):
        return completion(f"<think>I add.</think><answer>{'right' if number % 2 else 'none'}</answer>")

    outputs = evaluated(environment, script, 2, max_concurrent=1)
    assert [output["reward"] for output in outputs] == [1.5] * 4
    assert sorted(output["metrics"]["scored"] for output in outputs) == [0.0, 0.0, 1.0, 1.0]
    assert all(("crashed: gone" in str(output.get("error"))) == (not output["metrics"]["scored"]) for output in outputs)

    (alone, *_) = evaluated(environment, lambda *_: completion("<think>x</think><answer>none</answer>"), 1)
    assert math.isnan(alone["reward"])
