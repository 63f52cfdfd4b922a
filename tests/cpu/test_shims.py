from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
import torch

from rg_env.skyrl.cpu.workers import cuda_means_cpu
from rg_env.skyrl.own_workers import flash_attn_stub


def test_cuda_means_cpu_only_inside() -> None:
    before = (torch.cuda.current_device, torch.cuda.synchronize)
    with pytest.raises(ZeroDivisionError), cuda_means_cpu():
        with cuda_means_cpu():
            torch.cuda.synchronize()
        assert torch.cuda.current_device() == torch.device("cpu")
        1 / 0  # noqa: B018
    assert (torch.cuda.current_device, torch.cuda.synchronize) == before


@pytest.mark.skipif(importlib.util.find_spec("flash_attn") is not None, reason="the real one is here")
def test_flash_attn_is_there_only_inside() -> None:
    with flash_attn_stub():
        from flash_attn.bert_padding import pad_input

        assert pad_input is None
    assert not {"flash_attn", "flash_attn.bert_padding"} & sys.modules.keys()
    assert importlib.util.find_spec("flash_attn") is None


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("flash_attn") is not None, reason="the real one is here")
def test_a_process_of_ray_imports_skyrls_gpu_worker_without_flash_attn() -> None:
    """As Ray sends an actor's class to its process. The worker itself needs a GPU."""
    from ray import cloudpickle

    from rg_env.skyrl.workers_without_flash_attn import PolicyWorker

    sent = cloudpickle.dumps(PolicyWorker.__ray_metadata__.modified_class)
    program = "import sys; from ray import cloudpickle; print(cloudpickle.load(sys.stdin.buffer).__mro__)"
    received = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True)
    assert b"fsdp_worker.FSDPPolicyWorkerBase" in received.stdout, received.stderr.decode()
