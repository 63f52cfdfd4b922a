"""Shows a run while it is in progress: a panel on a terminal, one line per step elsewhere.

Invariant: what is shown never stops the run: once the terminal or the pipe is gone, nothing more is shown. Without a
terminal, no control sequence is written.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from rg_env.base.errors import MissingGroupsError, RGEnvError, describe, one_line
from rg_env.base.output import cell, console, print_error
from rg_env.base.wording import rate

if TYPE_CHECKING:
    from rich.console import RenderableType

AT_THE_END = (0, MissingGroupsError.exit_code)
"""Exit codes of a run that trained to its end."""
_REDRAW = 0.5
"""Seconds between two drawings of the panel if nothing was reported."""
_CURVES = ("reward", "solved", "format")
_COUNTS = ("groups", "scorer")
_FAILURES = {"timeout", "crashed", "error", "no_response", "reward_error"}


class Screen:
    """What is shown of a run.

    Args:
        command: its name.
        verbose: the run prints its whole log itself; show nothing but its end.

    Attributes:
        facts: what was last reported: `title`, `doing` and its `progress`, `step`, `total`, `trainer` (its numbers),
            `canaries` (a line, empty once they failed), `symptoms` (kind and text of each
            `rg_env.rollouts.symptoms.Symptom`), `log`, `rollouts` (their log), `dump`, `run_id`, `resumed` and
            `checkpoint` (steps), `under_way` (the settings work), `finished` (what to say if nothing is left to train),
            `error` (the first one, which causes others). Reports also have a `line` for a pipe, a `note` for any
            screen, an `evaluation`, and the values of curves and the counts of each step.
    """

    def __init__(self, command: str, *, verbose: bool = False) -> None:
        self.command = command
        self.facts: dict[str, Any] = {"doing": "importing", "progress": "the first time takes longer"}
        self.began = self._began_doing = time.monotonic()
        self._evaluations: list[str] = []
        self._history: dict[str, list[float]] = defaultdict(list)
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._stream, self._console = sys.stdout, console()
        columns = BarColumn(None), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"), TimeRemainingColumn()
        self._progress = Progress(*columns, console=self._console, speed_estimate_period=1e9, expand=True)
        self._bar = self._progress.add_task("", total=None, pace="")
        self.verbose = verbose
        self._draws = self._stream.isatty() and not verbose
        self._drawn = (0, 1)
        """Lines and width of the panel on the terminal."""
        self._due = 0.0
        self._has_ended = False

    def take(self, report: Mapping[str, Any]) -> None:
        """Take a report into account, and show it."""
        if "doing" in report:
            self.facts["progress"], self._began_doing = "", time.monotonic()
        # The first error stays, because the later ones follow from it.
        error = self.facts.get("error") or report.get("error")
        self.facts |= report
        if error:
            self.facts["error"] = error
        self._due = 0.0
        if "evaluation" in report:
            # The first evaluation and the last one.
            self._evaluations = [*self._evaluations[:1], report["evaluation"]]
        for name in _CURVES:
            if name in report:
                self._history[name].append(report[name])
        for name in _COUNTS:
            self._counts[name].update(report.get(name, {}))
        if "step" in report:
            self._progress.update(self._bar, completed=report["step"], total=report["total"])
            speed, pace = self._progress.tasks[0].speed, ""
            if speed:
                pace = f"{1 / speed:.2g} s each"
            self._progress.update(self._bar, pace=pace)
        text = report.get("note")
        # A terminal has the panel, so a `line` is for pipes only.
        if not text and not self._draws:
            text = report.get("line")
        if text and not self.verbose:
            self.line(text)

    def tick(self) -> None:
        """Called several times per second."""
        if self._draws and time.monotonic() >= self._due:
            self._due = time.monotonic() + _REDRAW
            self._try(self._draw)

    def line(self, shown: RenderableType) -> None:
        """Show a line, or a table, above the panel."""
        if isinstance(shown, str):
            shown = Text(shown)

        def show() -> None:
            self._erase()
            self._console.print(shown, soft_wrap=True)

        self._try(show)

    def end(self, code: int, args: Sequence[str]) -> None:
        """Show the run for the last time, and what there is to say at its end. `code`, `args`: of the command."""
        self._has_ended = True
        # Without a log nothing was started, so there is no panel worth keeping.
        if self._draws and "log" in self.facts:
            self._try(self._draw)
        else:
            self._try(self._erase)
        self._draws, self._drawn = False, (0, 1)
        if code in (1, 2):
            for mistake in self.facts["error"].splitlines():
                print_error(mistake)
        if code != 2:
            for line in ending(self.facts, code, args, self.began):
                self.line(line)

    def panel(self) -> Panel:
        """Return the run at this moment."""
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(ratio=1, overflow="fold")
        for row in self._rows():
            grid.add_row(*row)
        title = " · ".join(filter(None, [f"rg-env {self.command}", self.facts.get("title")]))
        return Panel(grid, title=cell(title), title_align="left", subtitle=since(self.began), subtitle_align="right")

    def _rows(self) -> Iterator[tuple[str, RenderableType]]:
        facts = self.facts
        if "resumed" in facts:
            yield "resumed", f"from step {facts['resumed']}"
        if "step" in facts:
            yield "step", self._progress
        for name, values in self._history.items():
            if values:
                width = max(1, self._console.width - 30)
                if name == "reward":
                    shown = f"{values[-1]:.3f}"
                else:
                    shown = rate(values[-1])
                yield name, f"{shown:5}  {curve(values, width, ascii_only=self._console.options.ascii_only)}"
        if facts.get("trainer"):
            yield "trainer", cell(facts["trainer"])
        for text in self._evaluations:
            yield "eval", cell(text)
        for name, counts in self._counts.items():
            if counts:
                text = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
                yield name, cell(text, "yellow" if counts.keys() & _FAILURES else "")
        if facts.get("canaries"):
            yield "canaries", cell(facts["canaries"])
        for kind, text in facts.get("symptoms", ()):
            yield kind, cell(text, "yellow")
        for name in ("dump", "log"):
            if name in facts:
                yield name, cell(short_path(facts[name]))
        if not self._has_ended:
            yield (
                "now",
                cell(", ".join(filter(None, [facts["doing"], facts.get("progress"), since(self._began_doing)]))),
            )

    def _draw(self) -> None:
        """Draw the panel in place of the one that is there; cut to the height of the terminal."""
        with self._console.capture() as captured:
            self._console.print(self.panel())
        # A panel taller than the terminal could not be erased: its first lines would have scrolled away.
        lines = captured.get().splitlines(keepends=True)[: max(1, self._console.height - 1)]
        self._erase()
        self._stream.write("".join(lines))
        self._drawn = (len(lines), self._console.width)

    def _erase(self) -> None:
        """Remove the panel. A terminal that has become narrower shows each of its lines in several rows."""
        lines, width = self._drawn
        if lines:
            rows = lines * -(-width // max(1, self._console.width))
            self._stream.write(f"\x1b[{rows}A\r\x1b[J")
        self._drawn = (0, 1)

    def _try(self, show: Callable[[], None]) -> None:
        """Show something. Once the terminal or the reader of the pipe is gone, output is discarded from then on."""
        try:
            show()
            self._stream.flush()
        except OSError:
            with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


def ending(facts: Mapping[str, Any], code: int, args: Sequence[str], began: float) -> Iterator[RenderableType]:
    """Yield what to print after a run, line by line: see `Screen.facts` and `Screen.end`."""
    if "finished" in facts:
        yield facts["finished"]
    elif code in AT_THE_END:
        yield f"trained to step {facts.get('step', 0)} in {since(began)}"
    for kind, text in facts.get("symptoms", ()):
        yield f"{kind}: {text}"
    if "step" in facts and "dump" in facts:
        yield from _about_dump(facts, with_table=code in AT_THE_END)
    for name, words in (("log", "log"), ("rollouts", "rollout log")):
        if name in facts:
            yield f"{words}: {short_path(facts[name])}"
    if code == 1 and "log" not in facts:
        yield "for the traceback, run it again with --verbose"
    if code == MissingGroupsError.exit_code:
        yield f"rg-env: {facts.get('error', 'groups are missing from the dump')}"
    elif code:
        why = "failed"
        if code > 128:
            why = f"stopped by {signal.Signals(code - 128).name}"
        if "step" in facts:
            at = f"after step {facts['step']} of {facts['total']}"
        else:
            at = f"while {facts['doing']}"
        yield f"{why} {at}; {_how_to_continue(facts, args)}"


def _about_dump(facts: Mapping[str, Any], *, with_table: bool) -> Iterator[RenderableType]:
    """Yield what was learned, and where the dump is. What fails here is a warning: the run has ended as it has."""
    # Imported here: it loads the reader of dumps, which nothing needs before the end.
    from rg_env.rollouts.faults import explain_zeros

    folder = shlex.quote(short_path(facts["dump"]))
    table, why_no_texts, why_zeros = None, None, ""
    try:
        table, why_no_texts = _learned(facts, with_table=with_table)
        why_zeros = explain_zeros(facts["dump"], facts["run_id"])
    except (RGEnvError, OSError):  # nothing can be counted
        pass
    except Exception as error:
        yield f"warning: no table of what was learned: {one_line(describe(error))}"
    if table is not None:
        yield from ("", table, "")
    if why_zeros:
        yield why_zeros
    yield f"dump: {folder}"
    if why_no_texts:
        yield f"  {why_no_texts}"
    yield f"  rg-env dumps stats {folder} --by step"
    yield f"  rg-env dumps show {folder}"


def _learned(facts: Mapping[str, Any], *, with_table: bool) -> tuple[Table | None, str | None]:
    """Return a table of the first and the last evaluation, or of all steps together, and why the dump has no texts."""
    import polars as pl

    from rg_env.analysis import statistics
    from rg_env.analysis.tables import render_table
    from rg_env.dump.entry import open_run_of

    phase, by = ("eval", "step") if "evaluation" in facts else ("train", "phase")
    dump = open_run_of(facts["dump"], facts["run_id"])
    if not with_table:
        return None, dump.why_no_texts()
    rows = statistics(dump.where([f"phase = '{phase}'"]), by)
    is_shown = (pl.col("step") == pl.col("step").min()) | (pl.col("step") == pl.col("step").max())
    return render_table(rows.filter(is_shown) if by == "step" else rows), dump.why_no_texts()


def _how_to_continue(facts: Mapping[str, Any], args: Sequence[str]) -> str:
    step = facts.get("checkpoint", facts.get("resumed"))
    if step is None:
        return "no checkpoint to continue from (trainer.ckpt_interval)" if "step" in facts else "no step was finished"
    resume = list(args)
    # Without a checkpoint of its own, a run that began from another's begins there again.
    if "checkpoint" in facts:
        resume = [*(arg for arg in args if not arg.startswith("trainer.resume_mode=")), "trainer.resume_mode=latest"]
    return f"to continue from step {step}: {shlex.join(['rg-env', 'train', *resume])}"


def curve(values: Sequence[float], width: int, *, ascii_only: bool = False) -> str:
    """Return a small curve, from 0 or the least value to 1 or the largest; if there is no room, of means of equal
    parts.

    >>> curve([0, 0.5, 1], 10)
    '▁▅█'
    """
    parts = min(width, len(values))
    bounds = [place * len(values) // parts for place in range(parts + 1)]
    means = [fmean(values[start:end]) for start, end in pairwise(bounds)]
    low, high = min(0.0, *means), max(1.0, *means)
    blocks = "_.-=+*#@" if ascii_only else "▁▂▃▄▅▆▇█"
    text = ""
    for mean in means:
        height = (mean - low) / (high - low)  # in [0, 1]
        text += blocks[round(height * (len(blocks) - 1))]
    return text


def since(moment: float) -> str:
    """Return the time since a moment of `time.monotonic`, as `0:01:05`."""
    return str(timedelta(seconds=round(time.monotonic() - moment)))


def short_path(path: str) -> str:
    """Return a path relative to the current folder if it is below it."""
    if Path(path).is_relative_to(Path.cwd()):
        return str(Path(path).relative_to(Path.cwd()))
    return path
