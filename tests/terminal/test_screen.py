"""What a terminal and a pipe show of a scripted run, and what is printed at its end."""

import io
import os
import signal
import sys

import pytest
from rich.console import Console

from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import DumpWriter
from rg_env.scoring.types import Violation
from rg_env.terminal.screen import Screen, curve, ending
from tests.dump.records import group, violating

LOG = "/logs/train-20261122-043147.log"
DUMP = "/runs/quickstart/dumps"
ARGS = ["configs/a b.yaml", "trainer.resume_mode=none"]
GOOD = {"groups": {"above the threshold": 2}, "scorer": {"ok": 4}, "reward": 1.0, "solved": 1.0, "format": 1.0}
MIXED = {
    "groups": {"above the threshold": 1, "all wrong": 1},
    "scorer": {"ok": 4},
    "reward": 0.25,
    "solved": 0.25,
    "format": 0.75,
}


def training(steps=12):
    """Every report of a run that has got to `steps`; the evaluation is at step 0."""
    yield {"line": f"log: {LOG}", "log": LOG}
    yield {"title": "nano on cpu"}
    yield {"line": "starting Ray", "doing": "starting Ray"}
    yield {"run_id": "20261122-043147-a165b5b4", "dump": DUMP}
    yield {"evaluation": "after step 0: reward 0.25", "line": "evaluation after step 0: reward 0.25"}
    yield {"doing": "training"}
    yield {"note": "warning: the disk is slow\x1b[2J"}
    for step in range(1, steps + 1):
        counts = GOOD if step > steps // 2 else MIXED
        yield {"line": f"step {step}/60 | 2.0 s", "step": step, "total": 60, "trainer": f"loss 0.1 KL {step}", **counts}


def shown(*reports):
    """A screen that has taken the reports."""
    screen = Screen("train")
    for report in reports:
        screen.take(report)
        screen.tick()
    return screen


def drawn(screen, width):
    screen._console = Console(file=io.StringIO(), width=width)
    screen._console.print(screen.panel())
    return screen._console.file.getvalue()


def lines_of(screen, code=0):
    console = Console(file=io.StringIO(), width=120)
    for line in ending(screen.facts, code, ARGS, screen.began):
        console.print(line, soft_wrap=True)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_table_that_cannot_be_made_is_a_warning(tmp_path, monkeypatch):
    ended = dump_of(tmp_path, ("eval", 0, [1.0, 0.0]))
    monkeypatch.setitem(sys.modules, "rg_env.analysis.tables", None)  # as where polars is not installed
    warning, dump, *_ = [line for line in lines_of(ended) if "table" in line or line.startswith("dump:")]
    assert warning.startswith("warning: no table of what was learned: ")
    assert dump.startswith("dump: ")


@pytest.mark.parametrize("width", [80, 200])
def test_the_panel_has_what_a_user_looks_for_and_obeys_no_text(width):
    text = drawn(
        shown(*training(), {"resumed": 40, "title": "nano\x1b]0;x\x07 on cpu"}, {"scorer": {"timeout": 2}}), width
    )
    assert "\x1b" not in text
    assert {len(line) for line in text.splitlines()} == {width}
    for words in (
        "12/60",
        "s each",
        DUMP,
        LOG,
        "␛]0;x␇ on cpu",
        "from step 40",
        "training, 0:00:00",
        "18 above the threshold, 6 all wrong",
        "48 ok, 2 timeout",
        "loss 0.1 KL 12",
        "after step 0: reward 0.25",
        "1.000  ▃▃▃▃▃▃██████",
    ):
        assert words in text, words


def test_the_rate_and_the_time_left_are_those_of_the_steps():
    now = [100.0]
    screen = Screen("train")
    screen._progress.get_time = lambda: now[0]
    for step in range(41, 44):  # resumed: the first step that is seen is not the first of the run
        screen.take({"step": step, "total": 60})
        now[0] += 7
    text = drawn(screen, 100)
    assert "43/60" in text
    assert "7 s each" in text
    assert "0:01:59" in text


def test_a_run_that_waits_says_for_what_and_how_far_it_is():
    assert "importing, the first time takes longer, 0:00:00" in drawn(Screen("train"), 80)
    screen = shown({"doing": "checking prompt lengths"}, {"progress": "40 of 102 tasks"})
    assert "checking prompt lengths, 40 of 102 tasks, 0:00:00" in drawn(screen, 80)
    screen.take({"doing": "training"})
    assert "training, 0:00:00" in drawn(screen, 80)


def test_a_terminal_without_unicode_gets_no_blocks():
    class Ascii(io.StringIO):
        encoding = "ascii"

    screen = shown(*training())
    screen._console = Console(file=Ascii(), width=100)
    screen._console.print(screen.panel())
    assert not set("▁█━") & set(screen._console.file.getvalue())


def test_a_curve_is_as_wide_as_its_values_or_the_room():
    assert curve([0.0] * 50 + [1.0] * 50, 10) == "▁▁▁▁▁█████"
    assert curve([-1.0, 3.0], 10) == "▁█"


def test_a_pipe_gets_one_line_per_step_and_no_control_sequence(capsys):
    shown(*training())
    said = capsys.readouterr()
    assert said.err == ""
    assert "\x1b" not in said.out
    first, *_ = lines = said.out.splitlines()
    assert first == f"log: {LOG}"
    steps = [line for line in lines if line.startswith("step ")]
    assert steps == [f"step {step}/60 | 2.0 s" for step in range(1, 13)]
    assert "evaluation after step 0: reward 0.25" in lines
    assert any(line.startswith("warning: the disk is slow") for line in lines)


