"""The real package and its command line, with a scripted server as the model."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from rg_env.scoring import AnswerScore, Scorer, Status
from tests.evaluate.server import completion, error, serving

vf = pytest.importorskip("verifiers.v1")
pytestmark = pytest.mark.verifiers

TASKS = {"chain_sum": {"weight": 1, "config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}}
QUESTIONS = 2


def environment(**settings):
    taskset = {"id": "rg-env-verifiers", "tasks": TASKS, "split": "eval", "task": {"settings": settings}}
    return vf.resolve_env_config({"taskset": taskset})


def first(config, count=QUESTIONS):
    return list(itertools.islice(vf.load_taskset(config.taskset), count))


def answers(config):
    return {task.data.prompt[0].content: task.data.answer for task in first(config)}


def traces(config, script, folder, rollouts=1):
    """The traces of an evaluation of the first questions in this process, one request at a time."""
    from verifiers.v1.cli.eval.runner import run_eval
    from verifiers.v1.configs.cli.eval import EvalConfig

    with serving(script) as server:
        episodes = asyncio.run(
            run_eval(
                EvalConfig(
                    env=config,
                    model="m",
                    client=vf.EvalClientConfig(base_url=f"{server.url}/v1"),
                    select={"limit": QUESTIONS},
                    num_rollouts=rollouts,
                    max_concurrent=1,
                    push=False,
                    rich=None,
                    output_dir=folder,
                )
            )
        )
    return [trace for episode in episodes for trace in episode.traces]


def test_the_command_line_scores_rollouts_and_saves_them(tmp_path):
    known = answers(environment())

    def script(number, body):
        assert [message["role"] for message in body["messages"]] == ["system", "user"]
        assert body["temperature"] == 0.25
        answer = known[body["messages"][-1]["content"]] if number % 2 else "none"
        return completion(f"<think>I add.</think><answer>{answer}</answer>")

    with serving(script) as server:
        command = (
            f"rg-env-verifiers -m m --client.base-url {server.url}/v1 -n {QUESTIONS} -r 2 -c 1 --no-push --no-rich"
        )
        done = subprocess.run(
            [
                Path(sys.executable).with_name("vf-eval"),
                *command.split(),
                *("--sampling.temperature", "0.25"),
                *("--env.taskset.split", "eval", "--env.taskset.tasks", json.dumps(TASKS)),
                *("--env.taskset.task.settings", json.dumps({"format_bonus": 0.5})),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    (saved,) = tmp_path.rglob("traces.jsonl")
    rollouts = [trace for line in saved.read_text().splitlines() for trace in json.loads(line)["traces"]]
    assert sorted(trace["rewards"]["reward"]["score"] for trace in rollouts) == [0.5, 0.5, 1.5, 1.5]
    for trace in rollouts:
        right = float(trace["rewards"]["reward"]["score"] == 1.5)
        tagged = trace["metrics"].pop("tagged_score")  # some tasks give partial credit
        assert tagged < 1
        assert trace["metrics"] == {
            "base_score": right,
            "solved": right,
            "well_formed": 1.0,
            "raw_score": right,
        }
        assert trace["ok"]
    assert {trace["task"]["key"] for trace in rollouts} == {task.key for task in first(environment())}


def test_a_reply_without_the_format_scores_0(tmp_path):
    trace, *_ = traces(environment(), lambda *_: completion("7"), tmp_path)
    assert trace.ok
    assert trace.reward == 0
    assert trace.metrics == {"base_score": 0.0, "solved": 0.0, "well_formed": 0.0}


def test_reasoning_that_the_server_took_out_counts(tmp_path):
    config = environment()
    known = answers(config)

    def script(number, body):
        answer = known[body["messages"][-1]["content"]]
        return completion(f"<answer>{answer}</answer>", reasoning_content="I add.")

    assert [trace.reward for trace in traces(config, script, tmp_path)] == [1.0] * QUESTIONS


def test_questions_of_both_splits_differ_and_never_end():
    config = environment()
    train = config.taskset.model_copy(update={"split": "train"})
    questions = [
        {task.key for task in itertools.islice(vf.load_taskset(taskset), 20)} for taskset in (train, config.taskset)
    ]
    assert [len(keys) for keys in questions] == [20, 20]
    assert not questions[0] & questions[1]


def test_a_setting_may_have_any_sign():
    assert environment(system_prompt="Löse 😀").taskset.task.rg_env.system_prompt == "Löse 😀"


def test_stored_answers_are_valid():
    tasks = first(environment())
    assert [asyncio.run(task.validate(None)) for task in tasks] == [True] * QUESTIONS


def test_a_scorer_that_fails_is_an_error_and_never_0(tmp_path, monkeypatch):
    original = Scorer.score_response_async

    async def failing(self, entry, text, *args):
        verdict = await original(self, entry, text, *args)
        failed = dataclasses.replace(verdict, scored=AnswerScore.without_score(Status.CRASHED, "gone"))
        return failed if "none" in text else verdict

    monkeypatch.setattr(Scorer, "score_response_async", failing)

    def script(number, body):
        return completion(f"<think>I add.</think><answer>{'7' if number % 2 else 'none'}</answer>")

    rollouts = traces(environment(), script, tmp_path, rollouts=2)
    failed = [trace for trace in rollouts if not trace.ok]
    assert len(failed) == 2
    for trace in failed:
        assert trace.rewards["reward"] is None
        assert "(crashed): gone" in trace.last_error.message
        assert trace.last_error.type == "TaskError"


def test_metrics_and_reward_that_are_awaited_together_score_once(tmp_path, monkeypatch):
    config = environment()
    trace, *_ = traces(config, lambda *_: completion("<think>I add.</think><answer>7</answer>"), tmp_path)
    score, scored = Scorer.score_response_async, []

    async def counting(self, *args):
        scored.append(args)
        await asyncio.sleep(0.01)
        return await score(self, *args)

    monkeypatch.setattr(Scorer, "score_response_async", counting)
    trace.state.verdict = None
    task = first(config)[0]

    async def together():
        return await asyncio.gather(task.verdict(trace), task.reward(trace))

    metrics, reward = asyncio.run(together())
    assert len(scored) == 1
    assert metrics["base_score"] == reward


def test_a_request_that_fails_is_an_error_of_the_provider(tmp_path):
    trace, *_ = traces(environment(), lambda *_: error(400, "too long"), tmp_path)
    assert not trace.ok
    assert trace.last_error.type == "ProviderError"
    assert "too long" in trace.last_error.message


@pytest.mark.parametrize(
    ("taskset", "message"),
    [
        ({"tasks": ["gcdd"]}, "unknown task 'gcdd'; did you mean gcd?"),
        ({"task": {"settings": {"scorer.timeot": 1}}}, "did you mean scorer.timeout"),
        ({"task": {"settings": {"complexity": "hard"}}}, "complexity='hard': must be random, or a number"),
        ({"task": {"settings": {"debug_logging": True}}}, "debug_logging=true: has no effect outside SkyRL"),
        ({"split": "test"}, "'train' or 'eval'"),
        ({"seed": -1}, "seed"),
    ],
)
def test_mistakes_are_answered_before_the_first_request(taskset, message):
    with pytest.raises(ValidationError, match=message):
        vf.resolve_env_config({"taskset": {"id": "rg-env-verifiers", **taskset}})


def test_verifiers_reads_the_traces_that_are_exported(tmp_path):
    from verifiers.v1.trace import WireTrace
    from verifiers.v1.utils.trace_store import read_episodes

    command = ["dumps", "export", "traces", "dumps/sample", "--out", str(tmp_path / "traces.jsonl")]
    subprocess.run([Path(sys.executable).with_name("rg-env"), *command], check=True, cwd=Path(__file__).parents[2])
    episodes = read_episodes(tmp_path, WireTrace)
    carried = [(trace, trace.info["rl"]) for episode in episodes for trace in episode.traces]
    assert len({episode.group.id for episode in episodes}) == 32 and len(carried) == 224
    for trace, values in carried:
        assert trace.reward == values["rollout"]["reward"] and trace.num_turns == 1
        assert trace.is_truncated == values["rollout"]["truncated"]


def test_harbor_reads_the_trajectories_that_are_exported(tmp_path):
    from harbor.models.trajectories import Trajectory

    command = ["dumps", "export", "atif", "dumps/sample", "--out", str(tmp_path / "a.jsonl")]
    subprocess.run([Path(sys.executable).with_name("rg-env"), *command], check=True, cwd=Path(__file__).parents[2])
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    trajectories = [Trajectory.model_validate_json(line) for line in lines]
    assert len(trajectories) == 224
    assert [trajectory.to_json_dict(exclude_none=False)["extra"] for trajectory in trajectories] == [
        json.loads(line)["extra"] for line in lines
    ]
