"""Everything that rg_env prints, on standard output and standard error.

Invariant: nothing printed here can control a terminal or pose as another line: control and format characters in what
models wrote and in names from dumps are replaced by visible ones (`wording.visible`), in JSON by escapes. Rich's own
colors are kept.
Everything goes through this module: ruff rejects `print` and Rich's `Console` in all others.
Not covered: what SkyRL and Ray log during training.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loguru import logger
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import StyleType
from rich.text import Text

from rg_env.base.wording import visible

if TYPE_CHECKING:
    from loguru import Record
    from rich.table import Table

_PIPE_WIDTH = 160
"""Width of tables in characters where standard output is not a terminal."""


def print_line(text: object) -> None:
    """Print one line, whatever the text contains."""
    print(visible(str(text), one_line=True))


def print_text(text: str, *, stderr: bool = False) -> None:
    """Print text that may have several lines."""
    print(visible(text), file=sys.stderr if stderr else sys.stdout)


def print_fields(fields: Mapping[str, object]) -> None:
    """Print `name: value` for each field, further lines of a value indented."""
    # Indented, so that a value cannot pose as another field.
    for name, value in fields.items():
        print_text(f"{name}: {value}".replace("\n", "\n  "))


def print_error(text: object) -> None:
    """Print an error or a remark as one line on standard error."""
    print(f"rg-env: {visible(str(text), one_line=True)}", file=sys.stderr)


def print_json(value: object) -> None:
    """Print JSON in ASCII, so that every other character is escaped; null for numbers that are not finite."""
    # JSON has no NaN: what Python would write for it breaks other readers.
    text = json.dumps(_finite(value), indent=2, default=str, allow_nan=False)
    print(text.replace("\x7f", r"\u007f"))  # DEL is ASCII, so json leaves it as it is


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def cell(text: object, style: StyleType = "") -> Text:
    """Return a text in a table, on one line."""
    return Text(visible(str(text), one_line=True), style)


def new_table(text: Iterable[str], numbers: Iterable[str] = (), *, compact: bool = False, **options: Any) -> Table:
    """Return an empty table.

    Args:
        text: headers of the columns of text, which wrap.
        numbers: headers of the columns of numbers, to the right of them.
        compact: save width, so that the table fits 80 columns.
        options: of Rich's `Table`.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    layout: dict[str, Any] = {}
    if compact:
        layout = {"padding": (0, 1, 0, 0), "pad_edge": False}
    table = Table(box=SIMPLE_HEAD, show_edge=False, **layout, **options)
    for header in text:
        table.add_column(header, overflow="fold", min_width=10 if compact else None)
    for header in numbers:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def width_of(table: Table) -> int:
    """Return the width of a table in characters, if it has all that it needs."""
    screen = console()
    return screen.measure(table, options=screen.options.update(max_width=1000)).maximum


def console(*, stderr: bool = False) -> Console:
    """Rich's console for tables and progress bars, wide enough for a table if it is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    is_terminal = stream is not None and stream.isatty()  # None if it was closed before the start
    return _Console(width=None if is_terminal else _PIPE_WIDTH, stderr=stderr, markup=False, emoji=False)


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        # Control segments are Rich's own, such as those that move the cursor.
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """As `print`; Rich would end the process."""
        raise BrokenPipeError


def guard_streams() -> None:
    """Make our log lines safe to print as well, and print characters that the streams cannot encode as escapes. What
    was closed before the start takes everything and shows nothing."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115  (for the rest of the process)
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    logger.configure(patcher=_make_visible)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _make_visible(record: Record) -> None:
    # Ours only: a patcher is for all of the process's log, and SkyRL's lines are not ours to change.
    if (record["name"] or "").partition(".")[0] == "rg_env":
        record["message"] = visible(record["message"])
