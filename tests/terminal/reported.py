"""A scripted run: reports as a training sends them."""

import json

from rg_env.skyrl.steps import StepSummary
from rg_env.terminal.reports import Reports
from rg_env.terminal.screen import Screen
from tests.dump.records import group, violating

LOG = "/logs/train-20261122-043147.log"
DUMP = "/runs/quickstart/dumps"


def counts(*groups):
    summary = StepSummary(solved_at=0.99)
    summary.add(groups)
    taken = summary.take()
    return {"counts": taken.as_facts(), "words": ["2.0 s", taken.line()]}


BETTER = counts(group(0, [1.0, 1.0]), group(1, [1.0, 1.0]))
MIXED = counts(group(0, [1.0, 0.0]), group(1, [violating(0), 0.0]))


def training(steps=12):
    """Every report of a run that has got to `steps`; the evaluation is at step 0."""
    yield {"line": f"log: {LOG}", "log": LOG}
    yield {"title": "nano on cpu", "solved_at": 0.99}
    yield {"line": "starting Ray", "doing": "starting Ray"}
    yield {"run_id": "20261122-043147-a165b5b4", "dump": DUMP}
    yield {"evaluated": 0, "counts": MIXED["counts"]}
    yield {"doing": "training"}
    yield {"note": "warning: the disk is slow\x1b[2J"}
    for step in range(1, steps + 1):
        yield {"step": step, **(BETTER if step > steps // 2 else MIXED)}


def shown(reports):
    """A screen that has taken the reports, as a run sends them."""
    screen = Screen("train")

    class Direct(Reports):
        def send(self, **facts):
            screen.take(json.loads(json.dumps(facts)))
            screen.tick()

    sender = Direct()
    for report in reports:
        if "counts" not in report:
            sender.send(**report)
        elif "evaluated" in report:
            sender.evaluation(report["evaluated"], report["counts"])
        else:
            sender.step(report["step"], 60, report["counts"], *report.get("words", ()))
    return screen
