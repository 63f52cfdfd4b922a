"""`make gpu-check`, on the CPU."""

import json
import subprocess
import sys

import pytest

from tests.e2e.conftest import RG
from tests.running import ROOT, run_command


@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_gpu_check_on_the_cpu(short_run, tmp_path):
    config, *overrides = [arg for arg in short_run if "_path=" not in str(arg) and "dump_dir" not in str(arg)]
    evaluation = ["trainer.eval_before_train=true", "trainer.eval_interval=2", "trainer.hf_save_interval=2"]
    out = tmp_path / "check"
    options = ["--config", config, "--out", out, "--compare-steps", "2", f"{RG}.scorer.workers=2"]
    script = ROOT / "scripts" / "gpu_check.py"
    done = run_command(sys.executable, script, *options, *overrides, *evaluation, timeout=1400)
    result = json.loads((out / "result.json").read_text())
    assert all(result["passed"].values()), result["passed"]
    assert len(result["metrics"]["seconds_per_step"]) == 2
    assert len(result["metrics"]["solved_in_evaluation"]) == 2
    assert max(result["metrics"]["logprob_difference"]) < 1e-3
    assert {side: len(seconds) for side, seconds in result["rg_dump"]["steps"].items()} == {"with": 2, "without": 2}
    assert result["rg_dump"]["ratio"] > 0
    for side, recorded in (("with", True), ("without", False)):
        assert bool(list((out / side / "dumps").glob("*_ledger_*.jsonl"))) == recorded
    assert (out / "result.txt").read_text().strip() in done.stdout


def test_gpu_check_deletes_nothing(tmp_path):
    (tmp_path / "model.safetensors").write_text("weights")
    command = [sys.executable, ROOT / "scripts" / "gpu_check.py", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "has files: name a new folder" in done.stderr
    assert (tmp_path / "model.safetensors").read_text() == "weights"
