"""Does a curriculum pay? Trains a small policy with four ways to choose difficulty, at equal generated tokens.

    python scripts/difficulty_experiment.py           # all runs that are missing in the results, then the table
    python scripts/difficulty_experiment.py --table   # the table only

Arms: `fixed_hard` (all questions at c = 1), `uniform` (c uniform), and the curriculum with the rules `atropos` and
`interval`. A run stops after the first step by which the policy has generated `TOKENS` tokens, and is then evaluated on
questions of all levels that no arm was trained on. Each finished run appends a line to `RESULTS`, so an interrupted
experiment continues where it stopped. The policy is made first if it is missing: `nano`, trained further on worked
solutions of all levels of both tasks until it solves about a third, so that there is something to learn at every level.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rg_env import ReasoningGymDataset
from rg_env.analysis.intervals import t_quantile
from rg_env.dump import Outcome, open_run
from rg_env.tasks.levels import scale_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_suffix(".jsonl")
RUNS = ROOT / "runs" / "difficulty"
POLICY = RUNS / "policy"
QUESTIONS = RUNS / "eval.parquet"

TASKS: dict[str, dict[str, Any]] = {
    "basic_arithmetic": {
        "min_digits": 1,
        "max_digits": 1,
        "operators": ["+"],
        "allow_parentheses": False,
        "allow_negation": False,
    },
    "spell_backward": {},
}
"""Options; what moves is the number of terms and the length of the word."""
TOKENS = 100_000
SEEDS = range(8)
EVAL_PER_TASK = 100
SOLVED_AT = 0.99
SETTINGS = {
    "trainer.policy.model.path": str(POLICY),
    "trainer.max_training_steps": 1000,
    "trainer.max_prompt_length": 128,
    "trainer.eval_before_train": False,
    "trainer.eval_interval": 1000,
    "trainer.eval_batch_size": 100,
    "generator.sampling_params.max_generate_length": 80,
    "generator.eval_sampling_params.max_generate_length": 80,
    "data.val_data": f"[{QUESTIONS}]",
}


def hardest(task: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options at c = 1."""
    scale = scale_of(task, options)
    assert scale is not None
    return scale.options(1.0)


def mix(options_of: Callable[[str, dict[str, Any]], dict[str, Any]] = lambda _, options: options) -> dict[str, Any]:
    """The task mix with these options."""
    return {task: {"weight": 1, "config": options_of(task, options)} for task, options in TASKS.items()}


ARMS: dict[str, dict[str, Any]] = {
    "fixed_hard": {"tasks": mix(hardest)},
    "uniform": {"tasks": mix(), "complexity_mode": "random"},
    "atropos": {"tasks": mix(), "complexity_mode": "curriculum", "complexity_rule": "atropos"},
    "interval": {"tasks": mix(), "complexity_mode": "curriculum", "complexity_rule": "interval"},
}


def make_policy(target: float = 0.35, max_rounds: int = 10) -> None:
    """Continue the supervised training of `nano` on questions of all levels until it solves a share of `target`."""
    import torch
    import train_nano
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    from rg_env import Scorer
    from rg_env.cpu import nano_path

    torch.manual_seed(0)
    dataset = ReasoningGymDataset(mix(), seed=0, complexity_mode="random")
    train_set = train_nano.examples(dataset, range(4000))
    check_set = train_nano.examples(dataset, range(4000, 4100))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(nano_path())
    model = LlamaForCausalLM.from_pretrained(nano_path(), dtype=torch.float32)
    with Scorer(workers=1) as scorer:
        for number in range(max_rounds):
            train_nano.train(
                model, tokenizer, train_set, [], scorer, seed=number, steps=50, batch_size=64, lr=1e-3, check_every=51
            )
            figures = train_nano.evaluate(model, tokenizer, check_set, scorer, seed=0, max_new_tokens=80)
            print(50 * (number + 1), "steps:", figures["all"].line("all levels"), flush=True)
            if figures["all"].solved >= target:
                break
    tokenizer.save_pretrained(POLICY)
    model.to(torch.bfloat16).save_pretrained(POLICY)


def overrides(arm: str, seed: int, folder: Path) -> list[str]:
    """The arguments of `rg-env train` for a run."""
    rg = "environment.skyrl_gym.rg_dump"
    own = {f"{rg}.{name}": value for name, value in ARMS[arm].items()}
    run = {
        "trainer.seed": seed,
        f"{rg}.seed": seed,
        f"{rg}.dump_dir": folder / "dumps",
        "trainer.ckpt_path": folder / "checkpoints",
        "trainer.export_path": folder / "exports",
        "trainer.log_path": folder / "logs",
    }
    merged = {**SETTINGS, **own, **run}
    values = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in merged.items()}
    return [str(ROOT / "configs" / "quickstart.yaml"), *(f"{name}={value}" for name, value in values.items())]