def test_a_reader_of_the_pipe_that_is_gone_stops_nothing_and_costs_no_descriptor(monkeypatch):
    theirs, ours = os.pipe()
    with os.fdopen(ours, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        screen = Screen("train")
        os.close(theirs)
        before = os.listdir("/dev/fd")  # noqa: PTH208
        for _ in range(3):
            screen.line("a line")
        assert len(os.listdir("/dev/fd")) == len(before)  # noqa: PTH208


def test_a_verbose_run_prints_its_log_itself(capsys):
    screen = Screen("train", verbose=True)
    screen.take({"line": "not shown", "note": "warning: in the log already"})
    assert capsys.readouterr().out == ""


class Terminal(io.StringIO):
    """A terminal of a given width that wraps its lines anew when it becomes narrower."""

    def __init__(self):
        super().__init__()
        self.isatty = lambda: True


def test_a_terminal_that_becomes_narrower_keeps_no_broken_lines(monkeypatch):
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    screen = shown(*training())
    screen._console = Console(file=terminal, width=160, force_terminal=True)
    screen._draw()
    lines = screen._drawn[0]
    screen._console.width = 60
    terminal.truncate(0)
    screen._draw()
    assert f"\x1b[{lines * 3}A" in terminal.getvalue()


class Gone(io.StringIO):
    def __init__(self, is_terminal):
        super().__init__()
        self.isatty = lambda: is_terminal

    def write(self, text):
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_that_is_gone_does_not_stop_the_run(monkeypatch, is_terminal):
    monkeypatch.setattr("sys.stdout", Gone(is_terminal))
    monkeypatch.setenv("TERM", "xterm")
    shown(*training(steps=2)).end(129, ARGS)


def dump_of(folder, *phases_and_steps, policy=None):
    with DumpWriter(folder, "run", 1, policy) as writer:
        for number, (phase, step, scores) in enumerate(phases_and_steps):
            writer.submit([group(number, scores, phase=phase, step=step, run_id="run")])
    has_evaluation = any(phase == "eval" for phase, *_ in phases_and_steps)
    reports = (report for report in training() if has_evaluation or "evaluation" not in report)
    return shown(*reports, {"dump": str(folder), "run_id": "run"})


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
    assert "no rollouts saved" not in "\n".join(lines)


def test_without_an_evaluation_all_steps_are_shown_together_and_why_no_rollouts_were_saved(tmp_path):
    groups = [("train", step, [0.5, 0.0]) for step in (1, 2, 3)] + [("train", 4, [0.0, 0.0])]
    lines = lines_of(
        dump_of(tmp_path, *groups, policy=RGDumpConfig(dump_failed_rollouts=False, dump_other_rollouts=False))
    )
    assert [line.split()[:3] for line in lines if line.startswith("train ")] == [["train", "4", "0%"]]
    [line] = [line.strip() for line in lines if "no rollouts saved" in line]
    assert line == (
        "no rollouts saved: 3 neither above the threshold nor all wrong (dump_other_rollouts=false), "
        "1 all wrong (dump_failed_rollouts=false)"
    )


UNTAGGED = [violating(0, Violation.NO_THINK), violating(1, Violation.NO_THINK)]


def test_why_most_responses_score_0_is_said_at_the_end(tmp_path):
    good, bad = dump_of(tmp_path / "good", ("train", 1, [0.0, 0.0])), dump_of(tmp_path / "bad", ("train", 1, UNTAGGED))
    assert not [line for line in lines_of(good) if "to see some" in line]
    (line,) = [line for line in lines_of(bad) if "to see some" in line]
    assert line.startswith("2 of 2 responses violate the format: no_think")
    assert "format=lenient" in line


@pytest.mark.parametrize(
    ("reports", "code", "ends"),
    [
        (
            training(),
            128 + signal.SIGTERM,
            "stopped by SIGTERM after step 12 of 60; no checkpoint to continue from (trainer.ckpt_interval)",
        ),
        (
            [*training(), {"checkpoint": 10}],
            128 + signal.SIGINT,
            "stopped by SIGINT after step 12 of 60; to continue from step 10: rg-env train 'configs/a b.yaml' "
            "trainer.resume_mode=latest",
        ),
        # The run has no checkpoint of its own yet: only the same command begins at that step again.
        (
            [{"resumed": 40}],
            128 + signal.SIGHUP,
            "to continue from step 40: rg-env train 'configs/a b.yaml' trainer.resume_mode=none",
        ),
        ([{"log": LOG, "doing": "loading"}], 1, f"log: {LOG}\nfailed while loading; no step was finished"),
    ],
)
def test_a_run_that_did_not_end_says_where_it_stopped_and_how_to_continue(reports, code, ends):
    text = "\n".join(lines_of(shown(*reports), code))
    assert text.endswith(ends)


def test_the_first_error_is_the_one_that_is_shown(capsys):
    shown({"error": "the scorer processes are gone"}, {"error": "The worker died unexpectedly."}).end(1, ARGS)
    assert capsys.readouterr().err == "rg-env: the scorer processes are gone\n"
