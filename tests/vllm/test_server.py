"""A vLLM server is checked before a run, always stopped, and rejected if results would be wrong."""

import shutil
import subprocess
from typing import get_args

import psutil
import pytest

from rg_env.skyrl.combinations import LORA_RANKS
from rg_env.skyrl.cpu import nano_path
from tests.running import ROOT, program, rg_env
from tests.vllm.conftest import members_of, running_server

pytestmark = [pytest.mark.vllm]


def refusal(*args):
    done = rg_env("train", ROOT / "configs" / "cpu_vllm.yaml", *args, check=False)
    assert done.returncode == 2, done.stderr[-3000:]
    assert done.stderr.startswith("rg-env: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_another_model_and_too_little_room_are_refused(run, tmp_path):
    model = shutil.copytree(nano_path(), tmp_path / "other")
    name = "generator.inference_engine.served_model_name"
    assert "the server has 'nano'" in refusal(*run, f"{name}=null", f"trainer.policy.model.path={model}")
    assert "--max-model-len" in refusal(*run, "generator.sampling_params.max_generate_length=1000")


def test_the_ranks_of_lora_are_those_of_vllm():
    from vllm.config.lora import MaxLoRARanks

    assert get_args(MaxLoRARanks) == LORA_RANKS


def test_a_server_that_cannot_start_leaves_nothing(tmp_path):
    with pytest.raises(AssertionError, match="no-such-model"), running_server("no-such-model", tmp_path / "log"):
        pass


def test_the_server_ends_when_the_tests_are_killed(tmp_path):
    holder = subprocess.Popen(program("vllm_holder", tmp_path / "log"), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        leader = psutil.Process(int(holder.stdout.readline()))
        children = []
        while len(children) < 2:  # it has started processes of its own
            assert leader.is_running(), (tmp_path / "log").read_text()[-3000:]
            children = leader.children(recursive=True)
    finally:
        holder.kill()
        holder.communicate()
    _, alive = psutil.wait_procs([leader, *children], timeout=100)
    assert not alive
    assert not members_of(leader.pid)
