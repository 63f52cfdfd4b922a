"""Forward and backward over one group of eight rollouts on one core: rows packed by rg_env, and SkyRL's model wrapper
with the same model. CPU time, not wall time. `BENCHMARK_MODEL` names another model than nano.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.comparison import Comparison, Measure
from rg_env.cpu import named_model
from rg_env.cpu.packing import HFModelWrapper, PackedModelWrapper

MODEL = os.environ.get("BENCHMARK_MODEL", "nano")
SAMPLES, PROMPT, LONGEST = 8, 150, 64
LENGTHS = (64, 20, 20, 20, 10, 30, 18, 64)


def comparisons(folder: Path, quick: bool) -> Iterator[Comparison]:
    torch.set_num_threads(1)
    path = str(named_model(MODEL)) if MODEL in ("nano", "smollm2") else MODEL
    for name, bf16 in (("float32", False), ("bfloat16", True)):
        model = PackedModelWrapper(path, bf16=bf16).train()
        ours, rival = (processor_time(step(model, kind)) for kind in (PackedModelWrapper, HFModelWrapper))
        yield Comparison(f"{MODEL}, {name}", "ms", ours, rival, "SkyRL's wrapper")


def make_group(vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    prompt = torch.randint(3, vocabulary, (PROMPT,))
    sequences = torch.zeros(SAMPLES, PROMPT + LONGEST, dtype=torch.long)
    for row, length in enumerate(LENGTHS):  # SkyRL's layout: left padding
        sequences[row, -PROMPT - length :] = torch.cat([prompt, torch.randint(3, vocabulary, (length,))])
    attention = (sequences > 0).long()
    return sequences, attention


def step(model: HFModelWrapper, kind: type[HFModelWrapper]) -> Callable[[], None]:
    sequences, attention = make_group(model.model.config.vocab_size)

    def run() -> None:
        logprobs, _ = kind.forward(
            model, sequences, LONGEST, attention, return_output=True, compute_entropy=True, entropy_requires_grad=False
        )
        (logprobs * attention[:, -LONGEST:]).sum().backward()

    return run


def processor_time(run: Callable[[], None]) -> Measure:
    run()  # warm-up

    def measure() -> float:
        start = time.process_time()
        run()
        return (time.process_time() - start) * 1e3

    return measure
