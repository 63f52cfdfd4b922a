"""The files in examples/, which docs/your-code.md explains, train on the CPU."""

import sys
from pathlib import Path

import pytest

from rg_env.dump import open_run
from tests.e2e.conftest import RG
from tests.running import ROOT, rg_env, run_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]


@pytest.mark.long
def test_task_reward_estimator_loss_and_experiment_train_together(short_run):
    done = rg_env("train", *short_run, ROOT / "examples" / "my_code.yaml")
    dumps = next(arg.partition("=")[2] for arg in map(str, short_run) if "dump_dir" in arg)
    groups = [line for line in open_run(dumps).ledger() if line.phase == "train"]
    assert {line.step for line in groups} == {1, 2}
    assert "double" in {line.task for line in groups}
    rollouts = [rollout for line in groups for rollout in line.rollouts]
    assert {str(rollout.status) for rollout in rollouts} <= {"ok", "rejected"}
    for rollout in rollouts:
        assert rollout.custom_reward is not None
        assert rollout.base_score <= rollout.custom_reward <= rollout.base_score + 0.1
        assert rollout.reward == pytest.approx(rollout.custom_reward * rollout.penalty_factor)
    assert any(rollout.custom_reward != rollout.base_score for rollout in rollouts)
    assert "training on 1000000 rows" in done.stdout + done.stderr  # the experiment's own line
    rg_env("dumps", "validate", dumps)


@pytest.mark.weekly
def test_a_file_of_fifty_questions_trains(short_run, tmp_path):
    path = tmp_path / "sums.csv"
    rows = [f"What is {n} + {m}?,{n + m}" for n in range(5) for m in range(10)]
    path.write_text("\n".join(["question,answer", *rows]) + "\n")
    settings = tmp_path / "sums.yaml"
    settings.write_text(f"{RG}.tasks: {{sums: {{file: {{path: {path}, scorer: number}}}}}}\n")
    rg_env("train", *short_run, settings)
    dumps = next(arg.partition("=")[2] for arg in map(str, short_run) if "dump_dir" in arg)
    trained = [line for line in open_run(dumps).ledger() if line.phase == "train"]
    assert {line.task for line in trained} == {"sums"}
    assert {str(rollout.status) for line in trained for rollout in line.rollouts} == {"ok"}
    rg_env("dumps", "validate", dumps)
    rg_env("dumps", "rescore", dumps)


@pytest.mark.weekly
def test_a_reward_function_that_always_fails_ends_the_run_at_the_first_step(short_run, tmp_path):
    """In spite of `filter`, which would draw one batch without a signal after the other."""
    Path(tmp_path, "broken_reward.py").write_text(
        "def reward(verdicts):\n    return [0.0 if len(verdicts) < 8 else 1 / 0 for one in verdicts]\n"
    )
    settings = [f"{RG}.reward=broken_reward.reward", "trainer.algorithm.dynamic_sampling.type=filter"]
    main = "from rg_env.cli import main; main()"
    done = run_command(sys.executable, "-c", main, "train", *short_run, *settings, cwd=tmp_path, check=False)
    assert done.returncode == 1
    said = " ".join((done.stdout + done.stderr).split())
    assert "step 1: the reward function failed for every group" in said
    assert f"{tmp_path}/broken_reward.py:2: ZeroDivisionError" in said
    (group, *_) = open_run(next(tmp_path.glob("**/dumps"))).ledger()
    assert {str(rollout.status) for rollout in group.rollouts} == {"reward_error"}


@pytest.mark.weekly
def test_exported_rows_train_under_skyrls_own_experiment(tmp_path):
    rg_env("dataset", "--out", tmp_path / "train.parquet", "--rows", 16, "--tasks", "spell_backward")
    done = run_command(sys.executable, "-m", "tests.e2e.stock_run", tmp_path)
    saved = sorted(path.name for path in (tmp_path / "export").rglob("*") if path.is_file())
    assert len([name for name in saved if name.startswith("global_step_")]) == 2, saved
    assert "rg_dump scores but records nothing" in done.stdout + done.stderr
