"""What is printed when a run has ended."""

import signal

import pytest

from rg_env.dump import DumpWriter
from rg_env.terminal.ending import how_it_stopped, last_lines
from rg_env.terminal.supervisor import Ended
from tests.dump.records import group
from tests.terminal.reported import STARTED, state_after, training

ARGS = ["configs/a b.yaml", "trainer.resume_mode=none"]
GOOD = Ended(0, None)


def lines_of(state, ended, args=ARGS):
    return list(last_lines(state, ended, args, STARTED + 90))


def dump_of(folder, *phases_and_steps):
    with DumpWriter(folder, "run", 1) as writer:
        for number, (phase, step, scores) in enumerate(phases_and_steps):
            writer.submit([group(number, scores, phase=phase, step=step, run_id="run")])
    state = state_after(training())
    state.dump, state.run_id = str(folder), "run"
    return state


def test_what_was_learned_is_shown_with_intervals(tmp_path):
    better = [("eval", step, [1.0, float(step > 0)]) for step in (0, 60) for _ in range(8)]
    lines = lines_of(dump_of(tmp_path / "dumps", *better), GOOD)
    assert lines[0] == "trained to step 12 in 1 min 30 s"
    assert lines[2].split() == ["before", "(step", "0)", "after", "(step", "60)"]
    assert lines[3].startswith("solve rate   0.500 [")
    assert "1.000 [" in lines[3]
    assert any(f"rg-env dumps stats {tmp_path}/dumps" in line for line in lines)
    assert any(f"rg-env dumps show {tmp_path}/dumps" in line for line in lines)


def test_without_an_evaluation_the_first_and_the_last_steps_are_compared(tmp_path):
    state = dump_of(tmp_path, *(("train", step, [1.0, float(step > 4)]) for step in range(1, 9)))
    state.evaluations.clear()
    text = "\n".join(lines_of(state, GOOD))
    assert "first quarter of the steps  last quarter" in text
    assert "0.500" in text


def test_one_evaluation_alone_shows_nothing_learned(tmp_path):
    lines = lines_of(dump_of(tmp_path, ("eval", 0, [1.0, 0.0])), GOOD)
    assert not any("solve rate" in line for line in lines)


@pytest.mark.parametrize(
    ("checkpoint", "end"),
    [
        (None, "no checkpoint to continue from (trainer.ckpt_interval)"),
        (10, "to continue from step 10: rg-env train 'configs/a b.yaml' trainer.resume_mode=latest"),
    ],
)
def test_an_interrupted_run_says_where_it_stopped_and_how_to_continue(checkpoint, end):
    state = state_after(training())
    state.checkpoint = checkpoint
    last = lines_of(state, Ended(143, signal.SIGTERM))[-1]
    assert last == f"stopped by SIGTERM after step 12 of 60; {end}"


def test_a_failure_names_the_log_and_the_phase():
    state = state_after([{"kind": "log", "path": "/logs/a.log"}, {"kind": "phase", "name": "loading the policy"}])
    lines = lines_of(state, Ended(1, None))
    assert lines[0] == "log: /logs/a.log"
    assert lines[1] == "failed while loading the policy; no step was finished"


def test_an_interrupted_evaluation_continues_with_an_option():
    state = state_after([], "eval")
    stopped = how_it_stopped(state, Ended(130, signal.SIGINT), ARGS)
    assert stopped == "stopped by SIGINT while reading the settings; the same command with --resume continues"


def test_a_resumed_run_that_did_not_get_to_a_step_continues_from_where_it_was():
    state = state_after([{"kind": "resumed", "step": 40}])
    assert "to continue from step 40" in how_it_stopped(state, Ended(129, signal.SIGHUP), ARGS)
