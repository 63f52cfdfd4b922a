"""Does a curriculum pay? Trains a policy with several ways to choose difficulty, at equal generated tokens.

    python scripts/difficulty_experiment.py nano             # all runs that are missing in the results, then the table
    python scripts/difficulty_experiment.py nano --table     # the table only
    python scripts/difficulty_experiment.py smollm2

`nano`: four arms, eight seeds. `fixed_hard` (all questions at c = 1), `uniform` (c uniform), and the curriculum with
the rules `atropos` and `interval`. Its policy is made first if it is missing: `nano`, trained further on worked
solutions of all levels of both tasks until it solves about a third, so that there is something to learn at every level.

`smollm2`: two arms, one seed, sums of two numbers. `fixed_hard` (two digits), and `interval` from one digit to two.

A run stops after the first step by which the policy has generated the given number of tokens, and is then evaluated on
questions of all levels that no arm was trained on. Each finished run appends a line to the results, a file beside this
one, so an interrupted experiment continues where it stopped.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rg_env import ReasoningGymDataset
from rg_env.analysis.intervals import t_quantile
from rg_env.dump import LedgerRecord, Outcome, open_run
from rg_env.tasks import TaskMix

ROOT = Path(__file__).resolve().parents[1]
SOLVED_AT = 0.99

Tasks = dict[str, dict[str, Any]]


def mix(tasks: Tasks) -> Tasks:
    """The task mix with these entries and equal weights."""
    return {task: {"weight": 1, **entry} for task, entry in tasks.items()}


def hardest(tasks: Tasks) -> Tasks:
    """The mix with the options that the tasks have at c = 1."""
    scales = {task.name: task.scale for task in TaskMix.parse(mix(tasks)).tasks}
    return mix({name: {"config": scale.options(1.0)} for name, scale in scales.items() if scale is not None})


@dataclass(frozen=True)
class Experiment:
    """What is trained and compared.

    Attributes:
        config: the recipe that the runs start from.
        tasks: what moves is the number of terms and the length of the word (nano), or the number of digits (smollm2).
        tokens: generated tokens of a run.
        eval_per_task: questions of each task, in five equal parts with c = 0, .25, .5, .75 and 1.
        settings: those that differ from the recipe, in all arms.
        arms: settings of difficulty.
        figures: what is compared, each a function of a line of the results.
    """

    name: str
    config: str
    tasks: Tasks
    tokens: int
    seeds: range
    eval_per_task: int
    settings: dict[str, Any]
    arms: dict[str, dict[str, Any]]
    figures: dict[str, Callable[[dict[str, Any]], float]]

    @property
    def results(self) -> Path:
        return Path(__file__).with_name(f"difficulty_{self.name}.jsonl")

    @property
    def runs(self) -> Path:
        return ROOT / "runs" / "difficulty" / self.name

    @property
    def questions(self) -> Path:
        return self.runs / "eval.parquet"

    def finished(self) -> list[dict[str, Any]]:
        """The lines of the finished runs."""
        return [json.loads(line) for line in self.results.read_text().splitlines()] if self.results.exists() else []


POLICY = ROOT / "runs" / "difficulty" / "policy"
NANO_TASKS: Tasks = {
    "basic_arithmetic": {
        "config": {
            "min_digits": 1,
            "max_digits": 1,
            "operators": ["+"],
            "allow_parentheses": False,
            "allow_negation": False,
        }
    },
    "spell_backward": {},
}
SUMS: Tasks = {"chain_sum": {"config": {"min_terms": 2, "max_terms": 2}, "levels": {"num_digits": [0, 1]}}}

EXPERIMENTS = {
    "nano": Experiment(
        "nano",
        "quickstart",
        NANO_TASKS,
        tokens=100_000,
        seeds=range(8),
        eval_per_task=100,
        settings={
            "trainer.policy.model.path": str(POLICY),
            "trainer.max_prompt_length": 128,
            "trainer.eval_before_train": False,
            "generator.sampling_params.max_generate_length": 80,
            "generator.eval_sampling_params.max_generate_length": 80,
        },
        arms={
            "fixed_hard": {"tasks": hardest(NANO_TASKS)},
            "uniform": {"tasks": mix(NANO_TASKS), "complexity_mode": "random"},
            "atropos": {"tasks": mix(NANO_TASKS), "complexity_mode": "curriculum", "complexity_rule": "atropos"},
            "interval": {"tasks": mix(NANO_TASKS), "complexity_mode": "curriculum", "complexity_rule": "interval"},
        },
        figures={
            "groups without signal": lambda run: run["no_signal"],
            "solved, all levels": lambda run: run["solved"]["all"],
            "solved, c = 1": lambda run: run["solved"]["c=1"],
        },
    ),
    "smollm2": Experiment(
        "smollm2",
        "smollm2",
        SUMS,
        tokens=20_000,
        seeds=range(1),
        eval_per_task=100,
        settings={"trainer.ckpt_interval": -1, "trainer.hf_save_interval": -1},
        arms={
            "fixed_hard": {"tasks": hardest(SUMS)},
            "interval": {"tasks": mix(SUMS), "complexity_mode": "curriculum", "complexity_rule": "interval"},
        },
        figures={
            "groups without signal": lambda run: run["no_signal"],
            "solved, one digit": lambda run: statistics.fmean(run["solved"][f"c={c}"] for c in ("0", "0.25")),
            "solved, two digits": lambda run: statistics.fmean(run["solved"][f"c={c}"] for c in ("0.5", "0.75", "1")),
        },
    ),
}


def make_policy(target: float = 0.35, max_rounds: int = 10) -> None:
    """Continue the supervised training of `nano` on questions of all levels until it solves a share of `target`."""
    import torch
    import train_nano
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    from rg_env import Scorer
    from rg_env.cpu import nano_path

    torch.manual_seed(0)
    dataset = ReasoningGymDataset(mix(NANO_TASKS), seed=0, complexity_mode="random")
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


def overrides(experiment: Experiment, arm: str, seed: int, folder: Path) -> list[str]:
    """The arguments of `rg-env train` for a run."""
    rg = "environment.skyrl_gym.rg_dump"
    common = {
        "trainer.max_training_steps": 1000,
        "trainer.eval_interval": 1000,
        "trainer.eval_batch_size": 100,
        "data.val_data": f"[{experiment.questions}]",
        "trainer.seed": seed,
        f"{rg}.seed": seed,
        f"{rg}.dump_dir": folder / "dumps",
        "trainer.ckpt_path": folder / "checkpoints",
        "trainer.export_path": folder / "exports",
        "trainer.log_path": folder / "logs",
    }
    merged = common | experiment.settings | {f"{rg}.{name}": value for name, value in experiment.arms[arm].items()}
    values = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in merged.items()}
    config = str(ROOT / "configs" / f"{experiment.config}.yaml")
    return [config, *(f"{name}={value}" for name, value in values.items())]


def train_once(tokens: int, arguments: list[str]) -> None:
    """`rg-env train`, which stops at `tokens` generated tokens and then evaluates. Runs in its own process."""
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
                if self.generated >= tokens:
                    trainer.cfg.trainer.max_training_steps = callback_input.global_step
                    control.should_evaluate = True

        class BudgetExperiment(experiment.RGExperiment):
            def get_trainer(self, *args: Any, **kwargs: Any) -> Any:
                trainer = super().get_trainer(*args, **kwargs)
                trainer.add_callback(Budget())
                return trainer

        experiment.RGExperiment = BudgetExperiment
        experiment.run_training(cfg)

    cfg = load_config(arguments)
    with running_ray(cfg):
        ray.get(run.remote(cfg))


def summary(folder: Path) -> dict[str, Any]:
    """The figures of a finished run, from its dump."""
    groups = list(open_run(folder / "dumps").ledger())
    trained, evaluated = ([group for group in groups if group.phase == phase] for phase in ("train", "eval"))
    return {
        "tokens": sum(rollout.response_tokens for group in trained for rollout in group.rollouts),
        "steps": len({group.step for group in trained}),
        "groups": len(trained),
        "no_signal": statistics.fmean(group.no_signal for group in trained),
        "all_correct": statistics.fmean(group.outcome is Outcome.ALL_CORRECT for group in trained),
        "all_failed": statistics.fmean(group.outcome is Outcome.ALL_FAILED for group in trained),
        "solved": solve_rates(group for group in evaluated if group.step > 0),
        "solved_before": solve_rates(group for group in evaluated if group.step == 0),
    }


def solve_rates(groups: Iterable[LedgerRecord]) -> dict[str, float]:
    """The share of solved rollouts: of all, by complexity, and by task and complexity."""
    solved: defaultdict[str, list[bool]] = defaultdict(list)
    for group in groups:
        right = [rollout.base_score >= SOLVED_AT for rollout in group.rollouts]
        for name in ("all", f"c={group.complexity:g}", f"{group.task} c={group.complexity:g}"):
            solved[name] += right
    return {name: statistics.fmean(right) for name, right in sorted(solved.items())}


def run_missing(experiment: Experiment, arms: Iterable[str], seeds: Iterable[int]) -> None:
    """Do the runs that are missing in the results, seed by seed."""
    if experiment.name == "nano" and not (POLICY / "config.json").exists():
        make_policy()
    if not experiment.questions.exists():
        recipe = yaml.safe_load((ROOT / "configs" / f"{experiment.config}.yaml").read_text())
        experiment.runs.mkdir(parents=True, exist_ok=True)
        ReasoningGymDataset.fixed_eval(
            mix(experiment.tasks),
            samples_per_task=experiment.eval_per_task,
            complexity_mode="random",
            worked_examples=recipe["environment.skyrl_gym.rg_dump"].get("worked_examples", ()),
        ).to_parquet(experiment.questions)
    done = {(one["arm"], one["seed"]) for one in experiment.finished()}
    for seed, arm in ((seed, arm) for seed in seeds for arm in arms):
        if (arm, seed) in done:
            continue
        folder = experiment.runs / f"{arm}_{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        start = time.monotonic()
        command = [sys.executable, __file__, "--one", str(experiment.tokens)]
        subprocess.run([*command, *overrides(experiment, arm, seed, folder)], check=True, cwd=ROOT)
        line = {"arm": arm, "seed": seed, "seconds": round(time.monotonic() - start), **summary(folder)}
        with experiment.results.open("a") as out:
            out.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


def interval(values: list[float]) -> tuple[float, float]:
    """A mean over seeds and half of its 95 % interval (Student's t); 0 for a single value."""
    if len(values) < 2:
        return values[0], 0.0
    return statistics.fmean(values), t_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def written(values: list[float]) -> str:
    mean, half = interval(values)
    return f"{mean:.3f} ± {half:.3f}" if half else f"{mean:.3f}"


def table(experiment: Experiment) -> str:
    """The results as a Markdown table: means over seeds, and paired differences from `interval`."""
    of = {(one["arm"], one["seed"]): one for one in experiment.finished()}
    figures = experiment.figures
    rows = [f"| arm | runs | tokens | {' | '.join(figures)} |", "|---" * (3 + len(figures)) + "|"]
    for arm in experiment.arms:
        runs = [one for (name, _), one in sorted(of.items()) if name == arm]
        if runs:
            cells = [written([figure(run) for run in runs]) for figure in figures.values()]
            tokens = statistics.fmean(run["tokens"] for run in runs)
            rows.append(f"| {arm} | {len(runs)} | {tokens:.0f} | {' | '.join(cells)} |")
    for arm in experiment.arms:
        seeds = [seed for name, seed in sorted(of) if name == arm and ("interval", seed) in of]
        if arm != "interval" and seeds:
            cells = [
                written([figure(of["interval", seed]) - figure(of[arm, seed]) for seed in seeds])
                for figure in figures.values()
            ]
            rows.append(f"| interval − {arm} | {len(seeds)} | | {' | '.join(cells)} |")
    return "\n".join(rows)


def draw(experiment: Experiment, path: Path) -> None:
    """The results as a picture: each run a dot, each arm its mean with the 95 % interval."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = experiment.name
    from matplotlib import pyplot

    _, panels = pyplot.subplots(1, len(experiment.figures), figsize=(10, 2.6), sharey=True, layout="constrained")
    for panel, (title, figure) in zip(panels, experiment.figures.items(), strict=True):
        for place, arm in enumerate(experiment.arms):
            values = [figure(run) for run in experiment.finished() if run["arm"] == arm]
            mean, half = interval(values)
            panel.plot(values, [place] * len(values), "o", color="#9ab", markersize=4)
            panel.errorbar(mean, place, xerr=half, fmt="s", color="#124", capsize=4)
        panel.set(title=title, yticks=range(len(experiment.arms)), yticklabels=list(experiment.arms))
        panel.set_xlim(left=0)
    panels[0].invert_yaxis()
    pyplot.savefig(path, metadata={"Date": None})


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        train_once(int(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--table", action="store_true", help="only print the table of the finished runs")
    parser.add_argument("--figure", type=Path, help="an .svg or .png to draw the finished runs to")
    parser.add_argument("--arms", nargs="+", help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: all")
    options = parser.parse_args()
    experiment = EXPERIMENTS[options.experiment]
    if not options.table:
        run_missing(experiment, options.arms or experiment.arms, options.seeds or experiment.seeds)
    print(table(experiment))
    if options.figure:
        draw(experiment, options.figure)


if __name__ == "__main__":
    main()
