"""Two shims that let SkyRL's GPU code run on a CPU.

Invariant: each is in effect only inside its `with` block, and neither changes a SkyRL module.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_depth = 0
_originals: tuple[object, object] | None = None


@contextmanager
def cuda_means_cpu() -> Iterator[None]:
    """Inside the block, `torch.cuda.current_device()` is the CPU and `torch.cuda.synchronize()` does nothing.

    SkyRL asks `torch.cuda` for the device whenever it moves a batch. Blocks may nest and overlap (SkyRL's weight sync
    awaits inside one): the last one to exit restores torch's functions.
    """
    global _depth, _originals
    with _lock:
        if _depth == 0:
            _originals = (torch.cuda.current_device, torch.cuda.synchronize)
            torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment, return-value, unused-ignore]
            torch.cuda.synchronize = lambda device=None: None
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0 and _originals is not None:
                torch.cuda.current_device, torch.cuda.synchronize = _originals  # type: ignore[assignment]
                _originals = None


@contextmanager
def flash_attn_stub() -> Iterator[None]:
    """Inside the block, SkyRL's `model_wrapper` can import `flash_attn.bert_padding`.

    The two names that it imports are None; they are used only with `trainer.remove_microbatch_padding`, which
    `check_cpu` refuses. Does nothing if flash_attn is installed. peft and the model classes of transformers look for
    flash_attn when imported, so they are imported before the stub exists.
    """
    if importlib.util.find_spec("flash_attn") is not None:
        yield
        return
    import peft  # noqa: F401
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText  # noqa: F401

    stub, padding = types.ModuleType("flash_attn"), types.ModuleType("flash_attn.bert_padding")
    padding.pad_input = padding.unpad_input = None  # type: ignore[attr-defined]
    modules = {"flash_attn": stub, "flash_attn.bert_padding": padding}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
