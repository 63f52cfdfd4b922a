"""What is told about a step: the line in the log, and the trainer's own numbers in the dump."""

import math

import numpy as np
import pytest
import torch

from rg_env.config import RGDumpConfig
from rg_env.dump import DumpWriter, FileKind, StepRecord, from_line
from rg_env.dump.files import list_files
from rg_env.scoring.types import Violation
from rg_env.skyrl.steps import StepSummary, StepTracking
from tests.dump.records import RUN_ID, group, unanswered, violating
from tests.skyrl.scripted_training import FULLY_ASYNC, build, train


def summary(*groups):
    made = StepSummary(RGDumpConfig())
    made.count_groups(groups)
    return made


@pytest.mark.parametrize(
    ("groups", "line"),
    [
        (
            [group(0, [1.0, 1.0]), group(1, [1.0, 0.0]), group(2, [0.0, 0.0], task="gcd")],
            "groups: 1 all correct, 1 mixed, 1 all wrong | mean score 0.500 | tasks: chain_sum 2, gcd 1",
        ),
        (
            [group(0, [0.01] * 8), group(1, [0.01, 0.02])],
            "groups: 0 all correct, 2 mixed (1 unsolved with equal partial credit), 0 all wrong | mean score 0.011 | "
            "tasks: chain_sum 2",
        ),
        (
            [group(0, [violating(0), violating(1), violating(2, Violation.NO_THINK), 0.0])],
            "groups: 0 all correct, 0 mixed, 1 all wrong | mean score 0.000 | violations: no_answer 2, no_think 1 | "
            "tasks: chain_sum 1",
        ),
        (
            [group(0, [unanswered()])],
            "groups: 0 all correct, 1 mixed, 0 all wrong | mean score none | tasks: chain_sum 1",
        ),
        ([], ""),
    ],
)
def test_a_step_in_one_line(groups, line):
    assert summary(*groups).groups_line() == line


class Tracker:
    def __init__(self):
        self.logged = []

    def log(self, data, step, commit=False):
        self.logged.append((dict(data), step, commit))

    def finish(self):
        self.finished = True


def steps_of(folder):
    files = [file for file in list_files(folder) if file.kind is FileKind.STEPS]
    return [from_line(StepRecord, line) for file in files for line in file.path.read_bytes().splitlines()]


def test_calls_of_a_step_become_one_line_and_only_numbers_are_kept(tmp_path):
    inner = Tracker()
    with DumpWriter(tmp_path, RUN_ID, 2) as writer:
        tracker = StepTracking(inner, writer)
        tracker.log({"eval/all/avg_score": np.float32(0.5)}, step=0, commit=True)
        tracker.log({"policy/loss": torch.tensor(0.25), "table": [1, 2], "name": "a", "flag": True}, step=1)
        tracker.log({"timing/step": 3, "grad": float("nan"), "many": np.zeros(2)}, step=1, commit=True)
        tracker.log({"policy/loss": 0.125}, step=2)
        tracker.finish()
    lines = [(line.attempt, line.step, dict(zip(line.name, line.value, strict=True))) for line in steps_of(tmp_path)]
    assert lines == [
        (2, 0, {"eval/all/avg_score": 0.5}),
        (2, 1, {"policy/loss": 0.25, "timing/step": 3.0, "grad": None}),
        (2, 2, {"policy/loss": 0.125}),
    ]
    assert [step for _, step, _ in inner.logged] == [0, 1, 1, 2] and inner.finished
    assert math.isnan(inner.logged[2][0]["grad"])


@pytest.mark.parametrize("loop", [{}, FULLY_ASYNC], ids=["synchronous", "asynchronous"])
def test_each_step_of_skyrls_loops_is_one_line(tmp_path, loop):
    trainer = build(tmp_path, **loop)
    trainer.tracker = StepTracking(trainer.tracker, trainer.generator.writer)
    train(trainer)
    lines = steps_of(tmp_path / "dumps")
    assert [line.step for line in lines] == sorted(trainer.given)
    assert all("timing/step" in line.name for line in lines)
