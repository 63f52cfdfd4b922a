"""Evaluation and training with a vLLM server as the engine, through SkyRL's own HTTP client."""

import json
import re
import signal
import subprocess
import sys
from collections import Counter

import pytest
import yaml

from rg_env.dump import FileKind, TrainedRecord, from_line, open_lines, open_run
from rg_env.dump.validate import validate
from tests.e2e.conftest import RG
from tests.evaluate.server import wait_for_groups
from tests.running import ROOT, rg_env, run_command

SYNCHRONOUS, ASYNCHRONOUS = (ROOT / "configs" / f"{name}.yaml" for name in ("cpu_vllm", "cpu_vllm_async"))

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]


def rollouts_of(folder, phase):
    return [rollout for group in open_run(folder).groups() if group.phase == phase for rollout in group.rollouts]


def recorded_run(folder, *args):
    """Train; what was true of each step's training batch."""
    path = folder / "steps.jsonl"
    run_command(sys.executable, "-m", "tests.vllm.recorded_run", path, *args, timeout=1400)
    return [json.loads(line) for line in path.read_text().splitlines()]


def trained_in(folder):
    """What the record says was trained on."""
    for found in open_run(folder).runs:
        for file in found.files_of(FileKind.TRAINED):
            with open_lines(file.path) as lines:
                yield from (from_line(TrainedRecord, line) for line in lines)


def client(server, *length):
    """Arguments of a command that asks the server, with the tasks of the configuration."""
    tasks = json.dumps(yaml.safe_load(SYNCHRONOUS.read_text())[RG]["tasks"])
    return ["--endpoint", server, "--model", "nano", "--tasks", tasks, "--max-tokens", *length]


def test_evaluation(server, tmp_path):
    """Before the training runs: the server has nano's own weights."""
    short = [*client(server, "18"), "--temperature", "1", "--samples", "3", "num_eval_samples_per_task=8"]
    done = rg_env("eval", *short, "--out", tmp_path / "dumps", "--json")
    total = json.loads(done.stdout[done.stdout.index("{") :])["total"]
    groups = list(open_run(tmp_path / "dumps").groups())
    assert [len(group.rollouts) for group in groups] == [3] * 16
    assert len({group.item for group in groups}) == 16
    rollouts = rollouts_of(tmp_path / "dumps", "eval")
    assert total["mean_base_score"] == pytest.approx(sum(r.base_score for r in rollouts) / len(rollouts))
    assert 0.1 < total["mean_base_score"] < 0.9, "nano solves a third of these"

    assert {rollout.stop_reason for rollout in rollouts} == {"stop", "length"}
    for rollout in rollouts:
        assert 0 < rollout.response_tokens <= 18
        assert rollout.truncated == (rollout.stop_reason == "length")
        assert rollout.response_tokens == 18 or not rollout.truncated
        text = rollout.conversation[-1]["content"]
        assert "<|im_end|>" not in text
        assert rollout.violation or re.search(rf"<answer>\s*{re.escape(rollout.answer)}\s*</answer>", text)


def test_any_client_of_the_server(server, tmp_path):
    """Two clients at once, one killed and resumed."""
    model = client(server, "64")
    command = ["collect", *model, "--groups", "24", "--samples", "4", "--concurrency", "4"]
    folders = [tmp_path / "one", tmp_path / "two"]
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", "from rg_env.cli import main; main()", *command, "--out", str(folder)],
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        for folder in folders
    ]
    wait_for_groups(folders[0], 1)
    clients[0].kill()
    assert clients[1].wait(timeout=300) == 0
    assert clients[0].wait() == -signal.SIGKILL, "it was still asking"
    rg_env(*command, "--out", folders[0], "--resume")
    for folder in folders:
        ledger = list(open_run(folder).all_attempts().ledger())
        assert len(ledger) == len({record.uid for record in ledger}) == 24
        assert {len(record.rollouts) for record in ledger} == {4}
        assert all(rollout.status != "no_response" for record in ledger for rollout in record.rollouts)
        assert validate(folder).good


def follow(count, run, tmp_path):
    """Train so many steps of configs/cpu_vllm.yaml: after each the server samples with its weights.

    Returns:
        the rows of `dumps stats` for the evaluations before and after.
    """
    steps = recorded_run(
        tmp_path, SYNCHRONOUS, *run, f"trainer.max_training_steps={count}", f"trainer.eval_interval={count}"
    )
    assert [step["version"] for step in steps] == list(range(1, count + 1)), "weights were sent before each step"
    assert all(step["grad_norm"] > 0 for step in steps)
    assert all(step["tokens"] > 128 for step in steps)
    # float32 noise on unlikely tokens reaches 3e-4; the weights of one step before differ by about 0.1
    assert max(step["largest_difference"] for step in steps) < 1e-3

    rows = json.loads(rg_env("dumps", "stats", tmp_path / "dumps", "--by", "step", "--json").stdout)
    before, after = (row for row in rows if row["phase"] == "eval")
    assert (before["step"], after["step"]) == (0, count)
    rollouts = rollouts_of(tmp_path / "dumps", "train")
    assert Counter(rollout.policy_version for rollout in rollouts) == {str(step): 128 for step in range(1, count + 1)}
    assert {rollout.stop_reason for rollout in rollouts} <= {"stop", "length"}
    assert not list((tmp_path / "dumps").glob("*.part"))
    return before, after


def test_the_server_follows_the_trainer(run, tmp_path):
    follow(4, [*run, f"{RG}.num_eval_samples_per_task=4"], tmp_path)


@pytest.mark.weekly
def test_training_raises_the_reward(run, tmp_path):
    """In two thirds of the recipe's steps. On the CPU's own sampler, `tests/e2e/test_quickstart.py` sees it."""
    before, after = follow(40, run, tmp_path)
    assert after["solve_rate"] > before["solve_rate"] + 0.1, (before, after)


def test_fully_asynchronous_training(run, tmp_path):
    """Groups are generated by weights of this step or of an earlier one, and trained on once.

    How old a single group may get is not bounded. What SkyRL bounds is the number of groups that are scheduled ahead.
    """
    steps = recorded_run(tmp_path, ASYNCHRONOUS, *run, "trainer.max_training_steps=4", "trainer.eval_interval=-1")
    assert len(steps) == 4
    assert all(step["grad_norm"] > 0 for step in steps)
    # The first groups cannot be stale. Later ones are, and some were continued under newer weights.
    assert steps[0]["largest_difference"] < 1e-4
    assert all(step["largest_difference"] > 1e-4 for step in steps[1:])
    assert all(step["mean_difference"] < 0.5 for step in steps)

    groups = {group.group_id: group for group in open_run(tmp_path / "dumps").groups()}
    trained = list(trained_in(tmp_path / "dumps"))
    assert Counter(record.step for record in trained) == dict.fromkeys(range(1, 5), 16)
    assert len({record.group_id for record in trained}) == 4 * 16
    ages = Counter()
    for record in trained:
        group = groups[record.group_id]
        assert record.rollouts == len(group.rollouts) == 8
        assert {rollout.stop_reason for rollout in group.rollouts} <= {"stop", "length"}
        versions = {int(rollout.policy_version) for rollout in group.rollouts}
        assert len(versions) == 1
        ages[record.step - versions.pop()] += 1
    assert min(ages) >= 0
    assert len(ages) > 1, "some groups waited while the policy was trained"
    generated = Counter(int(group.rollouts[0].policy_version) for group in groups.values())
    for step in range(1, 5):
        scheduled = sum(count for version, count in generated.items() if version <= step)
        assert scheduled <= (2 + step) * 16, "max_staleness_steps=2, 16 groups per step"
