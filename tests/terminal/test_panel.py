"""What a terminal and a pipe show of a scripted run."""

import io

import pytest
from rich.console import Console

from rg_env.terminal.display import Lines, LivePanel, display
from rg_env.terminal.panel import Curve, panel
from rg_env.terminal.state import RunState
from rg_env.terminal.words import duration
from tests.terminal.reported import DUMP, LOG, MIXED, STARTED, state_after, timed, training


def drawn(state, width, **options):
    console = Console(file=io.StringIO(), width=width, **options)
    console.print(panel(state, STARTED + 60))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_panel_has_what_a_user_looks_for(width):
    text = drawn(state_after(training()), width)
    assert {len(line) for line in text.splitlines()} == {width}
    for words in ("12 of 60", "2 s per step", "1 min 36 s left", DUMP, LOG, "nano on cpu", "training"):
        assert words in text, words
    rows = {line.split()[1]: line for line in text.splitlines()[1:-1] if len(line.split()) > 1}
    assert "1.000  ▁▁▁▁▁▁██████" in rows["solved"].replace("▃", "▁")
    assert "1.000" in rows["format"]
    assert "18 success, 6 FAILED" in rows["groups"]
    assert "48 ok" in rows["scorer"]
    assert "after step 0" in rows["eval"]
    assert "solved 0.25" in rows["eval"]


def test_a_run_that_has_only_started_says_what_it_does_and_for_how_long():
    text = drawn(RunState("train", STARTED), 80)
    assert "reading the settings, 1 min" in text
    assert "step" not in text


def test_scorer_failures_and_a_resumed_run_are_on_the_panel():
    state = state_after([{"kind": "resumed", "step": 40}, *training(steps=1)])
    state.statuses["timeout"] = 2
    text = drawn(state, 80)
    assert "from step 40" in text
    assert "2 timeout" in text


def test_a_terminal_without_unicode_gets_no_blocks():
    class Ascii(io.StringIO):
        encoding = "ascii"

    console = Console(file=Ascii(), width=100)
    console.print(panel(state_after(training()), STARTED + 60))
    assert not set("▁█━") & set(console.file.getvalue())


def test_a_curve_is_as_wide_as_its_values_or_the_room():
    assert Curve([0.0, None, 1.0]).draw(10) == "▁ █"
    assert Curve([0.0] * 50 + [1.0] * 50).draw(10) == "▁▁▁▁▁█████"
    assert Curve([]).draw(10) == ""
    assert Curve([-1.0, 3.0]).draw(10) == "▁█"


def test_what_a_model_or_a_folder_is_called_cannot_control_the_terminal():
    state = state_after(training())
    state.dump, state.model = "/dumps\x1b[2J", "nano\x1b]0;x\x07"
    assert "\x1b" not in drawn(state, 100)


def test_a_pipe_gets_one_line_per_step_and_no_control_sequence(capsys):
    state = RunState("train", STARTED)
    screen = display(state, stderr=False, verbose=False)
    assert type(screen) is Lines
    for report in timed(training()):
        state.add(report)
        screen.take(report)
        screen.tick()
    screen.close()
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "\x1b" not in shown.out
    lines = shown.out.splitlines()
    steps = [line for line in lines if line.startswith("step ")]
    assert [line.split()[1] for line in steps] == [f"{step}/60" for step in range(1, 13)]
    assert steps[-1] == (
        "step 12/60 | 2.0 s | reward 1.00 solved 1.00 format 1.00 | groups: 2 all correct, 0 mixed, 0 all wrong | "
        "mean score 1.000 | tasks: chain_sum 2"
    )
    assert lines[0] == f"log: {LOG}"
    assert f"run 20261122-043147-a165b5b4, dump: {DUMP}" in lines
    assert "evaluation after step 0: reward 0.25 solved 0.25 format 0.75" in lines
    assert any(line.startswith("warning: the disk is slow") for line in lines)


def test_the_whole_log_is_shown_on_request(capsys, tmp_path):
    log = tmp_path / "train.log"
    log.write_text("Started a local Ray instance\x1b[2J\nhalf a li")
    state = RunState("train", STARTED)
    screen = display(state, stderr=True, verbose=True)
    screen.take({"kind": "log", "path": str(log)})
    screen.tick()
    with log.open("a") as file:
        file.write("ne\n")
    screen.close()
    shown = capsys.readouterr().err.splitlines()
    assert shown[1].startswith("Started a local Ray instance")
    assert shown[2] == "half a line"
    assert "\x1b" not in "".join(shown)


class Gone(io.StringIO):
    def write(self, text):
        raise OSError(5, "Input/output error")

    def isatty(self):
        return True


@pytest.mark.parametrize("kind", [Lines, LivePanel])
def test_a_terminal_that_is_gone_does_not_stop_the_run(monkeypatch, kind):
    monkeypatch.setattr("sys.stdout", Gone())
    monkeypatch.setenv("TERM", "xterm")
    state = RunState("train", STARTED)
    screen = kind(state, stderr=False)
    for report in timed(training(steps=2)):
        state.add(report)
        screen.take(report)
        screen.tick()
    screen.close()


def test_an_evaluation_shows_questions():
    state = state_after([{"kind": "step", "step": n, "total": 120, **MIXED} for n in (40, 80)], "eval")
    text = drawn(state, 80)
    assert "80 of 120" in text
    assert "20 questions/s" in text
    assert "2 s left" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (42, "42 s"), (65, "1 min 5 s"), (3600, "1 h"), (7380, "2 h 3 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text
