"""Evaluation and training with a real vLLM server as the engine, over SkyRL's own HTTP client."""

import json
import sys
from collections import Counter

import pytest

from rg_env.dump import open_run
from tests.e2e.conftest import RG, rg_env, run_command

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(800)]


def rollouts_of(folder, phase):
    return [rollout for group in open_run(folder).groups() if group.phase == phase for rollout in group.rollouts]


def test_evaluation(run, tmp_path):
    """Before the training runs: the server has nano's own weights."""
    done = rg_env(
        "eval",
        *run,
        f"{RG}.dump_eval_rollouts=true",
        f"{RG}.num_eval_samples_per_task=8",
        "generator.eval_n_samples_per_prompt=3",
        "generator.eval_sampling_params.max_generate_length=18",
    )
    metrics = json.loads(done.stdout[done.stdout.index("{") :])
    groups = list(open_run(tmp_path / "dumps").groups())
    assert [len(group.rollouts) for group in groups] == [3] * 16
    assert len({group.item_id for group in groups}) == 16
    rollouts = rollouts_of(tmp_path / "dumps", "eval")
    assert metrics["eval/all/avg_score"] == pytest.approx(sum(r.reward for r in rollouts) / len(rollouts))
    assert 0.1 < metrics["eval/all/avg_score"] < 0.9, "nano solves a third of these"

    assert {rollout.stop_reason for rollout in rollouts} == {"stop", "length"}
    for rollout in rollouts:
        assert 0 < rollout.response_tokens <= 18
        assert (
            rollout.truncated
            == (rollout.stop_reason == "length")
            == (rollout.response_tokens == 18 or rollout.truncated)
        )
        text = rollout.conversation[-1]["content"]
        assert "<|im_end|>" not in text
        assert rollout.violation or f"<answer>{rollout.answer}</answer>" in text


def test_training_raises_the_reward_and_the_server_follows_the_trainer(run, tmp_path):
    """configs/cpu_vllm.yaml as it is: after each step the server samples with that step's weights."""
    trained = tmp_path / "trained.jsonl"
    run_command(sys.executable, "-m", "tests.vllm.recorded_run", trained, *run, timeout=780)

    steps = [json.loads(line) for line in trained.read_text().splitlines()]
    assert len(steps) == 60
    assert [step["version"] for step in steps] == list(range(1, 61)), "weights were sent before each step"
    assert all(step["grad_norm"] > 0 for step in steps)
    assert all(step["tokens"] > 128 for step in steps)
    assert max(step["largest_difference"] for step in steps) < 1e-4

    rows = json.loads(rg_env("dumps", "stats", tmp_path / "dumps", "--by", "step", "--json").stdout)
    before, after = (row for row in rows if row["phase"] == "eval")
    assert before["step"] == 0
    assert after["solve_rate"] > before["solve_rate"] + 0.1, (before, after)
    rollouts = rollouts_of(tmp_path / "dumps", "train")
    assert Counter(rollout.policy_version for rollout in rollouts) == {str(step): 128 for step in range(1, 61)}
    assert {rollout.stop_reason for rollout in rollouts} <= {"stop", "length"}
    assert not list((tmp_path / "dumps").glob("*.part"))
