"""How long the trainer waits for rows: the train loader over all tasks of the default mix.

    python -m benchmarks.loader_waits [--steps 20] [--batch 64] [--generation 2.0] [--workers 0 2 8]

The trainer is simulated: it takes a batch, then sleeps as long as generation and training would take. Without a pause
(`--generation 0`), the rate is that of making rows. The first batch is reported by itself: it contains the start of the
processes.
"""

import argparse
import statistics
import time
from types import SimpleNamespace

from rg_env.config import RGDumpConfig
from rg_env.dataset import ReasoningGymDataset
from rg_env.skyrl.loader import TrainLoader, train_loader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--generation", type=float, default=2.0, help="seconds between two batches")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2, 8])
    parser.add_argument("--complexity-mode", choices=["random", "curriculum"], default=None)
    args = parser.parse_args()
    rg = RGDumpConfig(complexity_mode=args.complexity_mode)
    for workers in args.workers:
        dataset = ReasoningGymDataset(size=args.batch * args.steps, complexity_mode=args.complexity_mode)
        cfg = SimpleNamespace(
            rg_dump=rg,
            data=SimpleNamespace(train_data=[], dataloader=SimpleNamespace(num_workers=workers)),
            trainer=SimpleNamespace(epochs=1, train_batch_size=args.batch, seed=0),
        )
        loader = train_loader(cfg, dataset, TrainLoader)
        waits, batches = [], iter(loader)
        for _ in range(args.steps):
            began = time.perf_counter()
            next(batches)
            waits.append(time.perf_counter() - began)
            time.sleep(args.generation)
        loader.close()
        first, *others = waits
        print(
            f"{len(dataset.mix.tasks)} tasks, {workers} workers, {args.batch} rows every {args.generation:g} s: waited "
            f"{first:.2f} s for the first batch, then mean {statistics.mean(others):.3f} s, max {max(others):.3f} s"
        )


if __name__ == "__main__":
    main()
