"""A scripted run: reports as a training sends them."""

from rg_env.rollouts.summary import StepSummary
from rg_env.terminal.state import RunState
from tests.dump.records import group, violating

STARTED = 1_000_000.0
LOG = "/logs/train-20261122-043147.log"
DUMP = "/runs/quickstart/dumps"


def counts(*groups):
    summary = StepSummary(solved_at=0.99)
    summary.add(groups)
    taken = summary.take()
    return {"counts": taken.as_facts(), "line": taken.line()}


BETTER = counts(group(0, [1.0, 1.0]), group(1, [1.0, 1.0]))
MIXED = counts(group(0, [1.0, 0.0]), group(1, [violating(0), 0.0]))


def training(steps=12, total=60):
    """Every report of a run that has got to `steps`; the evaluation is at step 0."""
    yield {"kind": "log", "path": LOG}
    yield {"kind": "start", "model": "/models/nano", "device": "cpu", "solved_at": 0.99}
    yield {"kind": "phase", "name": "starting Ray"}
    yield {"kind": "run", "run_id": "20261122-043147-a165b5b4", "dump": DUMP}
    yield {"kind": "phase", "name": "evaluating"}
    yield {"kind": "evaluation", "step": 0, **MIXED}
    yield {"kind": "phase", "name": "training"}
    yield {"kind": "note", "level": "WARNING", "text": "the disk is slow\x1b[2J"}
    for step in range(1, steps + 1):
        yield {"kind": "step", "step": step, "total": total, **(BETTER if step > steps // 2 else MIXED)}


def timed(reports, seconds=2.0):
    """The reports with a time, `seconds` apart."""
    for number, report in enumerate(reports):
        yield {**report, "time": STARTED + seconds * number}


def state_after(reports, command="train"):
    state = RunState(command, STARTED)
    for report in timed(reports):
        state.add(report)
    return state
