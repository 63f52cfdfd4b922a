from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rg_env.cpu.packing import flash_attn_stub
from rg_env.cpu.workers import cuda_means_cpu

ROOT = Path(__file__).parents[2]


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


def test_the_light_half_imports_neither_torch_nor_ray() -> None:
    script = (
        "import sys, rg_env.cpu; rg_env.cpu.CPU_OVERRIDES;"
        "print(sorted({'torch', 'ray', 'skyrl', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
