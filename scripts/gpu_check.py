"""`make gpu-check`: what to run first on a GPU machine. A few steps of training, and one result as JSON and as text.

    python scripts/gpu_check.py --config configs/nano_1gpu.yaml [--out FOLDER] [key=value …]

FOLDER is new or empty; the default is runs/gpu_check-DATE-TIME. Nothing is ever deleted.

It runs `rg-env --version`, trains with an evaluation before and after, validates the dump and reads the metrics. Then
it trains twice on the same batches at a learning rate of 0, with rg_dump and with the generator in `skyrl_alone.py`,
and compares the step times. It prints what every command prints. It also runs on a CPU
(`--config configs/quickstart.yaml`), where the tests run it. Exit
code 1 if a check failed; the step times are no check.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

RG = "environment.skyrl_gym.rg_dump"
GOAL = 1.01
"""Step time with rg_dump, in multiples of that without, that is aimed at on a GPU."""
METRICS = {
    "seconds_per_step": "timing/step",
    "seconds_of_generation": "timing/generate",
    "seconds_of_training": "timing/policy_train",
    "seconds_of_weight_sync": "timing/sync_weights",
    "logprob_difference": "policy/rollout_train_logprobs_abs_diff_mean",
    "canary_failures": "rg_dump/mean_canary_failures",
    "solved_in_evaluation": "eval/all/environment/rg_dump/mean_solved",
    "solved_in_training": "environment/rg_dump/mean_solved",
}


def rg_env(*args: object, log: str | Path = os.devnull, **env: str) -> tuple[int, str]:
    """Run a command of `rg-env`, whose output is printed as it comes and goes to `log`. Exit code and output."""
    print(f"\n$ rg-env {shlex.join(map(str, args))}", flush=True)
    command = [sys.executable, "-c", "from rg_env.cli import main; main()", *map(str, args)]
    lines: list[str] = []
    joined = {**os.environ, **env}
    started = subprocess.Popen(command, env=joined, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with started as process, Path(log).open("w") as file:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            file.write(line)
            lines.append(line)
    return process.returncode, "".join(lines)


def train(config: Path, out: Path, overrides: Sequence[str]) -> tuple[int, dict[str, list[float]]]:
    """One run with all its files in a folder. Returns the exit code, and the values of each metric by step."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [f"trainer.{name}_path={out}/{name}" for name in ("ckpt", "export", "log")]
    settings = [*overrides, *paths, f"{RG}.dump_dir={out}/dumps", "trainer.logger=tensorboard"]
    environment = {"TENSORBOARD_DIR": str(out / "metrics"), "PYTHONPATH": path_with(Path(__file__).parent)}
    code, _ = rg_env("train", config, *settings, log=out / "train.log", **environment)
    if not (out / "metrics").is_dir():
        return code, {}
    events = EventAccumulator(str(out / "metrics")).Reload()
    known = events.Tags()["scalars"]
    return code, {name: [e.value for e in events.Scalars(tag)] for name, tag in METRICS.items() if tag in known}


@contextmanager
def gpu_memory(used: list[int]) -> Iterator[None]:
    """Note every half second how many MiB of the GPU's memory are used. Nothing where there is no nvidia-smi."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--loop-ms=500"]
    if shutil.which(query[0]) is None:
        yield
        return
    with subprocess.Popen(query, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield
        finally:
            process.terminate()
            used += [int(line) for line in (process.stdout or ()) if line.strip().isdigit()]


def path_with(folder: Path) -> str:
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def compare(config: Path, out: Path, overrides: Sequence[str], steps: int) -> dict[str, Any]:
    """Seconds per step with and without rg_dump, over the same batches and weights. The first step warms up."""
    off = [f"trainer.{name}_interval=-1" for name in ("eval", "ckpt", "hf_save")]
    same = [f"trainer.max_training_steps={steps}", "trainer.policy.optimizer_config.lr=0", "trainer.resume_mode=none"]
    settings = [*overrides, *off, *same, "trainer.eval_before_train=false"]
    sides: dict[str, list[str]] = {"with": [], "without": [f"{RG}.experiment_class=skyrl_alone.SkyRLAlone"]}
    times = {}
    for side, own in sides.items():
        _, values = train(config, out / side, [*settings, *own])
        times[side] = values.get("seconds_per_step", [])
    result: dict[str, Any] = {"steps": times, "goal_on_a_gpu": GOAL}
    if all(len(seconds) == steps for seconds in times.values()):
        result["ratio"] = sum(times["with"][1:]) / sum(times["without"][1:])
    return result


def check(config: Path, out: Path, overrides: Sequence[str], steps: int) -> dict[str, Any]:
    """Run everything; what came out, as one dict."""
    _, installed = rg_env("--version")
    used: list[int] = []
    with gpu_memory(used):
        code, values = train(config, out, overrides)
    evaluations = values.get("solved_in_evaluation", [])
    passed = {
        "training": code == 0,
        "evaluation before and after": len(evaluations) > 1,
        "dump": rg_env("dumps", "validate", out / "dumps")[0] == 0,
        "model folder": any((out / "export").glob("global_step_*/policy/config.json")),
    }
    times = compare(config, out, overrides, steps)
    passed["both runs of the comparison"] = "ratio" in times
    result = {"config": str(config), "passed": passed, "metrics": values, "rg_dump": times, "installed": installed}
    return {**result, "gpu_memory_mib": used}


def as_text(result: dict[str, Any]) -> Iterator[str]:
    yield f"gpu-check {result['config']}"
    for name, ok in result["passed"].items():
        yield f"{'ok    ' if ok else 'FAILED'} {name}"
    for name, values in result["metrics"].items():
        yield f"{name}: " + " ".join(f"{value:.4g}" for value in values)
        if name.startswith("seconds") and len(values) > 1:
            yield f"  mean after the first step: {fmean(values[1:]):.3g}"
        if name == "solved_in_training":
            quarters = [values[len(values) * part // 4 : len(values) * (part + 1) // 4] for part in range(4)]
            yield "  by quarter of the steps: " + " ".join(f"{fmean(part):.1%}" for part in quarters if part)
    if used := result["gpu_memory_mib"]:
        yield f"GPU memory: {max(used)} MiB at most"
    times = result["rg_dump"]
    for side, seconds in times["steps"].items():
        yield f"seconds per step {side} rg_dump: " + " ".join(f"{value:.4g}" for value in seconds)
    if "ratio" in times:
        yield f"steps after the first, with / without rg_dump: {times['ratio']:.3f} (goal on a GPU: at most {GOAL})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("configs/nano_1gpu.yaml"))
    parser.add_argument("--out", type=Path, default=Path(f"runs/gpu_check-{datetime.now(UTC):%Y%m%d-%H%M%S}"))
    parser.add_argument("--compare-steps", type=int, default=11, help="steps of each run that is timed, at least 2")
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    out = args.out.resolve()
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        parser.error(f"--out {out} has files: name a new folder")
    out.mkdir(parents=True, exist_ok=True)
    result = check(args.config, out, args.overrides, args.compare_steps)
    text = "\n".join(as_text(result))
    (out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    (out / "result.txt").write_text(text + "\n")
    print(f"\n{text}\nwritten to {out}")
    sys.exit(not all(result["passed"].values()))


if __name__ == "__main__":
    main()
