"""`make gpu-check`: what to run first on a GPU machine. A few steps of training, and one result as JSON and as text.

    python scripts/gpu_check.py --config configs/debug_1gpu.yaml --out runs/gpu_check [key=value …]

It runs `rg-env doctor`, trains with an evaluation before and after, validates the dump and reads the metrics. It also
runs on a CPU (`--config configs/quickstart.yaml`), where the tests run it. Exit code 1 if a check failed.
Not covered: the step time of the same batches without rg_env.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

RG = "environment.skyrl_gym.rg_dump"
METRICS = {
    "seconds_per_step": "timing/step",
    "seconds_of_generation": "timing/generate",
    "logprob_difference": "policy/rollout_train_logprobs_abs_diff_mean",
    "solved_in_evaluation": "eval/all/environment/rg_dump/mean_solved",
    "solved_in_training": "environment/rg_dump/mean_solved",
}


def rg_env(*args, **env):
    command = [sys.executable, "-c", "from rg_env.cli import main; main()", *map(str, args)]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)


def check(config, out, overrides):
    """Run everything; what came out, as one dict."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    kind = "cpu" if "device: cpu" in config.read_text() else "gpu"
    doctor = rg_env("doctor", kind, "--dump-dir", out / "dumps", "--json")
    paths = [f"trainer.{name}_path={out}/{name}" for name in ("ckpt", "export", "log")]
    settings = [*overrides, *paths, f"{RG}.dump_dir={out}/dumps", "trainer.logger=tensorboard"]
    trained = rg_env("train", config, *settings, TENSORBOARD_DIR=str(out / "metrics"))
    (out / "train.log").write_text(trained.stdout + trained.stderr)
    values = {}
    if (out / "metrics").is_dir():
        events = EventAccumulator(str(out / "metrics")).Reload()
        known = events.Tags()["scalars"]
        values = {name: [e.value for e in events.Scalars(tag)] for name, tag in METRICS.items() if tag in known}
    evaluations = values.get("solved_in_evaluation", [])
    passed = {
        "doctor": doctor.returncode == 0,
        "training": trained.returncode == 0,
        "evaluation before and after": len(evaluations) > 1,
        "dump": rg_env("dumps", "validate", out / "dumps").returncode == 0,
        "model folder": any((out / "export").glob("global_step_*/policy/config.json")),
    }
    return {"config": str(config), "passed": passed, "metrics": values, "doctor": json.loads(doctor.stdout or "null")}


def as_text(result):
    yield f"gpu-check {result['config']}"
    for name, ok in result["passed"].items():
        yield f"{'ok    ' if ok else 'FAILED'} {name}"
    for name, values in result["metrics"].items():
        yield f"{name}: " + " ".join(f"{value:.4g}" for value in values)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("configs/debug_1gpu.yaml"))
    parser.add_argument("--out", type=Path, default=Path("runs/gpu_check"))
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    out = args.out.resolve()
    result = check(args.config, out, args.overrides)
    text = "\n".join(as_text(result))
    (out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    (out / "result.txt").write_text(text + "\n")
    print(text)
    sys.exit(not all(result["passed"].values()))


if __name__ == "__main__":
    main()
