"""What is printed when a run has ended."""

import io
import signal

import pytest
from rich.console import Console

from rg_env.dump import DumpWriter
from rg_env.terminal.command import ending
from rg_env.terminal.supervisor import Ended
from tests.dump.records import group
from tests.terminal.reported import shown, training

ARGS = ["configs/a b.yaml", "trainer.resume_mode=none"]


def lines_of(screen, exit_code=0, signum=None):
    console = Console(file=io.StringIO(), width=120)
    for part in ending(screen, Ended(exit_code, signum), ARGS):
        console.print(part, soft_wrap=True)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def dump_of(folder, *phases_and_steps):
    with DumpWriter(folder, "run", 1) as writer:
        for number, (phase, step, scores) in enumerate(phases_and_steps):
            writer.submit([group(number, scores, phase=phase, step=step, run_id="run")])
    has_evaluation = any(phase == "eval" for phase, *_ in phases_and_steps)
    reports = (report for report in training() if has_evaluation or "evaluated" not in report)
    return shown([*reports, {"dump": str(folder), "run_id": "run"}])


def test_the_first_and_the_last_evaluation_are_shown_with_intervals(tmp_path):
    better = [("eval", step, [1.0, float(step > 0)]) for step in (0, 30, 60) for _ in range(8)]
    lines = lines_of(dump_of(tmp_path / "dumps", *better))
    assert lines[0].startswith("trained to step 12 in 0:00:0")
    first, last = ([line for line in lines if line.split()[:1] == [step]] for step in ("0", "60"))
    assert "50% ±" in first[0]
    assert "100%" in last[0]
    assert not [line for line in lines if line.split()[:1] == ["30"]]
    assert f"rg-env dumps stats {tmp_path}/dumps" in "\n".join(lines)
    assert f"rg-env dumps show {tmp_path}/dumps" in "\n".join(lines)


def test_without_an_evaluation_all_steps_are_shown_together(tmp_path):
    text = "\n".join(lines_of(dump_of(tmp_path, *(("train", step, [1.0, float(step > 4)]) for step in range(1, 9)))))
    assert "75% ±" in text
    assert "train" in text


@pytest.mark.parametrize(
    ("checkpoint", "end"),
    [
        ({}, "no checkpoint to continue from (trainer.ckpt_interval)"),
        ({"checkpoint": 10}, "to continue from step 10: rg-env train 'configs/a b.yaml' trainer.resume_mode=latest"),
    ],
)
def test_an_interrupted_run_says_where_it_stopped_and_how_to_continue(checkpoint, end):
    last = lines_of(shown([*training(), checkpoint]), 143, signal.SIGTERM)[-1]
    assert last == f"stopped by SIGTERM after step 12 of 60; {end}"


def test_a_failure_names_the_log_and_what_the_run_was_doing():
    lines = lines_of(shown([{"log": "/logs/a.log"}, {"doing": "loading the policy"}]), 1)
    assert lines == ["log: /logs/a.log", "failed while loading the policy; no step was finished"]


def test_a_resumed_run_that_did_not_get_to_a_step_continues_from_where_it_was():
    assert "to continue from step 40" in lines_of(shown([{"resumed": 40}]), 129, signal.SIGHUP)[-1]
