"""The terminal application.

Invariant: the user interface waits for the disk only to read the group that is shown. The ledger is read and filtered,
and texts are searched, in a thread; rows, filter and cursor change only in the UI thread.
"""

from __future__ import annotations

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

from rg_env.browser.facts import group_facts, place_of, prompt, ranked, thresholds
from rg_env.browser.pane import Pane, plain_content
from rg_env.browser.query import SCORE, SORTED_BY, Query
from rg_env.choices import SortBy
from rg_env.dump import Dump, GroupRecord, Outcome
from rg_env.dump.frames import ConditionError
from rg_env.dump.reader import TextIndex
from rg_env.errors import RGEnvError
from rg_env.output import counted, visible
from rg_env.scoring.types import Status

PAGE = 500
"""Rows in the list at a time: Textual takes a second for about 2,000."""
_COLUMNS = {"step": 6, "phase": 5, "task": 24, "outcome": 11, "best": 5, "mean": 5, "worst": 5, "troubles": 30}
_COLORS = {Outcome.ALL_CORRECT.value: "green", Outcome.ALL_FAILED.value: "red", Outcome.MIXED.value: "yellow"}
_SOUGHT = {
    "failed rollouts only": pl.col("outcome") == Outcome.ALL_FAILED.value,
    "a violation": pl.col("troubles") != "",
}


def rows_of(dump: Dump, sort: SortBy | None = None) -> pl.DataFrame:
    """A row for each group with a text, sorted or in the order of run, step and phase.

    Returns:
        `run_id`, `group_id`, `step`, `phase`, `task`, `outcome`; its `best`, `mean` and `worst` base score;
        and `troubles`: its violations, and each status other than ok.

    Raises:
        DumpError: the dump cannot be read.
    """
    failed = pl.col("status").filter(pl.col("status") != Status.OK.value)
    groups = (
        dump.scan()
        .filter(pl.col("text") != "")
        .group_by("run_id", "group_id", maintain_order=True)
        .agg(
            pl.col("step", "phase", "task", "outcome").first(),
            SCORE.max().alias("best"),
            SCORE.mean().alias("mean"),
            SCORE.min().alias("worst"),
            order=SORTED_BY[sort] if sort else pl.lit(None),
            violations=pl.col("violation").filter(pl.col("violation") != "").unique().sort(),
            failures=failed.unique().sort(),
        )
        .with_columns(troubles=pl.concat_list("violations", "failures").list.join(" "))
        .collect(engine="streaming")
        .sort("run_id", "step", "phase", nulls_last=True, maintain_order=True)
    )
    groups = groups.sort("order", descending=True, nulls_last=True, maintain_order=True)
    return groups.drop("violations", "failures", "order")


