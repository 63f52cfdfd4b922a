"""What a terminal and a pipe show of a scripted run."""

import io

import pytest
from rich.console import Console

from rg_env.terminal.screen import Screen, curve
from tests.terminal.reported import DUMP, LOG, MIXED, shown, training


def drawn(screen, width, **options):
    console = Console(file=io.StringIO(), width=width, **options)
    screen._console = console
    console.print(screen.panel())
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_panel_has_what_a_user_looks_for(width):
    text = drawn(shown(training()), width)
    assert {len(line) for line in text.splitlines()} == {width}
    for words in (
        "12/60",
        "s each",
        DUMP,
        LOG,
        "nano on cpu",
        "training, 0:00:00",
        "18 above the threshold, 6 all wrong",
        "48 ok",
    ):
        assert words in text, words
    assert "1.000  ▃▃▃▃▃▃██████" in text  # solved
    assert "after step 0: reward 0.25 solved 0.25 format 0.75" in text


def test_the_rate_and_the_time_left_are_those_of_the_steps(monkeypatch):
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


def test_a_run_that_has_only_started_says_what_it_does():
    text = drawn(Screen("train"), 80)
    assert "reading the settings (the first time takes longer), 0:00:00" in text
    assert "step" not in text


def test_scorer_failures_and_a_resumed_run_are_on_the_panel():
    text = drawn(shown([{"resumed": 40}, *training(steps=1), {"scorer": {"timeout": 2}}]), 80)
    assert "from step 40" in text
    assert "2 timeout" in text


def test_a_terminal_without_unicode_gets_no_blocks():
    class Ascii(io.StringIO):
        encoding = "ascii"

    screen = shown(training())
    screen._console = Console(file=Ascii(), width=100)
    screen._console.print(screen.panel())
    assert not set("▁█━") & set(screen._console.file.getvalue())


def test_a_curve_is_as_wide_as_its_values_or_the_room():
    assert curve([0.0, 1.0], 10) == "▁█"
    assert curve([0.0] * 50 + [1.0] * 50, 10) == "▁▁▁▁▁█████"
    assert curve([-1.0, 3.0], 10) == "▁█"


def test_what_a_model_or_a_folder_is_called_cannot_control_the_terminal():
    text = drawn(shown([*training(), {"dump": "/dumps\x1b[2J", "title": "nano\x1b]0;x\x07"}]), 100)
    assert "\x1b" not in text


def test_a_pipe_gets_one_line_per_step_and_no_control_sequence(capsys):
    shown(training())
    said = capsys.readouterr()
    assert said.err == ""
    assert "\x1b" not in said.out
    lines = said.out.splitlines()
    steps = [line for line in lines if line.startswith("step ")]
    assert [line.split()[1] for line in steps] == [f"{step}/60" for step in range(1, 13)]
    assert steps[-1] == (
        "step 12/60 | reward 1.00 solved 1.00 format 1.00 | 2.0 s | groups: 2 all correct, 0 mixed, 0 all wrong | "
        "mean score 1.000 | tasks: chain_sum 2"
    )
    assert lines[0] == f"log: {LOG}"
    assert "evaluation after step 0: reward 0.25 solved 0.25 format 0.75" in lines
    assert any(line.startswith("warning: the disk is slow") for line in lines)


def test_a_verbose_run_prints_its_log_itself(capsys):
    screen = Screen("train", verbose=True)
    screen.take({"line": "not shown", "note": "warning: in the log already"})
    screen.close()
    assert capsys.readouterr().out == ""


class Terminal(io.StringIO):
    """A terminal of a given width that wraps its lines anew when it becomes narrower."""

    def __init__(self):
        super().__init__()
        self.isatty = lambda: True


@pytest.mark.parametrize("narrower", [80, 60])
def test_a_terminal_that_becomes_narrower_keeps_no_broken_lines(monkeypatch, narrower):
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    screen = shown(training())
    screen._console = Console(file=terminal, width=160, force_terminal=True)
    screen._draw()
    drawn_lines = screen._drawn[0]
    rows = drawn_lines * -(-160 // narrower)
    screen._console.width = narrower
    terminal.truncate(0)
    screen._draw()
    assert f"\x1b[{rows}A" in terminal.getvalue()


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
    shown(training(steps=2)).close()


def test_a_step_without_any_response_has_no_curve_and_no_mean(capsys):
    empty = {**MIXED["counts"], "rollouts": 0}
    screen = shown([{"step": 1, "counts": empty}])
    assert "reward" not in capsys.readouterr().out
    assert "1/60" in drawn(screen, 80)
