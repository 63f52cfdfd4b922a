"""Find the usable levels of every task and write `rg_env/tasks/levels.json`.

Run: `python -m scripts.find_levels [--print] [TASK ...]`. A choice of levels is usable if items can be made, their
questions differ, an item takes half a CPU second on average and 2.5 seconds at most, and every stored answer scores 1.

The search starts with all levels of a task. While the hardest choice is not usable, the attribute that is to blame
loses its highest level; while the easiest is not, its lowest; then every choice in between is tried. With names of
tasks, only their entries are replaced.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rg_env.runner import Failure, Guarded, guarded
from rg_env.scoring import Scorer
from rg_env.tasks import hash64, split_of, task_names
from rg_env.tasks.levels import RECORD, Attribute, Scale, attributes_of
from rg_env.tasks.upstream.patched_dataset import UpstreamDataset

ITEMS = 64
"""Items for each choice of levels; fewer if they take more than `ENOUGH` together, but at least `FEWEST`."""
FEWEST, ENOUGH = 12, 2.0
MOST_SECONDS = 0.5
"""CPU seconds an item, on average."""
SLOWEST = 2.5
"""CPU seconds of any item: a batch is not ready before its slowest item."""
HANGS = 8
"""CPU seconds after which a draw is killed."""
FEWEST_DIFFERENT = 12
"""Different questions in `ITEMS` items, of both splits."""
SCORED = 6
"""Stored answers that are scored for each choice of levels."""

Levels = tuple[int, ...]


@dataclass(frozen=True)
class Trial:
    """What came of one choice of levels: seconds an item, and why it is not usable (empty if it is)."""

    seconds: float
    fault: str
    questions: tuple[str, ...] = ()


def draw_once(task: str, options_json: str, seed: int) -> int:
    """Make an entry, in a process that can be killed. Returns the length of its question."""
    return len(_dataset_of(task, options_json).make(seed)["question"])


@functools.cache
def _dataset_of(task: str, options_json: str) -> UpstreamDataset:
    return UpstreamDataset(task, json.loads(options_json))


@functools.cache
def _drawing() -> Guarded:
    return guarded("scripts.find_levels:draw_once", timeout=HANGS, workers=1, fresh=False)


def make_items(task: str, options: Mapping[str, Any]) -> tuple[list[dict[str, Any]], float] | str:
    """Entries and their CPU seconds, without the time to load the task; or in words why there are none."""
    dataset, entries = UpstreamDataset(task, options), []
    total = 0.0
    for number in itertools.count():
        seed = hash64("levels", task, number) >> 32
        # A draw is a pure function, so one that returned in the other process returns here.
        trial = _drawing().score(task, json.dumps(options), seed)
        if trial.status is Failure.TIMEOUT:
            return "hangs"
        before = time.process_time()
        try:
            entries.append(dataset.make(seed))
        except Exception as error:
            if number >= 4 * FEWEST and len(entries) < number / 8:
                return f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        seconds = time.process_time() - before
        if number == 0:  # the task is loaded now
            entries.clear()
            continue
        if seconds > SLOWEST:
            return f"an item takes {seconds:.1f} s"
        total += seconds
        if len(entries) == ITEMS or (len(entries) >= FEWEST and total > ENOUGH):
            return entries, total
    raise AssertionError


class Search:
    """Tries choices of levels of one task, each once."""

    def __init__(self, task: str, scorer: Scorer) -> None:
        self.task, self.scorer = task, scorer
        self.attributes = attributes_of(task)
        self.trials: dict[Levels, Trial] = {}

    def scale(self, low: Levels, high: Levels) -> Scale:
        bounds = zip(self.attributes, low, high, strict=True)
        return Scale(
            self.task, {}, {}, tuple(Attribute(attribute.name, attribute.values, *ends) for attribute, *ends in bounds)
        )

    def attempt(self, levels: Levels) -> Trial:
        if levels not in self.trials:
            self.trials[levels] = self._attempt(self.scale(levels, levels).options(0))
        return self.trials[levels]

    def _attempt(self, options: Mapping[str, Any]) -> Trial:
        made = make_items(self.task, options)
        if isinstance(made, str):
            return Trial(0, made)
        entries, total = made
        questions = tuple(entry["question"] for entry in entries)
        seconds, different = total / len(entries), len(set(questions))
        if seconds > MOST_SECONDS:
            return Trial(seconds, f"{seconds:.2f} s an item")
        if different < FEWEST_DIFFERENT:
            return Trial(seconds, f"{different} different questions in {len(entries)} items")
        if len(entries) == ITEMS and len({split_of(self.task, question) for question in questions}) < 2:
            return Trial(seconds, f"{different} different questions in {len(entries)} items, all of one split")
        for entry in entries[:SCORED]:
            if entry["answer"] is None:
                continue
            score = self.scorer.score_answer(entry, entry["answer"], options)
            if score.score < 0.99:
                return Trial(seconds, f"its own answer scores {score.score:g} ({score.status}: {score.detail})"[:160])
        return Trial(seconds, "", questions)

    def fault(self, levels: Levels) -> str:
        return self.attempt(levels).fault

    def run(self) -> dict[str, Any]:
        low = tuple(0 for _ in self.attributes)
        high = tuple(len(attribute.values) - 1 for attribute in self.attributes)
        faults: dict[str, str] = {}
        high = self._narrowed(high, low, faults, "top")
        low = self._narrowed(low, high, faults, "bottom")
        if fault := self.fault(low) or self.fault(high):
            return {"unusable": fault}
        while bad := next((levels for levels in self._path(low, high) if self.fault(levels)), None):
            faults.setdefault("between", self.fault(bad))
            path = self._path(low, high)
            place = path.index(bad)
            if place >= len(path) / 2:
                high = path[place - 1]
            else:
                low = path[place + 1]
        ends = self.attempt(low), self.attempt(high)
        if low == high:
            return {"unusable": next(iter(faults.values()), "it has one level")}
        if ends[0].questions[:8] == ends[1].questions[:8]:
            return {"unusable": "its lowest and its highest level make the same questions"}
        bounds = zip(self.attributes, low, high, strict=True)
        scale = self.scale(low, high)
        seconds = [self.attempt(tuple(scale.level(c).values())).seconds for c in (0, 0.5, 1)]
        cut = {"cut": faults} if faults else {}
        return {
            "levels": {attribute.name: ends for attribute, *ends in bounds},
            "seconds": [float(f"{s:.2g}") for s in seconds],
        } | cut

    def _path(self, low: Levels, high: Levels) -> list[Levels]:
        """Every choice of levels between two, in order of c."""
        scale = self.scale(low, high)
        return list(dict.fromkeys(tuple(scale.level(step / 1000).values()) for step in range(1001)))

    def _narrowed(self, end: Levels, other: Levels, faults: dict[str, str], name: str) -> Levels:
        """The nearest usable end of the scale, moved attribute by attribute toward the `other` end."""
        while (fault := self.fault(end)) and end != other:
            faults.setdefault(name, fault)
            toward = [n + (m > n) - (m < n) for n, m in zip(end, other, strict=True)]
            movable = [place for place in range(len(end)) if toward[place] != end[place]]

            def moved(place: int, to: int, end: Levels = end) -> Levels:
                return (*end[:place], to, *end[place + 1 :])

            culprits = [place for place in movable if not self.fault(moved(place, toward[place]))]
            culprits = culprits or [place for place in movable if not self.fault(moved(place, other[place]))]
            end = moved(culprits[0], toward[culprits[0]]) if culprits else tuple(toward)
        return end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--print", action="store_true", help="do not write the file")
    arguments = parser.parse_args()
    record = json.loads(RECORD.read_text()) if arguments.tasks and RECORD.is_file() else {}
    with Scorer(workers=1) as scorer:
        for task in arguments.tasks or task_names():
            if not attributes_of(task):
                continue
            search = Search(task, scorer)
            record[task] = search.run()
            print(task, json.dumps(record[task]), flush=True)
            for levels, trial in search.trials.items():
                print("   ", levels, f"{trial.seconds:.4f}", trial.fault, flush=True)
    if not arguments.print:
        lines = (f" {json.dumps(task)}: {json.dumps(entry)}" for task, entry in sorted(record.items()))
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