class Browser(App[None]):
    """A list of groups; the best and the worst response of the selected group side by side.

    Args:
        open_dump: opens the dump; called again on reload.
        query: the initial filter.
        sort: the order of the list; None: by run, step and phase.
    """

    TITLE = "rg-env dumps show"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
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
        Binding("p", "layout('no-prompt')", "Show or hide the prompt", show=False),
        Binding("z,enter", "layout('zoomed')", "Zoom", show=False),
        Binding("y", "copy", "Copy id"),
        Binding("r", "reload", "Reload", show=False),
        Binding("question_mark", "show_help_panel", "Keys"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, open_dump: Callable[[], Dump], query: Query | None = None, sort: SortBy | None = None) -> None:
        super().__init__()
        self._sort = sort
        self._open = open_dump
        self._dump = open_dump()
        self._thresholds = thresholds(self._dump)
        self._texts: TextIndex
        self.shown_query = query or Query()
        self.failure: RGEnvError | None = None
        self._group: GroupRecord | None = None
        self._right = 0  # rank of the rollout in the right pane
        self._every: pl.DataFrame | None = None  # None while the ledger is read
        self.rows = pl.DataFrame()
        self._first = 0
        self.busy = ""

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="facts")
        with VerticalScroll(id="prompt"):
            yield Static()
        with Horizontal(id="panes"):
            yield Pane(id="left")
            yield Pane(id="right")
        yield Input(
            id="line", compact=True, select_on_focus=False, placeholder="task = 'gcd' AND step > 10 /some words"
        )
        yield Footer()

    def on_mount(self) -> None:
        for name, width in _COLUMNS.items():
            self._table.add_column(name, width=width)
        self._table.focus()
        self._find()

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one(DataTable)

    @property
    def place(self) -> int:
        """The number of the selected row among `rows`."""
        return self._first + self._table.cursor_row

    # -- reading, filtering and searching

    def _find(self) -> None:
        self.busy = "reading" if self._every is None else "searching"
        self._refresh_head()
        self._find_in_thread(self._dump, self.shown_query, self._every)

    @work(thread=True, exclusive=True)
    def _find_in_thread(self, dump: Dump, query: Query, every: pl.DataFrame | None) -> None:
        """Read the rows unless they are known, and find those that match the query."""
        worker = get_current_worker()
        try:
            if every is None:
                every, self._texts = rows_of(dump, self._sort), TextIndex(dump)
            found = every
            if query.conditions:
                try:
                    found = every.join(
                        query.matching(dump), on=["run_id", "group_id"], how="semi", maintain_order="left"
                    )
                except ConditionError:  # nothing matches
                    found = every.clear()
            if query.text:
                ids = set()
                for group in dump.groups(ids=set(found["group_id"])):
                    if worker.is_cancelled:
                        return
                    if query.matches_text(group):
                        ids.add(group.group_id)
                found = found.filter(pl.col("group_id").is_in(ids))
        except RGEnvError as error:
            self.call_from_thread(self._fail, error)
            return
        if not worker.is_cancelled:
            self.call_from_thread(self._show, every, found)

    def _fail(self, error: RGEnvError) -> None:
        self.failure = error
        self.exit()

    def _show(self, every: pl.DataFrame, rows: pl.DataFrame) -> None:
        """Show other rows; the cursor stays on its group if it is among them."""
        before = self.rows["group_id"][self.place] if self.place < self.rows.height else None
        self._every, self.rows, self.busy = every, rows, ""
        kept = rows["group_id"].index_of(before) if before is not None else None
        self._first = -1
        self._go(kept or 0)

    # -- the screen

    def _go(self, place: int) -> None:
        """Select a row, and load its page into the list."""
        place = min(max(0, place), max(0, self.rows.height - 1))
        first = place // PAGE * PAGE
        if first != self._first:
            self._first = first
            self._table.clear()
            self._table.add_rows(map(_cells, self.rows[first : first + PAGE].iter_rows(named=True)))
        self._table.move_cursor(row=place - first, animate=False)
        if not self.rows.height:
            self._select(None)
        self._refresh_head()

    def _refresh_head(self) -> None:
        total = 0 if self._every is None else self._every.height
        parts = [f"{self.rows.height:,} of {total:,} groups", str(self.shown_query) or "no filter"]
        if self.rows.height > PAGE:
            last = min(self.rows.height, self._first + PAGE)
            parts.append(f"list: {self._first + 1:,} to {last:,}, keys [ and ]")
        if problems := len(self._dump.problems):
            parts.append(counted(problems, "damaged line"))
        if self.busy:
            parts.append(self.busy)
        self.query_one("#head", Static).update(Content(visible(" · ".join(parts), one_line=True)))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        if self.place < self.rows.height:
            self._select(self.rows[self.place])

    def _select(self, row: pl.DataFrame | None) -> None:
        try:
            self._group = None if row is None else self._texts.read(row["run_id"].item(), row["group_id"].item())
            message = "" if row is None or self._group else "the text of this group is damaged or has changed (key r)"
        except RGEnvError as error:
            self._group, message = None, f"{error} (key r)"
        group = self._group
        self._right = max(0, len(group.rollouts) - 1) if group else 0
        facts = f"{group.group_id}\n{group_facts(group, self._thresholds)}" if group else message
        self.query_one("#facts", Static).update(plain_content(facts))
        asked = "\n".join(f"{role}: {content}" for role, content in prompt(group)) if group else ""
        self.query_one("#prompt Static", Static).update(plain_content(asked))
        self._refresh_panes()

    def _refresh_panes(self) -> None:
        order, baseline = (ranked(self._group), self._group.baseline) if self._group else ([], 0.0)
        for pane, place in zip(self.query(Pane), (0, self._right), strict=True):
            if place < len(order):
                pane.show(order[place], f"{place_of(place, len(order))} of {len(order)}", baseline)
            else:
                pane.show(None, "")

    # -- keys

    def action_filter(self) -> None:
        """Open the filter line: a condition as of `--where`, then a slash and a text to search for."""
        line = self.query_one("#line", Input)
        line.add_class("open")
        query = self.shown_query
        line.value = str(query)
        line.focus()
        line.cursor_position = len(line.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            query = Query.parse(event.value)
        except RGEnvError as error:
            self.notify(visible(f"{error}. A text to search for begins with /"), severity="error", markup=False)
            return
        self._close_line()
        self.shown_query = query
        self._find()

    def _close_line(self) -> None:
        self.query_one("#line", Input).remove_class("open")
        self._table.focus()

    def action_clear(self) -> None:
        if self.query_one("#line", Input).has_class("open"):
            self._close_line()
        elif self.screen.query("HelpPanel"):
            self.action_hide_help_panel()
        elif str(self.shown_query):
            self.shown_query = Query()
            self._find()

    def action_move(self, by: int) -> None:
        self._go(self.place + by)

    def action_jump(self, sought: str) -> None:
        """Select the next row that has it; after the last one, the first."""
        places = self.rows.select(pl.arg_where(_SOUGHT[sought])).to_series().to_list() if self.rows.height else []
        others = [place for place in places if place > self.place] + [place for place in places if place < self.place]
        if others:
            self._go(others[0])
        else:
            self.notify(f"no other group has {sought}")

    def action_turn(self, by: int) -> None:
        count = len(self._group.rollouts) if self._group else 0
        self._right = min(max(0, self._right + by), max(0, count - 1))
        self._refresh_panes()

    def action_layout(self, name: str) -> None:
        self.screen.toggle_class(name)

    def action_copy(self) -> None:
        if self._group:
            self.copy_to_clipboard(self._group.group_id)
            self.notify(f"copied {visible(self._group.group_id, one_line=True)}", markup=False)

    def action_reload(self) -> None:
        try:
            self._dump = self._open()
            self._thresholds = thresholds(self._dump)
        except RGEnvError as error:
            self._fail(error)
            return
        self._every = None
        self._find()


def _cells(row: dict[str, Any]) -> Iterable[Text]:
    for name in _COLUMNS:
        value = row[name]
        text = "–" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
        style = _COLORS.get(value, "") if name == "outcome" else "red" if name == "troubles" else ""
        yield Text(visible(text, one_line=True), style)
