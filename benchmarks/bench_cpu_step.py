"""Cost of a training step on the CPU: packed rows and bfloat16 compared with SkyRL's own model wrapper in the same run.

Measures the CPU time, not the wall time, of forward and backward over one group, so other load has little effect.

Run: python benchmarks/bench_cpu_step.py [nano | smollm2 | FOLDER]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch

from rg_env.cpu import named_model
from rg_env.cpu.packing import HFModelWrapper, PackedModelWrapper

SAMPLES, PROMPT, LONGEST, REPEATS = 8, 150, 64, 3
LENGTHS = (64, 20, 20, 20, 10, 30, 18, 64)


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


def processor_seconds(run: Callable[[], None]) -> float:
    run()  # warm-up
    best = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "nano"
    path = str(named_model(name)) if name in ("nano", "smollm2") else name
    torch.set_num_threads(1)
    base = None
    for label, kind, bf16 in (
        ("SkyRL's wrapper, float32", HFModelWrapper, False),
        ("SkyRL's wrapper, bfloat16", HFModelWrapper, True),
        ("packed, float32", PackedModelWrapper, False),
        ("packed, bfloat16", PackedModelWrapper, True),
    ):
        seconds = processor_seconds(step(PackedModelWrapper(path, bf16=bf16).train(), kind))
        base = base or seconds
        print(f"{label:28} {seconds:8.3f} s of CPU time  {base / seconds:5.2f} x", flush=True)


if __name__ == "__main__":
    main()
