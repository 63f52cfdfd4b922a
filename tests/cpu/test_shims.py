from __future__ import annotations

import importlib.util
import sys

import pytest
import torch

from rg_env.cpu.packing import flash_attn_stub
from rg_env.cpu.workers import cuda_means_cpu


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
