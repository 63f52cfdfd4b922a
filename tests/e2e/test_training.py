"""SkyRL's RayPPOTrainer on the CPU, run through the command line; the dump is read back from disk."""

import json
import sys
from pathlib import Path

import polars as pl
import pytest

from rg_env.dump import open_run
from tests.e2e.conftest import RG
from tests.running import rg_env, run_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]


def groups_of(folder, phase="train"):
    return [group for group in open_run(folder).groups() if group.phase == phase]


@pytest.mark.long
def test_the_record_is_what_skyrl_trained_on(tmp_path, short_run):
    """Rollout by rollout, text for text, reward for reward; the log of rollouts shows how each score came about.

    At learning rate 0, the greedy answers to the fixed evaluation set are the same before and after.
    """
    trained_path = tmp_path / "trained.jsonl"
    settings = [
        f"{RG}.dump_other_rollouts=true",
        f"{RG}.rollout_save_score_threshold=0.5",
        f"{RG}.debug_logging=true",
        "trainer.policy.optimizer_config.lr=0",
        "trainer.eval_before_train=true",
        "trainer.eval_interval=2",
        "generator.eval_sampling_params.temperature=0",
        "generator.eval_n_samples_per_prompt=1",
        f"{RG}.dump_eval_rollouts=true",
        f"{RG}.num_eval_samples_per_task=8",
    ]
    capture = Path(__file__).with_name("capture_run.py")
    done = run_command(sys.executable, capture, trained_path, *short_run, *settings)
    assert "task mix" in done.stdout + done.stderr

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

    said = {0: {}, 2: {}}
    for group in groups_of(tmp_path / "dumps", "eval"):
        said[group.step][group.item] = [rollout.conversation[-1]["content"] for rollout in group.rollouts]
    assert len(said[0]) == 2 * 8
    assert said[0] == said[2]


@pytest.mark.long
@pytest.mark.alone
def test_two_runs_with_the_same_settings_record_the_same(tmp_path, short_run):
    """To the last bit: texts, scores and rewards of training and evaluation, on the same number of cores, from the
    command line and from a thread of a program.
    """
    records = []
    for folder, command in (
        (tmp_path / "one", ("-m", "rg_env", "train")),
        (tmp_path / "two", ("-m", "tests.programs.train_in_thread")),
    ):
        run_command(
            sys.executable,
            *command,
            *short_run,
            "trainer.eval_interval=2",
            f"{RG}.num_eval_samples_per_task=20",  # two batches of the sampler
            f"{RG}.dump_other_rollouts=true",
            f"{RG}.dump_eval_rollouts=true",
            f"trainer.ckpt_path={folder}/checkpoints",
            f"trainer.export_path={folder}/exports",
            f"{RG}.dump_dir={folder}/dumps",
        )
        records.append(
            [
                (group.phase, group.step, group.uid, rollout.conversation, rollout.score, rollout.reward)
                for group in open_run(folder / "dumps").groups()
                for rollout in group.rollouts
            ]
        )
    assert {row[:2] for row in records[0]} == {("train", 1), ("train", 2), ("eval", 2)}
    assert records[0] == records[1]


@pytest.mark.long
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
