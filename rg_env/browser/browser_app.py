"""The terminal application.

Invariant: the user interface waits for the disk only to read the group that is shown: files are found, read and
searched in a thread; rows, filter and cursor change only in the UI thread. Recorded text reaches the screen made of
visible characters and as `Content` or `Text`, never as markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import polars as pl
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import DataTable, Footer, Input, Static
from textual.worker import get_current_worker

from rg_env.analysis.reparse import reparse
from rg_env.base.choices import SortBy
from rg_env.base.errors import RGEnvError
from rg_env.base.output import cell
from rg_env.base.wording import counted, visible
from rg_env.dump import Dump, GroupRecord, Outcome, RolloutRecord
from rg_env.dump.group_text import Query, group_facts, prompt, ranked, rollout_facts
from rg_env.dump.schema import as_violation
from rg_env.scoring.parse import tag_spans

PAGE = 500
"""Rows in the list at a time: Textual takes a second for about 5,000."""
LONGEST = 50_000
"""Maximum number of characters of a text that are shown."""
_COLUMNS = {"step": 9, "phase": 5, "task": 24, "outcome": 11, "best": 5, "mean": 5, "worst": 5, "troubles": 30}
"""The columns of the list, and their largest widths."""
_LEGEND = """
best, mean, worst: scores of the rollouts, before the length penalty
troubles: violations of the format, and statuses other than ok
all_correct: every rollout is solved
all_failed: no score is above 0"""
"""What the columns mean, below the keys."""
_COLORS = {Outcome.ALL_CORRECT.value: "green", Outcome.ALL_FAILED.value: "red", Outcome.MIXED.value: "yellow"}
_STYLES = ("", "italic cyan", "bold green", "dim")
"""Of a response: other text, the think block, the answer, tags."""
_SOUGHT = {
    "failed rollouts only": pl.col("outcome") == Outcome.ALL_FAILED.value,
    "a violation": pl.col("troubles") != "",
}


class Browser(App[RGEnvError]):
    """A list of groups; the best and the worst response of the selected group side by side.

    Returns the error that ended it, if it was not a key. `open_dump` is called again on reload.
    """

    TITLE = "rg-env dumps show"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "toggle_class('#help', 'open')", "Keys"),
        Binding("q", "quit", "Quit"),
        Binding("slash", "filter", "Filter"),
        Binding("escape", "clear", "Clear filter", show=False),
        Binding("j", "move(1)", "Next group", show=False),
        Binding("k", "move(-1)", "Previous group", show=False),
        Binding("right_square_bracket", f"move({PAGE})", "Next page", show=False),
        Binding("left_square_bracket", f"move(-{PAGE})", "Previous page", show=False),
        Binding("f", "jump('failed rollouts only')", "Next failure"),
        Binding("v", "jump('a violation')", "Next violation"),
        Binding("comma", "turn(-1)", "Right pane: better rollout", show=False),
        Binding("full_stop", "turn(1)", "Right pane: worse rollout", show=False),
        Binding("p", "toggle_class('#prompt', 'closed')", "Show or hide the prompt", show=False),
        Binding("z,enter", "toggle_class('DataTable', 'closed')", "Show or hide the list", show=False),
        Binding("y", "copy", "Copy id"),
        Binding("r", "reload", "Reload", show=False),
    ]

    def __init__(self, open_dump: Callable[[], Dump], query: Query | None = None, sort: SortBy | None = None) -> None:
        super().__init__()
        self._open = open_dump
        self._dump = open_dump()
        self._damaged = 0
        self._sort = sort
        self._total = 0
        self._first = 0  # the row at the top of the list's page
        self._group: GroupRecord | None = None
        self._right = 0  # rank of the rollout in the right pane
        self.rows = pl.DataFrame()
        self.shown_query = query or Query()
        self.busy = False

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="facts")
        with VerticalScroll(id="prompt"):
            yield Static()
        with Horizontal():
            for name in ("left", "right"):
                with VerticalScroll(id=name, classes="pane"):
                    yield Static()
        placeholder = "task = 'gcd' AND step > 10 /some words"
        yield Input(id="line", compact=True, select_on_focus=False, placeholder=placeholder)
        # The page of keys is made of the bindings, so that it lacks none.
        keys: dict[str, list[str]] = {}
        for binding in Binding.make_bindings(self.BINDINGS):
            keys.setdefault(binding.description, []).append(self.get_key_display(binding))
        keys |= {"Move in the list or a pane": ["↑", "↓", "PgUp", "PgDn"], "Next pane": ["Tab"]}
        with VerticalScroll(id="help"):
            lines = [f"{' '.join(names):>13}  {name}" for name, names in keys.items()]
            yield Static("\n".join([*lines, _LEGEND]), markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self._find()

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one(DataTable)

    @property
    def place(self) -> int:
        """The number of the selected row among `rows`."""
        return self._first + self._table.cursor_row

    # -- reading, filtering and searching

    def _find(self, *, reload: bool = False) -> None:
        self.busy = True
        self._table.focus()
        self._refresh_head()
        self._find_in_thread(self.shown_query, reload=reload)

    @work(thread=True, exclusive=True)
    def _find_in_thread(self, query: Query, *, reload: bool) -> None:
        """Find the rows that match; with `reload`, in the dump as it is now."""
        # A thread cannot be ended from outside: it looks itself whether a newer search has replaced it.
        worker = get_current_worker()
        try:
            # An open dump does not change: what was written since is seen by a new one only.
            dump = self._open() if reload else self._dump
            damaged = dump.findings().counts["damaged_line"]
            every = query.rows(dump, self._sort)
            rows = every.filter("matches")
            if query.text:
                matches = []
                for name in rows.select("run_id", "group_id").iter_rows():
                    if worker.is_cancelled:
                        return
                    group = dump.text(*name)
                    matches.append(group is not None and query.matches_text(group))
                rows = rows.filter(pl.Series(matches, dtype=pl.Boolean))
        except RGEnvError as error:
            self.call_from_thread(self.exit, error)
            return
        # A newer search shows its own rows, and these must not come after them.
        if not worker.is_cancelled:
            self.call_from_thread(self._show, dump, damaged, every.height, rows)

    def _show(self, dump: Dump, damaged: int, total: int, rows: pl.DataFrame) -> None:
        """Show other rows; the cursor stays on its group if it is among them."""
        place = None
        if self.place < self.rows.height:
            selected = self.rows["group_id"][self.place]
            place = rows["group_id"].index_of(selected)
        self._dump, self._damaged, self._total, self.rows, self.busy = dump, damaged, total, rows, False
        # No page begins there, so that `_go` loads the page anew.
        self._first = -1
        self._go(place or 0)

    # -- the screen

    def _go(self, place: int) -> None:
        """Select a row, and load its page into the list."""
        place = min(max(0, place), max(0, self.rows.height - 1))
        first = place // PAGE * PAGE
        if first != self._first:
            self._first = first
            page = [list(_cells(row)) for row in self.rows[first : first + PAGE].iter_rows(named=True)]
            # With the columns, whose widths are those of this page.
            self._table.clear(columns=True)
            for number, (name, limit) in enumerate(_COLUMNS.items()):
                widest = max([len(name), *(cells[number].cell_len for cells in page)])
                self._table.add_column(name, width=min(limit, widest))
            self._table.add_rows(page)
        self._table.move_cursor(row=place - first, animate=False)
        if not self.rows.height:
            self._select(None)
        self._refresh_head()

    def _refresh_head(self) -> None:
        count, last = self.rows.height, min(self.rows.height, self._first + PAGE)
        parts = [f"{count:,} of {self._total:,} groups", str(self.shown_query) or "no filter"]
        if count > PAGE:
            parts.append(f"list: {self._first + 1:,} to {last:,}, keys [ and ]")
        if self._damaged:
            parts.append(counted(self._damaged, "damaged line"))
        if self.busy:
            parts.append("reading")
        self.query_one("#head", Static).update(Content(visible(" · ".join(parts), one_line=True)))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        if self.place < self.rows.height:
            self._select(self.rows.row(self.place, named=True))

    def _select(self, row: dict[str, Any] | None) -> None:
        self._group = None
        facts = "no group matches"
        if not self._total:
            facts = "no text of any group was kept"
        if row is not None:
            self._group = self._dump.text(row["run_id"], row["group_id"])
            facts = "the text of this group is damaged or has changed (key r)"
        messages = []
        if self._group:
            of_group = group_facts(self._group, self._dump.solved_at(self._group))
            facts = f"{visible(self._group.group_id, one_line=True)}\n{of_group}"
            messages = prompt(self._group)
        self.query_one("#facts", Static).update(_content(facts))
        self.query_one("#prompt Static", Static).update(_content("\n".join(map(": ".join, messages))))
        self._right = self._last_rank()  # beside the best one
        self._refresh_panes()

    def _last_rank(self) -> int:
        """Return the number of the worst rollout."""
        return len(self._group.rollouts) - 1 if self._group else 0

    def _refresh_panes(self) -> None:
        rollouts = ranked(self._group) if self._group else []
        for name, rank in (("#left", 0), ("#right", self._right)):
            pane, content = self.query_one(name), Content()
            pane.border_title = ""
            if self._group and rollouts:
                pane.border_title, rollout = rollouts[rank]
                facts = Content(rollout_facts(rollout, self._group)).stylize("dim")
                content = facts + "\n" + styled_response(rollout)
            pane.query_one(Static).update(content)
            pane.scroll_home(animate=False)

    # -- keys

    def action_filter(self) -> None:
        """Open the filter line: a condition as of `--where`, then a slash and a text to search for."""
        line = self.query_one("#line", Input)
        line.add_class("open")
        line.value = str(self.shown_query)
        line.cursor_position = len(line.value)
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            self.shown_query = Query.parse(event.value)
        except RGEnvError as error:
            self.notify(visible(f"{error}. A text to search for begins with /"), severity="error", markup=False)
            return
        event.input.remove_class("open")
        self._find()

    def action_clear(self) -> None:
        # First what lies over the list, then the filter: one key for both, from the outside inward.
        opened = self.query(".open")
        if opened:
            opened.remove_class("open")
            self._table.focus()
        elif str(self.shown_query):
            self.shown_query = Query()
            self._find()

    def action_move(self, by: int) -> None:
        self._go(self.place + by)

    def action_jump(self, sought: str) -> None:
        """Select the next row that has it; after the last one, the first."""
        places: list[int] = []
        if self.rows.height:  # before the first reading the frame has no columns
            places = self.rows.select(pl.arg_where(_SOUGHT[sought])).to_series().to_list()
        others = [place for place in places if place != self.place]
        if others:
            # The one after the last is the first.
            self._go(next((place for place in others if place > self.place), others[0]))
        else:
            self.notify(f"no other group has {sought}")

    def action_turn(self, by: int) -> None:
        self._right = min(max(0, self._right + by), self._last_rank())
        self._refresh_panes()

    def action_copy(self) -> None:
        if self._group:
            self.copy_to_clipboard(self._group.group_id)
            self.notify(f"copied {visible(self._group.group_id, one_line=True)}", markup=False)

    def action_reload(self) -> None:
        self._find(reload=True)


def _cells(row: dict[str, Any]) -> Iterable[Text]:
    """Return the cells of a row of the list."""
    for name in _COLUMNS:
        value = row[name]
        text = str(value)
        if value is None:
            text = "–"
        elif isinstance(value, float):
            text = f"{value:.3f}"
        style = ""
        if name == "outcome":
            style = _COLORS.get(value, "")
        elif name == "troubles":
            style = "red"
        yield cell(text, style)


def styled_response(rollout: RolloutRecord) -> Content:
    """Return the response in colors, in linear time. Tags override blocks."""
    text = rollout.transcript()
    shown, parsed = _shortened(text), reparse(text, as_violation(rollout.violation))
    # Each character gets the number of its style; where spans overlap, the later one wins, so tags come last.
    paint = bytearray(len(shown))
    spans = [(parsed.think_span, 1), (parsed.answer_span, 2)]
    spans += [(tag, 3) for tag in tag_spans(text, parsed.format)]
    for span, style in spans:
        if span is not None and span.start < len(paint):
            end = min(span.end, len(paint))
            paint[span.start : end] = bytes([style]) * (end - span.start)
    # Neighbors of one style become one piece.
    pieces = []
    for run in re.finditer(rb"(.)\1*", paint, re.DOTALL):
        style = run[1][0]
        pieces.append((visible(shown[run.start() : run.end()]), _STYLES[style]))
    return Content.assemble(*pieces)


def _content(text: str) -> Content:
    return Content(visible(_shortened(text)))


def _shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}\n… {len(text) - LONGEST:,} characters more"
