"""The list of groups, one line each.

Invariant: only visible lines are rendered. The cursor stays on the selected group when rows are added or removed.
"""

from __future__ import annotations

from typing import Any, ClassVar

import polars as pl
from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from rg_env.browser.index import FOUND_BY, SCHEMA
from rg_env.dump.schema import Outcome
from rg_env.dump.strings import unescape
from rg_env.sanitize import visible
from rg_env.scoring.types import Status

_COLUMNS = (("step", 6), ("phase", 5), ("task", 24), ("outcome", 11), ("best", 5), ("mean", 5), ("worst", 5))
HEADING = " " + " ".join(set_cell_size(name, width) for name, width in _COLUMNS) + " violations"
_COLORS = {Outcome.ALL_CORRECT: "green", Outcome.ALL_FAILED: "red", Outcome.MIXED: "yellow"}
_ORDER = ("run_id", "step", "phase", "file", "line")
_NEEDED = list(dict.fromkeys([*FOUND_BY, *_ORDER, *(name for name, _ in _COLUMNS), "violation", "status"]))


class GroupList(ScrollView, can_focus=True):
    """A list with a cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Previous group", show=False),
        Binding("down,j", "move(1)", "Next group", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home,g", "go(0)", "First group", show=False),
        Binding("end,G", "go(-1)", "Last group", show=False),
    ]

    class Chosen(Message):
        """Another group is selected; `row` is None if there is none."""

        def __init__(self, row: dict[str, Any] | None) -> None:
            super().__init__()
            self.row = row

    def __init__(self) -> None:
        super().__init__()
        self.rows = pl.DataFrame(schema=SCHEMA).select(_NEEDED)
        self.cursor = 0
        self._wanted: str | None = None  # the group that was last selected

    @property
    def row(self) -> dict[str, Any] | None:
        """The selected row."""
        return self.rows.row(self.cursor, named=True) if self.cursor < self.rows.height else None

    def show(self, rows: pl.DataFrame) -> None:
        """Show other rows, ordered by step."""
        before = self.row
        self.rows = rows.select(_NEEDED).sort(_ORDER, nulls_last=True)
        self.virtual_size = Size(self.size.width, self.rows.height)
        kept = self.rows.select(pl.arg_where(pl.col("group_id").is_in([self._wanted or ""]))).to_series()
        self.cursor = kept[0] if kept.len() else min(self.cursor, max(0, self.rows.height - 1))
        self._scroll_to_cursor()
        self.refresh()
        if (after := self.row) != before:
            self.post_message(self.Chosen(after))

    def go_to_next(self, condition: pl.Expr, direction: int) -> bool:
        """Select the next matching row, wrapping around; False if there is none."""
        places = self.rows.select(pl.arg_where(condition)).to_series().to_list()
        ahead = [p for p in places if (p > self.cursor if direction > 0 else p < self.cursor)]
        found = ahead or [p for p in places if p != self.cursor]
        if found:
            self.action_go(found[0] if direction > 0 else found[-1])
        return bool(found)

    def action_move(self, by: int) -> None:
        self.action_go(max(0, self.cursor + by))

    def action_page(self, direction: int) -> None:
        self.action_move(direction * max(1, self.size.height - 1))

    def action_go(self, place: int) -> None:
        count = self.rows.height
        if count:
            self.cursor = min(place, count - 1) if place >= 0 else count - 1
            self._wanted = self.rows["group_id"][self.cursor]
            self._scroll_to_cursor()
            self.refresh()
            self.post_message(self.Chosen(self.row))

    def on_click(self, event: Any) -> None:
        self.action_go(min(self.scroll_offset.y + event.y, max(0, self.rows.height - 1)))

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, self.rows.height)
        self._scroll_to_cursor()

    def render_line(self, y: int) -> Strip:
        place = self.scroll_offset.y + y
        if place >= self.rows.height:
            return Strip.blank(self.size.width, self.rich_style)
        row = self.rows.row(place, named=True)
        base = self.rich_style
        if place == self.cursor:
            base += Style(reverse=self.has_focus, bold=True, underline=not self.has_focus)
        cells = [Segment("▌" if place == self.cursor else " ", base)]
        for name, width in _COLUMNS:
            style = base + Style(color=_COLORS[Outcome(row["outcome"])]) if name == "outcome" else base
            cells += [Segment(set_cell_size(_cell(row[name]), width), style), Segment(" ", base)]
        troubles = [*sorted({*row["violation"]} - {None}), *sorted({*row["status"]} - {Status.OK, None})]
        cells.append(Segment(" ".join(troubles), base + Style(color="red")))
        return Strip(cells).crop_extend(0, self.size.width, base)

    def _scroll_to_cursor(self) -> None:
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else visible(unescape(str(value)), one_line=True)
