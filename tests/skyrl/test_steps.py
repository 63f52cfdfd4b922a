"""The trainer's own numbers of a step, in the dump."""

import math

import numpy as np
import torch

from rg_env.dump import DumpWriter, FileKind, StepRecord, from_line
from rg_env.dump.files import list_files
from rg_env.skyrl.steps import StepTracking
from tests.dump.records import RUN_ID


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
