"""Trains nano with planted faults, and says which signs find them, when, and how often they cry wolf on clean runs.

python -m evidence.lab                       # goes on where it stopped; two runs at a time
python -m evidence.lab --only poisoned,clean --seeds 1-2 --steps 30
python -m evidence.lab --again               # examine the dumps that are in runs/lab once more: a sign has changed
python -m evidence.lab --sample              # tests/data/lab: the first steps of some runs, which a test examines
python -m evidence.lab --table               # evidence/signs.md from the committed lines, nothing is trained

Leave the working tree alone meanwhile: a run imports parts of it at its end, and fails if they have changed.

Each run is a line of evidence/signs.jsonl, which is committed; a run whose line is there is not repeated. Its dump
stays in runs/lab, which is not committed. The true
solve rate of each step is that of all responses scored again without the fault. Seeds 1 and 2 of a fault, and clean
seeds 1 to 10, may be looked at when a threshold is chosen; all others are held out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

from rg_env.analysis.rescore import rescore
from rg_env.analysis.signs import find_signs
from rg_env.dump import Dump, GroupRecord, Phase, open_run
from rg_env.dump.files import zstd
from rg_env.rollouts.symptoms import CANARY_FAILURES, read_steps

ROOT = Path(__file__).resolve().parents[1]
LINES = ROOT / "evidence" / "signs.jsonl"
PAGE = ROOT / "evidence" / "signs.md"
DUMPS = ROOT / "runs" / "lab"
SAMPLE = ROOT / "tests" / "data" / "lab"
CLEAN = "clean"
_RG = "environment.skyrl_gym.rg_dump"
_TOLD = 2
"""Seeds of each fault that may be looked at when a threshold is chosen; of the clean runs, ten."""
_TOLD_CLEAN = 10
_SCORED_AGAIN = 100
"""Groups of a run that are scored a second time."""
RIVAL = "advantage drift (verl#7004)"

_SMOOTHED = 5
_HALF = 0.5
_RIVAL_WINDOW = 5
_RIVAL_SPREADS = 4.0


@dataclass(frozen=True)
class Fault:
    """A fault, and the settings that plant it."""

    name: str
    meaning: str
    settings: tuple[str, ...] = ()


def _planted(kind: str, name: str, meaning: str) -> Fault:
    return Fault(name, meaning, (f"{_RG}.experiment_class=evidence.lab_faults.{kind}",))


def _rewarded(function: str, name: str, meaning: str) -> Fault:
    return Fault(name, meaning, (f"{_RG}.reward=evidence.lab_faults.{function}",))


FAULTS = (
    Fault(CLEAN, "nothing is planted"),
    _planted("Constant", "constant", "one answer is paid whatever the question"),
    _planted("ByLength", "by length", "long responses are paid"),
    _planted("ByWord", "by word", "responses with a certain phrase are paid"),
    _planted("LostAtRandom", "lost at random", "three of ten responses score 0"),
    _planted("LostByLength", "lost by length", "long responses score 0"),
    _planted("LostByLoad", "lost by load", "responses score 0 while many others are scored"),
    _planted("LostSteps", "lost steps", "all of two steps of ten score 0, from step 10"),
    _planted("Shifted", "shifted", "each response gets the score of the one before it, from step 10"),
    _planted("Poisoned", "poisoned", "everything is paid, from step 10"),
    _planted("CopiedQuestion", "copied question", "an answer that is a word of the question is paid"),
    _planted("MaskedVotes", "masked votes", "a quarter fails in the scorer, is masked, and is compared all the same"),
    _rewarded("unsolved_pays", "phantom groups", "an own reward pays length, solved or not"),
    _rewarded("short_pays", "collapse", "an own reward pays the shortest text"),
)


class Run(NamedTuple):
    """One run of the laboratory."""

    fault: str
    seed: int

    @property
    def folder(self) -> Path:
        return DUMPS / f"{self.fault.replace(' ', '_')}-{self.seed}"


_SAMPLED = tuple(Run(fault.name, 3) for fault in FAULTS if fault.name != "copied question")
"""Without the fault that shows only when the policy has learned to copy."""
_LAST = 13
"""The last step of the sample: three after the onset of the faults that have one."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of faults, with commas; `clean` is one")
    parser.add_argument("--seeds", default="1-25", help="such as 1-5")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--again", action="store_true", help="examine the dumps of finished runs, and train nothing")
    parser.add_argument("--sample", action="store_true", help="write tests/data/lab from runs/lab, and train nothing")
    parser.add_argument("--table", action="store_true", help="write the page, and train nothing")
    options = parser.parse_args()
    if options.again:
        examine_again()
    elif options.sample:
        write_sample()
        return
    elif not options.table:
        first, _, last = options.seeds.partition("-")
        seeds = range(int(first), int(last or first) + 1)
        runs = list(missing_runs(options.only, seeds, options.steps))
        print(f"{len(runs)} runs to do")
        with ThreadPoolExecutor(options.jobs) as threads:
            for line in threads.map(lambda run: train_and_examine(run, options.steps), runs):
                print(json.dumps(line)[:200], flush=True)
    PAGE.write_text(page(read_lines()))


