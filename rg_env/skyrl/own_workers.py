"""Workers of ours in place of SkyRL's, and what lets SkyRL's own be imported where flash-attn is not installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar


def has_flash_attn() -> bool:
    return importlib.util.find_spec("flash_attn") is not None


@contextmanager
def flash_attn_stub() -> Iterator[None]:
    """Inside the block, SkyRL's `model_wrapper` can import `flash_attn.bert_padding`, also where it is not installed.

    SkyRL 0.4.0 imports it whatever its settings say. What it imports is None here: it is used only with
    `trainer.remove_microbatch_padding`, which is refused without flash-attn.
    """
    if has_flash_attn():
        yield
        return
    import peft  # noqa: F401  # looks for flash_attn when it is imported, as the next do: before the stub exists
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


class OwnWorkers:
    """Trains with workers of ours. To be put before an experiment of SkyRL, whose hooks it overrides."""

    workers: ClassVar[str]
    """The module with `PolicyWorker`, `CriticWorker` and `RefWorker`."""

    def _setup_trainer(self) -> Any:
        # SkyRL's method imports its own workers, which needs flash-attn, unless our module has imported them before.
        importlib.import_module(self.workers)
        return super()._setup_trainer()  # type: ignore[misc]

    def get_trainer(self, **kwargs: Any) -> Any:
        """Return the experiment's own trainer, which builds its models with our workers in place of those of SkyRL."""
        ours = importlib.import_module(self.workers)
        trainer = super().get_trainer(**kwargs)  # type: ignore[misc]
        build = trainer.build_models

        def build_with_ours(*_: Any) -> None:
            build(ours.PolicyWorker, ours.CriticWorker, ours.RefWorker)

        trainer.build_models = build_with_ours
        return trainer


class WithoutFlashAttn(OwnWorkers):
    workers = "rg_env.skyrl.workers_without_flash_attn"
