"""Shows a run while it is in progress: a panel on a terminal, one line per step elsewhere, or the whole log.

Invariant: what is shown never stops the run: once the terminal or the pipe is gone, nothing more is shown. Without a
terminal, no control sequence is written.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rich.live import Live

from rg_env.output import cell, console, print_text
from rg_env.terminal.panel import panel
from rg_env.terminal.reports import Report, Tail
from rg_env.terminal.state import RunState
from rg_env.terminal.words import evaluation_line, remark, step_line

_REDRAW = 0.5
"""Seconds between two drawings of the panel if nothing was reported."""


class Lines:
    """One line per step, evaluation and warning.

    Args:
        state: of the run; it already includes the reports that are shown.
        stderr: show it on standard error instead of standard output.
    """

    def __init__(self, state: RunState, *, stderr: bool) -> None:
        self.state = state
        self.stream = sys.stderr if stderr else sys.stdout
        self._stderr = stderr
        self._gone = False

    def take(self, report: Report) -> None:
        """Show a report."""
        match report["kind"]:
            case "step":
                self.line(step_line(self.state, self.state.steps[-1]))
            case "evaluation":
                self.line(evaluation_line(self.state.evaluations[-1]))
            case "phase" if self.state.steps or self.state.evaluations:
                pass
            case "note" | "phase" | "log" | "run" | "resumed":
                self.line(remark(report))

    def tick(self) -> None:
        """Called several times per second."""

    def line(self, text: str) -> None:
        """Show a line."""
        self._try(lambda: self._print(text))

    def close(self, *, clear: bool = False) -> None:
        """End. With `clear`, what can be removed from the terminal is removed."""

    def _print(self, text: str) -> None:
        print_text(text, stderr=self._stderr)

    def _try(self, show: Callable[[], None]) -> None:
        """Show something, unless the terminal or the reader of the pipe is gone."""
        if not self._gone:
            try:
                show()
                self.stream.flush()
            except OSError:
                self._gone = True
                with suppress(OSError):  # or Python fails to flush it when this process ends
                    os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())


class WholeLog(Lines):
    """What the log has, while it is written."""

    _log: Tail | None = None

    def take(self, report: Report) -> None:
        if report["kind"] == "log":
            self.line(remark(report))
            self._log = Tail(Path(report["path"]))

    def tick(self) -> None:
        for line in self._log.lines() if self._log else ():
            self.line(line.decode(errors="replace"))

    def close(self, *, clear: bool = False) -> None:
        self.tick()


class LivePanel(Lines):
    """A panel that is redrawn, with warnings above it."""

    def __init__(self, state: RunState, *, stderr: bool) -> None:
        super().__init__(state, stderr=stderr)
        self._console = console(stderr=stderr)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._due = 0.0

    def take(self, report: Report) -> None:
        self._due = 0.0
        if report["kind"] == "note":
            self.line(remark(report))

    def tick(self) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _REDRAW
            self._try(self._draw)

    def close(self, *, clear: bool = False) -> None:
        self._live.transient = clear
        self._try(self._draw)
        self._try(self._live.stop)

    def _draw(self) -> None:
        self._live.update(panel(self.state, time.time()))
        self._live.start()
        self._live.refresh()

    def _print(self, text: str) -> None:
        self._console.print(cell(text), soft_wrap=True)


def display(state: RunState, *, stderr: bool, verbose: bool) -> Lines:
    """What suits the stream."""
    if verbose:
        return WholeLog(state, stderr=stderr)
    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return (LivePanel if is_terminal else Lines)(state, stderr=stderr)