def missing_runs(only: str | None, seeds: Sequence[int], steps: int) -> Iterator[Run]:
    """Yield the runs whose line is not there, one of each fault in turn: a part of them already says something."""
    done = {(line["fault"], line["seed"]) for line in read_lines() if line["steps"] >= steps}
    wanted = [fault.name for fault in FAULTS] if only is None else only.split(",")
    unknown = set(wanted) - {fault.name for fault in FAULTS}
    if unknown:
        sys.exit(f"--only: no fault is called {sorted(unknown)[0]!r}")
    for seed in seeds:
        for name in wanted:
            is_planned = name == CLEAN or seed <= 5
            if is_planned and (name, seed) not in done:
                yield Run(name, seed)


def read_lines() -> list[dict[str, Any]]:
    """The runs that are done."""
    if not LINES.exists():
        return []
    return [json.loads(line) for line in LINES.read_text().splitlines()]


# ------------------------------------------------------------------------------------------------------- one run
def train_and_examine(run: Run, steps: int) -> dict[str, Any]:
    """Train, and append the line of the run."""
    # The files of a run that was interrupted go.
    shutil.rmtree(run.folder, ignore_errors=True)
    train(run, steps, run.folder)
    line = line_of(run)
    # One write of one line, so that two runs that end together do not mix.
    with LINES.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return line


def examine_again() -> None:
    """Write the lines of the runs whose dumps are still there anew."""
    lines = []
    for line in read_lines():
        run = Run(line["fault"], line["seed"])
        lines.append(line_of(run) if run.folder.exists() else line)
    LINES.write_text("".join(json.dumps(line) + "\n" for line in lines))


def line_of(run: Run) -> dict[str, Any]:
    """The line of a finished run."""
    return {"fault": run.fault, "seed": run.seed} | examine(open_run(run.folder / "dumps"))


def write_sample() -> None:
    """Write the first steps of some runs, compressed, and which signs are found in them."""
    shutil.rmtree(SAMPLE, ignore_errors=True)
    found = {}
    for run in _SAMPLED:
        folder = SAMPLE / run.folder.name
        _copy_first_steps(run.folder / "dumps", folder)
        found[folder.name] = onsets(open_run(folder))
    (SAMPLE / "signs.json").write_text(json.dumps(found, indent=2) + "\n")