def train_once(arguments: list[str]) -> None:
    """`rg-env train`, which stops at `TOKENS` generated tokens and then evaluates. Runs in a process of its own."""
    import ray

    from rg_env.skyrl.config import load_config
    from rg_env.skyrl.launch import running_ray

    @ray.remote(num_cpus=1)
    def run(cfg: Any) -> None:
        from skyrl.train.utils.callbacks import TrainingCallback

        from rg_env.skyrl import experiment

        class Budget(TrainingCallback):
            generated = 0

            def on_step_end(self, trainer: Any, callback_input: Any, control: Any) -> None:
                self.generated += int(callback_input.batch["response_mask"].sum())
                if self.generated >= TOKENS:
                    trainer.cfg.trainer.max_training_steps = callback_input.global_step
                    control.should_evaluate = True

        class Experiment(experiment.RGExperiment):
            def get_trainer(self, *args: Any, **kwargs: Any) -> Any:
                trainer = super().get_trainer(*args, **kwargs)
                trainer.add_callback(Budget())
                return trainer

        experiment.RGExperiment = Experiment
        experiment.run_training(cfg, None)

    cfg = load_config(arguments)
    with running_ray(cfg):
        ray.get(run.remote(cfg))


def summary(folder: Path) -> dict[str, Any]:
    """The figures of a finished run, from its dump."""
    groups = list(open_run(folder / "dumps").ledger())
    trained, evaluated = ([group for group in groups if group.phase == phase] for phase in ("train", "eval"))
    solved: defaultdict[str, list[bool]] = defaultdict(list)
    for group in evaluated:
        right = [rollout.base_score >= SOLVED_AT for rollout in group.rollouts]
        for name in ("all", f"c={group.complexity:g}", f"{group.task} c={group.complexity:g}"):
            solved[name] += right
    return {
        "tokens": sum(rollout.response_tokens for group in trained for rollout in group.rollouts),
        "steps": len({group.step for group in trained}),
        "groups": len(trained),
        "no_signal": statistics.fmean(group.no_signal for group in trained),
        "all_correct": statistics.fmean(group.outcome is Outcome.ALL_CORRECT for group in trained),
        "all_failed": statistics.fmean(group.outcome is Outcome.ALL_FAILED for group in trained),
        "solved": {name: statistics.fmean(right) for name, right in sorted(solved.items())},
    }


def results() -> list[dict[str, Any]]:
    """The finished runs."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run_missing(arms: Iterable[str], seeds: Iterable[int]) -> None:
    """Do the runs that are missing in the results, seed by seed."""
    if not (POLICY / "config.json").exists():
        make_policy()
    ReasoningGymDataset.fixed_eval(mix(), samples_per_task=EVAL_PER_TASK, complexity_mode="random").to_parquet(
        QUESTIONS
    )
    done = {(one["arm"], one["seed"]) for one in results()}
    for seed, arm in ((seed, arm) for seed in seeds for arm in arms):
        if (arm, seed) in done:
            continue
        folder = RUNS / f"{arm}_{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        start = time.monotonic()
        subprocess.run([sys.executable, __file__, "--one", *overrides(arm, seed, folder)], check=True, cwd=ROOT)
        line = {"arm": arm, "seed": seed, "seconds": round(time.monotonic() - start), **summary(folder)}
        with RESULTS.open("a") as out:
            out.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


def interval(values: list[float]) -> str:
    """A mean over seeds with its 95 % interval (Student's t)."""
    if len(values) < 2:
        return f"{statistics.fmean(values):.3f}" if values else "—"
    half = t_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.fmean(values):.3f} ± {half:.3f}"


def table() -> str:
    """The results as a Markdown table: means over seeds, and paired differences from `interval`."""
    figures: dict[str, Callable[[dict[str, Any]], float]] = {
        "groups without signal": lambda run: run["no_signal"],
        "solved, all levels": lambda run: run["solved"]["all"],
        "solved, c = 1": lambda run: run["solved"]["c=1"],
    }
    of = {(one["arm"], one["seed"]): one for one in results()}
    rows = [f"| arm | runs | tokens | {' | '.join(figures)} |", "|---" * (3 + len(figures)) + "|"]
    for arm in ARMS:
        runs = [one for (name, _), one in sorted(of.items()) if name == arm]
        if runs:
            cells = [interval([figure(run) for run in runs]) for figure in figures.values()]
            tokens = statistics.fmean(run["tokens"] for run in runs)
            rows.append(f"| {arm} | {len(runs)} | {tokens:.0f} | {' | '.join(cells)} |")
    for arm in ARMS:
        seeds = [seed for name, seed in sorted(of) if name == arm and ("interval", seed) in of]
        if arm != "interval" and seeds:
            cells = [
                interval([figure(of["interval", seed]) - figure(of[arm, seed]) for seed in seeds])
                for figure in figures.values()
            ]
            rows.append(f"| interval − {arm} | {len(seeds)} | | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only print the table of the finished runs")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    if sys.argv[1:2] == ["--one"]:
        train_once(sys.argv[2:])
        return
    options = parser.parse_args()
    if not options.table:
        run_missing(options.arms, options.seeds)
    print(table())


if __name__ == "__main__":
    main()
