"""SkyRL's RayPPOTrainer on the CPU, run through the command line; the dump is read back from disk."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import psutil
import pytest
import torch
from safetensors.torch import load_file

from rg_env.dump import open_run
from rg_env.dump.repair.validate import validate
from rg_env.skyrl.checkpoints import find_checkpoints, loadable
from tests.e2e.conftest import RG, ROOT, kill_with_everything_it_started, rg_env, run_command

pytestmark = pytest.mark.slow


def groups_of(folder, phase="train"):
    return [group for group in open_run(folder).groups() if group.phase == phase]


def test_the_record_is_what_skyrl_trained_on(tmp_path, short_run):
    """Rollout by rollout, text for text, reward for reward; debug logging shows how each score came about."""
    trained_path = tmp_path / "trained.jsonl"
    settings = [
        f"{RG}.dump_other_rollouts=true",
        f"{RG}.rollout_save_score_threshold=0.5",
        f"{RG}.debug_logging=true",
    ]
    capture = Path(__file__).with_name("capture_run.py")
    done = run_command(sys.executable, capture, trained_path, *short_run, *settings)
    output = done.stdout + done.stderr
    assert all(words in output for words in ("task mix", "base score", "raw ", "tagged "))

    trained = [json.loads(line) for line in trained_path.read_text().splitlines()]
    assert {row["step"] for row in trained} == {1, 2}
    recorded = [
        {"uid": group.uid, "step": group.step, "reward": rollout.reward, "text": rollout.conversation[-1]["content"]}
        for group in groups_of(tmp_path / "dumps")
        for rollout in group.rollouts
    ]

    def in_order(rows):
        return sorted(rows, key=lambda row: (row["step"], row["uid"]))  # stable: samples of a group stay in order

    assert len(trained) == len(recorded) == 2 * 64
    for seen, kept in zip(in_order(trained), in_order(recorded), strict=True):
        assert seen["text"] == kept["text"]
        assert seen["reward"] == pytest.approx(kept["reward"], abs=1e-6)
        assert seen["trained_tokens"] > 0
    assert len({row["reward"] for row in trained}) > 1


def test_at_learning_rate_0_nothing_is_learned(tmp_path, short_run):
    """Greedy answers to the fixed evaluation set are the same, character by character, before and after."""
    rg_env(
        "train",
        *short_run,
        "trainer.policy.optimizer_config.lr=0",
        "trainer.max_training_steps=4",
        "trainer.eval_before_train=true",
        "trainer.eval_interval=4",
        "generator.eval_sampling_params.temperature=0",
        "generator.eval_n_samples_per_prompt=1",
        f"{RG}.dump_eval_rollouts=true",
        f"{RG}.num_eval_samples_per_task=8",
    )
    said = {}
    for group in groups_of(tmp_path / "dumps", "eval"):
        said.setdefault(group.step, {})[group.item] = [r.conversation[-1]["content"] for r in group.rollouts]
    assert set(said) == {0, 4}
    assert len(said[0]) == 2 * 8
    assert said[0] == said[4]


def test_a_static_export_trains_through_skyrls_own_entrypoint(tmp_path, short_run):
    export = tmp_path / "train.parquet"
    rg_env("dataset", "--out", export, "--rows", 24, "--tasks", "{chain_sum: {config: {max_terms: 2, max_digits: 1}}}")
    entrypoint = (sys.executable, "-m", "skyrl.train.entrypoints.main_base")
    ours = ("trainer.override_entrypoint=rg_env.train", "environment.env_class=rg_dump")
    run_command(*entrypoint, *ours, *short_run, f"data.train_data=[{export}]")
    exported = {info["item"] for info in pl.read_parquet(export)["extra_info"]}
    ledger = list(open_run(tmp_path / "dumps").ledger())
    assert len(ledger) == 16
    assert {line.item for line in ledger} <= exported


def test_evaluation_of_every_checkpoint(tmp_path, short_run):
    """The weights of a checkpoint are evaluated, not the base model's, and means count rollouts, in unequal batches."""
    checkpoints = [*short_run, "trainer.policy.optimizer_config.lr=0.01"]
    rg_env("train", *checkpoints, "trainer.ckpt_interval=1", "trainer.hf_save_interval=2", "trainer.resume_mode=latest")
    export = tmp_path / "exports" / "global_step_2" / "policy"
    with loadable(find_checkpoints(str(tmp_path / "checkpoints" / "global_step_2"), None)[0]) as joined:
        ours, theirs = (load_file(folder / "model.safetensors") for folder in (joined, export))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name].to(theirs[name].dtype), theirs[name]) for name in theirs)

    small = [*short_run, f"{RG}.num_eval_samples_per_task=5", "trainer.eval_batch_size=7", "--json"]
    refusal = rg_env("eval", *small, "trainer.resume_mode=latest", check=False)
    assert (refusal.returncode, "--checkpoint" in refusal.stderr) == (2, True)
    done = rg_env("eval", *small, "--checkpoint", "all", "--samples", "2", "--out", tmp_path / "out")
    results = json.loads(done.stdout[done.stdout.index("[") :])
    assert [result["name"] for result in results] == ["step 1", "step 2"]
    for result in results:
        groups = groups_of(result["dump"], "eval")
        assert {group.step for group in groups} == {int(result["name"].split()[1])}
        scores = [rollout.base_score for group in groups for rollout in group.rollouts]
        assert len(scores) == 2 * 5 * 2
        assert result["total"]["mean_base_score"] == pytest.approx(sum(scores) / len(scores))
        assert validate(result["dump"]).good


def test_collection_with_skyrls_engines_resumes_after_a_kill(tmp_path, short_run):
    out = tmp_path / "collected"
    command = ["collect", *short_run, "--groups", "24", "--samples", "2", "--out", out]
    process = subprocess.Popen(
        [sys.executable, "-c", "from rg_env.cli import main; main()", *map(str, command)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 200
    while not list(out.glob("*groups*")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.1)
    kill_with_everything_it_started(process)
    process.wait()
    rg_env(*command, "--resume")
    assert rg_env(*command, "--resume").returncode == 0
    ledger = list(open_run(out).ledger(all_attempts=True))
    assert len(ledger) == len({record.uid for record in ledger}) == 24
    assert {(record.phase, record.step, len(record.rollouts)) for record in ledger} == {("train", None, 2)}
    assert all(record.text for record in ledger), "texts that fit neither file are kept"
    assert validate(out).good
    assert "samples was 2, is now 3" in rg_env(*command, "--samples", "3", "--resume", check=False).stderr


@pytest.mark.long
def test_sigterm_closes_the_record_and_stops_ray(tmp_path, short_run):
    command = [sys.executable, "-c", "from rg_env.cli import main; main()", "train", *map(str, short_run)]
    command.append("trainer.max_training_steps=500")
    with (tmp_path / "output.txt").open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    dumps = tmp_path / "dumps"
    deadline = time.monotonic() + 200
    while not list(dumps.glob("*groups*")) and time.monotonic() < deadline:
        assert process.poll() is None, (tmp_path / "output.txt").read_text()[-4000:]
        time.sleep(0.5)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) > 6
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(timeout=60) == 143, (tmp_path / "output.txt").read_text()[-4000:]
    assert "stopped by SIGTERM" in (tmp_path / "output.txt").read_text().splitlines()[-1]
    assert not list(dumps.glob("*.part"))
    assert len(list(open_run(dumps).ledger())) >= 8
    assert [one for one in family if one.is_running()] == []