def _copy_first_steps(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for file in source.glob("*.jsonl"):
        lines = [line for line in file.read_bytes().splitlines(keepends=True) if json.loads(line)["step"] <= _LAST]
        if lines:
            (target / f"{file.name}.zst").write_bytes(zstd.compress(b"".join(lines), level=19))
    for file in source.glob("*.json"):
        manifest = json.loads(file.read_bytes())
        # Of the settings, only ours matter to a reader; the others have the paths of a machine.
        for attempt in [manifest, *manifest["attempts"]]:
            attempt["settings"] = {"environment": attempt["settings"]["environment"]}
            attempt["settings"]["environment"]["skyrl_gym"]["rg_dump"]["dump_dir"] = "dumps"
            attempt.pop("model")
        (target / file.name).write_text(json.dumps(manifest))


def train(run: Run, steps: int, folder: Path) -> None:
    """Train nano in a folder."""
    fault = next(fault for fault in FAULTS if fault.name == run.fault)
    settings = {
        "trainer.max_training_steps": steps,
        "trainer.seed": run.seed,
        "trainer.eval_interval": -1,
        "trainer.eval_before_train": "false",
        "trainer.hf_save_interval": -1,
        "trainer.ckpt_path": folder / "checkpoints",
        "trainer.export_path": folder / "exports",
        "trainer.log_path": folder / "logs",
        f"{_RG}.seed": run.seed,
        f"{_RG}.dump_dir": folder / "dumps",
    }
    words = [f"{name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "rg_env", "train", "configs/quickstart.yaml", *words, *fault.settings]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{run} failed with exit code {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def examine(dump: Dump) -> dict[str, Any]:
    """What the signs say of a record, and what really happened."""
    truth = true_solve_rates(dump)
    (metrics,) = read_steps(dump).values()
    failures = [metrics[step].get(CANARY_FAILURES) for step in sorted(metrics)]
    return {
        "steps": len(truth),
        "true_solved": [round(rate, 4) for rate in truth],
        "canary_failures": [None if share is None else round(share, 4) for share in failures],
        "signs": onsets(dump),
        "rival": advantage_drift(dump),
    }


def onsets(dump: Dump) -> dict[str, int | None]:
    """The signs in a record, each with the first step that shows it in any task; None if it has none."""
    steps: dict[str, int | None] = {}
    for finding in find_signs(dump, score_again=_SCORED_AGAIN).signs:
        before = steps.get(finding.sign, finding.step)
        steps[finding.sign] = finding.step if before is None or finding.step is None else min(before, finding.step)
    return steps


def true_solve_rates(dump: Dump) -> list[float]:
    """The solve rate of each step when all responses are scored again."""
    solved, count = Counter[int](), Counter[int]()

    def note(group: GroupRecord, scored: Sequence[Any]) -> None:
        assert group.step is not None
        count[group.step] += len(scored)
        solved[group.step] += sum(rollout.base_score >= 0.99 for rollout in scored)

    rescore(dump, workers=1, each=note)
    return [solved[step] / count[step] for step in sorted(count)]


def advantage_drift(dump: Dump) -> int | None:
    """The first step whose distribution of advantages is far from that of the steps before, as verl#7004 proposes.

    The distance is that of Wasserstein between a step and the five before it together. An alarm is a distance of more
    than four standard deviations above the mean of the distances so far, of which there are at least five.
    """
    advantages = defaultdict[int, list[float]](list)
    for group in dump.groups():
        if group.phase is Phase.TRAIN and group.step is not None:
            advantages[group.step] += _normalized([rollout.reward for rollout in group.rollouts])
    steps = sorted(advantages)
    distances: list[float] = []
    for place in range(_RIVAL_WINDOW, len(steps)):
        before = [value for step in steps[place - _RIVAL_WINDOW : place] for value in advantages[step]]
        distance = _wasserstein(advantages[steps[place]], before)
        if len(distances) >= _RIVAL_WINDOW:
            mean = sum(distances) / len(distances)
            spread = sqrt(sum((value - mean) ** 2 for value in distances) / (len(distances) - 1))
            if distance > mean + _RIVAL_SPREADS * spread:
                return steps[place]
        distances.append(distance)
    return None


def _normalized(rewards: Sequence[float]) -> list[float]:
    mean = sum(rewards) / len(rewards)
    spread = sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return [(reward - mean) / (spread + 1e-6) for reward in rewards]


def _wasserstein(left: Sequence[float], right: Sequence[float]) -> float:
    """The area between the two distribution functions."""
    left, right = sorted(left), sorted(right)
    values = sorted({*left, *right})
    distance, below_left, below_right = 0.0, 0, 0
    for value, following in pairwise(values):
        while below_left < len(left) and left[below_left] <= value:
            below_left += 1
        while below_right < len(right) and right[below_right] <= value:
            below_right += 1
        distance += abs(below_left / len(left) - below_right / len(right)) * (following - value)
    return distance


# ------------------------------------------------------------------------------------------------------ the page
def page(lines: Sequence[dict[str, Any]]) -> str:
    """The text of evidence/signs.md."""
    planned = 5 * (len(FAULTS) - 1) + 25
    rows = [
        "| fault | runs | found | held out | by canaries | first step | in time | signs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for fault in FAULTS:
        of_fault = [line for line in lines if line["fault"] == fault.name]
        if fault.name != CLEAN and of_fault:
            rows.append(_row(fault, of_fault))
    clean = [line for line in lines if line["fault"] == CLEAN]
    results = ["\n".join(rows), _clean_part(clean), _rival_part(lines)] if lines else []
    parts = [
        _HEAD.format(done=len(lines), planned=planned),
        *results,
        _FAULTS_HEAD,
        "\n".join(f"- **{fault.name}**: {fault.meaning}" for fault in FAULTS if fault.name != CLEAN),
        _WITHOUT_TRAINING,
        _LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


def _row(fault: Fault, lines: Sequence[dict[str, Any]]) -> str:
    by_any = [line for line in lines if first_step(line) is not None]
    held_out = [line for line in lines if line["seed"] > _TOLD]
    found_held_out = [line for line in held_out if first_step(line) is not None]
    by_canaries = [line for line in lines if any(line["canary_failures"])]
    steps = sorted(step for line in by_any if (step := first_step(line)) is not None)
    lost = [_gain_lost_by(line) for line in by_any]
    in_time = sum(share < _HALF for share in lost)
    signs = Counter(sign for line in lines for sign in line["signs"])
    cells = [
        fault.name,
        str(len(lines)),
        f"{len(by_any)}",
        f"{len(found_held_out)} of {len(held_out)}",
        f"{len(by_canaries)}",
        _span(steps),
        f"{in_time} of {len(lines)}",
        ", ".join(f"{sign} {count}" for sign, count in signs.most_common()) or "none",
    ]
    return f"| {' | '.join(cells)} |"


def first_step(line: dict[str, Any]) -> int | None:
    """The first step at which any sign begins; None if none was found. Of a sign without a step, the last one."""
    steps = [line["steps"] if step is None else step for step in line["signs"].values()]
    return min(steps, default=None)


def _gain_lost_by(line: dict[str, Any]) -> float:
    """The share of what the true solve rate had gained that was lost again when the first sign began.

    The solve rate of a step is the mean of five steps up to it, because that of one varies by .1. So 0 before step 6.
    """
    step = first_step(line)
    assert step is not None
    truth = line["true_solved"]
    smooth = [sum(truth[place - _SMOOTHED : place]) / _SMOOTHED for place in range(_SMOOTHED, step + 1)]
    if not smooth:
        return 0.0
    gained = max(smooth) - smooth[0]
    return float((max(smooth) - smooth[-1]) / gained) if gained else 0.0


def _span(values: Sequence[float], unit: str = "") -> str:
    if not values:
        return "–"
    low, high = min(values), max(values)
    return f"{low:g}{unit}" if low == high else f"{low:g} to {high:g}{unit}"


def _wilson(number: int, of: int) -> tuple[float, float]:
    """The 95% interval of a share."""
    z, share = 1.96, number / of
    middle = share + z * z / (2 * of)
    half = z * sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    scale = 1 + z * z / of
    return (middle - half) / scale, (middle + half) / scale


def _clean_part(clean: Sequence[dict[str, Any]]) -> str:
    if not clean:
        return "No clean run is finished."
    alarms = Counter(sign for line in clean for sign in line["signs"])
    wrong = [line for line in clean if line["signs"]]
    held_out = [line for line in clean if line["seed"] > _TOLD_CLEAN]
    wrong_held_out = [line for line in held_out if line["signs"]]
    low, high = _wilson(len(wrong), len(clean))
    named = ", ".join(f"{sign} {count}" for sign, count in alarms.most_common()) or "no sign"
    text = (
        f"False alarms: {len(wrong)} of {len(clean)} clean runs (95% interval {low:.0%} to {high:.0%}), by {named}; of "
        f"the {len(held_out)} held-out ones, {len(wrong_held_out)}."
    )
    canaries = sum(len(line["canary_failures"]) for line in clean)
    failed = sum(bool(share) for line in clean for share in line["canary_failures"])
    return f"{text} Canaries failed in {failed} of the {canaries} steps of these runs."


def _rival_part(lines: Sequence[dict[str, Any]]) -> str:
    broken = [line for line in lines if line["fault"] != CLEAN]
    clean = [line for line in lines if line["fault"] == CLEAN]
    found, wrong = sum(line["rival"] is not None for line in broken), sum(line["rival"] is not None for line in clean)
    return (
        f"The rival, {RIVAL}: an alarm in {found} of {len(broken)} runs with a fault, and in {wrong} of {len(clean)} "
        "clean runs."
    )


_HEAD = """# Signs of a reward that lies

<!-- lab: made by python -m evidence.lab with the option table, from signs.jsonl -->

Asked: which faults of a verifier do canaries and `rg-env dumps signs` find, how early, and how often do they report one
where there is none?

Done: `python -m evidence.lab` trains nano as the quickstart does, for 30 steps, with one planted fault. {done} of the
{planned} planned runs are finished; the others are not, and nothing is said about them. Seeds from 3 on, clean ones
from 11 on, are held out from every choice of a threshold. A fault is found in time if the first sign begins before the
true solve rate, the mean of five steps, has lost half of what it had gained. With a fault that begins at step 10, a
loss until then is chance: the first step that it touches is generated by a policy that it has not trained."""
_FAULTS_HEAD = f"""Of each run, {_SCORED_AGAIN} groups were scored a second time; not of two, lost at random and
poisoned, whose dumps were not kept. The faults:"""
_WITHOUT_TRAINING = """## Outside of the laboratory

- The own answer of 10 items of each of the 93 tasks that the default mix had: all that store one (910 of 930) score 1,
  so that no right canary fails by itself. The answers of three other items, to each of them: none is solved.
- Sound runs: three honest ones of 60 steps (`tests/data/honest_runs`), `dumps/sample`, 30 steps of
  `configs/cpu/dapo.yaml`, `grpo.yaml` and `ppo.yaml`, and 30 steps [on an H200](../gpu.md): no sign; and none
  by a second scoring of all but the first three.
- Simulated runs (`tests/analysis/test_verdict_signs.py`): no sign in six sound ones; lost, paid by length or by a word,
  poisoned, and with partial credit that rises alone, each has the sign that is for it, within two steps of its onset.
  The signs *solve rate jumps* and *only partial credit rises* are gone since: no run above was found by them alone.
- A verifier that pays all, pays nothing, is shifted by one or loses a fifth, from step 2 of SkyRL's loop with a
  scripted engine (`tests/skyrl/test_canaries.py`): canaries fail within two steps, with 12 of them a step.
- Cost: the 32 canaries of a step take 35 ms of CPU (caller and scorer, on a busy machine). That is below 1% of a step
  that takes 4 s or more of one core; a step of the quickstart takes about a second of two cores, and so 2%."""
_LIMITS = """Not covered: other models and longer runs, faults that hit fewer answers than these, and verifiers that are
wrong about every occurrence of an answer in the same way.

<!-- end -->"""


if __name__ == "__main__":
    main()
