"""`make quickstart` without the installation: the policy improves, and the dump shows it."""

import json
import re

import pytest

from rg_env.dump import open_run
from tests.e2e.conftest import RG
from tests.running import ROOT, rg_env

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(30, marks=pytest.mark.long),
        pytest.param(60, marks=pytest.mark.weekly),
    ],
)
def test_the_quickstart_raises_the_solve_rate(tmp_path, steps):
    """The whole of it, and half of it, in which the solve rate rises most."""
    done = rg_env(
        "train",
        ROOT / "configs" / "quickstart.yaml",
        f"trainer.max_training_steps={steps}",
        f"trainer.eval_interval={steps}",
        f"trainer.hf_save_interval={steps}",
        f"trainer.ckpt_path={tmp_path}/checkpoints",
        f"trainer.export_path={tmp_path}/exports",
        f"trainer.log_path={tmp_path}/logs",
        f"{RG}.dump_dir={tmp_path}/dumps",
        timeout=1400,
    )
    said = re.findall(r"^step (\S+/\d+)", done.stdout, re.MULTILINE)
    assert said == [f"{step}/{steps}" for step in range(1, steps + 1)]
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stderr == ""
    (log,) = (tmp_path / "logs").glob("train-*.log")
    assert str(log) in done.stdout
    logged = log.read_text()
    for words in (
        "Started a local Ray instance",
        f"step {steps}/{steps}",
        "Successfully saved model",
    ):  # Ray's, ours, a worker's
        assert words in logged
    assert re.search(rf"^ +{steps} +120 +\d+%", done.stdout, re.MULTILINE)  # of the closing table: step, groups, solved

    rows = json.loads(rg_env("dumps", "stats", tmp_path / "dumps", "--by", "step", "--json").stdout)
    before, after = (row for row in rows if row["phase"] == "eval")
    assert after["step"] == steps
    assert 0.2 < before["solve_rate"] < 0.5
    # Three seeds are written down in docs/train.md.
    assert after["solve_rate"] > before["solve_rate"] + 0.1, (before, after)

    ledger = list(open_run(tmp_path / "dumps").ledger())
    assert {line.phase for line in ledger} == {"train", "eval"}
    for kind in ("rollouts", "FAILED_rollouts"):
        assert list((tmp_path / "dumps").glob(f"reasoning_gym_environment_{kind}_*.jsonl"))
    assert not list((tmp_path / "dumps").glob("*.part"))
    per_task = json.loads(rg_env("dumps", "stats", tmp_path / "dumps", "--json").stdout)
    assert {row["task"] for row in per_task} == {"leg_counting", "spell_backward"}
