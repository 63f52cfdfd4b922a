"""The browser of groups.

Invariant: the screen never waits for the disk. Groups are found and searched in threads, which hand their rows to the
screen; every change of a row, a filter or a cursor happens on the screen's own thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

import polars as pl
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Footer, Input, Static
from textual.worker import get_current_worker

from rg_env.analysis.visible import visible
from rg_env.browser.complete import Completion
from rg_env.browser.groups import HEADING, GroupList
from rg_env.browser.help import Help
from rg_env.browser.pane import Pane
from rg_env.browser.query import Query
from rg_env.browser.ranking import group_facts, place_of, prompt, ranked
from rg_env.dump import Dump, GroupRecord, Outcome
from rg_env.dump.index import SCHEMA, Chunk, index_rows, last_attempts_only, read_row, text_files
from rg_env.errors import RGEnvError

PAUSE = 0.25
"""Seconds between two deliveries of rows to the screen."""
FAILED = pl.col("outcome") == Outcome.ALL_FAILED.value
TROUBLED = (pl.col("violations").list.len() > 0) | (pl.col("statuses").list.len() > 0)


class Browser(App[None]):
    """Groups in a list, the best and the worst response of the one under the cursor side by side.

    Args:
        open_dump: finds the dump; called again on reload.
        query: what to show first.
    """

    TITLE = "rg-env dumps show"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter('')", "Search"),
        Binding("t", "filter('task')", "Task"),
        Binding("o", "filter('outcome')", "Outcome"),
        Binding("x", "filter('violation')", "Violation", show=False),
        Binding("s", "filter('step')", "Step", show=False),
        Binding("c", "filter('score')", "Score", show=False),
        Binding("escape", "clear", "Clear filter", show=False),
        Binding("f", "failure(1)", "Next failure"),
        Binding("F", "failure(-1)", "Failure before", show=False),
        Binding("v", "trouble(1)", "Next violation"),
        Binding("V", "trouble(-1)", "Violation before", show=False),
        Binding("comma", "turn(1, -1)", "Better rollout on the right", show=False),
        Binding("full_stop", "turn(1, 1)", "Worse rollout on the right", show=False),
        Binding("less_than_sign", "turn(0, -1)", "Better rollout on the left", show=False),
        Binding("greater_than_sign", "turn(0, 1)", "Worse rollout on the left", show=False),
        Binding("p", "layout('no-prompt')", "Prompt", show=False),
        Binding("z,enter", "layout('zoomed')", "Zoom"),
        Binding("y", "copy", "Copy id"),
        Binding("r", "reload", "Read again", show=False),
        Binding("question_mark", "help", "Keys"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, open_dump: Callable[[], Dump], query: Query | None = None) -> None:
        super().__init__()
        self._open = open_dump
        self._dump = open_dump()
        self.shown_query = query or Query()
        self.failure: RGEnvError | None = None
        self._group: GroupRecord | None = None
        self._places = [0, 0]
        self._forget()

    def _forget(self) -> None:
        self._files = text_files(self._dump)
        self._rows = pl.DataFrame(schema=SCHEMA)
        self._found: pl.DataFrame | None = None
        self._done, self._total = 0, 1
        self._loaded = self._settled = self._searching = False

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(Content(HEADING), id="heading")
        yield GroupList()
        yield Static(id="facts")
        with VerticalScroll(id="prompt"):
            yield Static()
        with Horizontal(id="panes"):
            yield Pane(id="left")
            yield Pane(id="right")
        yield Input(
            id="line",
            select_on_focus=False,
            placeholder="words, or task: outcome: violation: step: score:",
            suggester=Completion(self),
        )
        yield Footer()

    def on_mount(self) -> None:
        self._load()
        self._search()

    # -- reading, in threads

    def _load(self) -> None:
        self.run_worker(self._load_rows, thread=True, group="load", exclusive=True)

    def _load_rows(self) -> None:
        worker, waiting, last = get_current_worker(), [], 0.0
        try:
            for chunk in index_rows(self._dump):
                waiting.append(chunk)
                if worker.is_cancelled:
                    return
                if time.monotonic() - last > PAUSE:
                    self.call_from_thread(self._take, waiting)
                    waiting, last = [], time.monotonic()
            self._dump.is_last_attempt(self._dump.runs[0].run_id, "", None, 1)  # reads the ledger, here and not there
        except RGEnvError as error:
            if not worker.is_cancelled:
                self.call_from_thread(self._fail, error)
            return
        if not worker.is_cancelled:
            self.call_from_thread(self._take, waiting, at_end=True)

    def _take(self, chunks: list[Chunk], *, at_end: bool = False) -> None:
        self._rows = pl.concat([self._rows, *(chunk.rows for chunk in chunks)])
        if chunks:
            self._done, self._total = chunks[-1].done, chunks[-1].total
        self._loaded = self._settled = at_end
        self._refresh_list()

    def _fail(self, error: RGEnvError) -> None:
        self.failure = error
        self.exit()

    def _search(self) -> None:
        self.workers.cancel_group(self, "search")
        self._found, self._searching = None, False
        if self.shown_query.text:
            self._found, self._searching = pl.DataFrame(schema=SCHEMA), True
            self.run_worker(self._search_texts, thread=True, group="search", exclusive=True)

    def _search_texts(self) -> None:
        worker, query, dump, files = get_current_worker(), self.shown_query, self._dump, self._files
        seen, found, last = 0, [], time.monotonic()
        while True:
            at_end, rows = self._loaded, self._rows
            fitting = last_attempts_only(dump, query.fits(rows.slice(seen)))
            seen = rows.height
            for row in fitting.iter_rows(named=True):
                if worker.is_cancelled:
                    return
                try:
                    fits = query.fits_text(read_row(files, row))
                except RGEnvError:
                    continue  # it changed under us; the list says so when it is opened
                if fits:
                    found.append(row)
                if time.monotonic() - last > PAUSE:
                    self.call_from_thread(self._find, found, False)
                    found, last = [], time.monotonic()
            if at_end:
                self.call_from_thread(self._find, found, True)
                return
            time.sleep(PAUSE / 5)

    def _find(self, rows: list[dict[str, Any]], at_end: bool) -> None:
        if self._found is not None:
            self._found = pl.concat([self._found, pl.DataFrame(rows, schema=SCHEMA)])
            self._searching = not at_end
            self._refresh_list()

    # -- the screen

    def _refresh_list(self) -> None:
        rows = self.shown_query.fits(self._rows) if self._found is None else self._found
        rows = last_attempts_only(self._dump, rows) if self._settled else rows
        self.query_one(GroupList).show(rows)
        self._refresh_head()

    def _refresh_head(self) -> None:
        shown, read = self.query_one(GroupList).rows.height, self._rows["problem"].is_null().sum()
        parts = [f"{shown:,} of {read:,} groups", str(self.shown_query) or "no filter"]
        if damaged := self._rows.height - read:
            parts.append(f"{damaged:,} damaged lines")
        if not self._loaded:
            parts.append(f"reading {self._done / self._total:.0%}")
        elif self._searching:
            parts.append("searching")
        self.query_one("#head", Static).update(Content(visible(" · ".join(parts), one_line=True)))

    def on_group_list_chosen(self, event: GroupList.Chosen) -> None:
        self._group = None
        message = ""
        if event.row is not None:
            try:
                self._group = read_row(self._files, event.row)
            except RGEnvError as error:
                message = f"{error} (key r)"
        group = self._group
        self._places = [0, max(0, len(group.rollouts) - 1) if group else 0]
        facts = f"{group.group_id}\n{group_facts(group)}" if group else message
        self.query_one("#facts", Static).update(Content(visible(facts)))
        asked = "\n".join(f"{role}: {content}" for role, content in prompt(group)) if group else ""
        self.query_one("#prompt Static", Static).update(Content(visible(asked)))
        self._refresh_panes()

    def _refresh_panes(self) -> None:
        order = ranked(self._group) if self._group else []
        for pane, place in zip(self.query(Pane), self._places, strict=True):
            if place < len(order):
                pane.show(order[place], f"{place_of(place, len(order))} of {len(order)}")
            else:
                pane.show(None, "")

    # -- keys

    def action_filter(self, key: str) -> None:
        line = self.query_one("#line", Input)
        line.add_class("open")
        before = str(self.shown_query)
        line.value = f"{key}:" if key and not before else f"{key}: {before}" if key else before
        line.focus()
        line.cursor_position = len(key) + 1 if key else len(line.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            query = Query.parse(event.value)
        except RGEnvError as error:
            self.notify(visible(str(error)), severity="error", markup=False)
            return
        self._close_line()
        self._set_query(query)

    def _close_line(self) -> None:
        self.query_one("#line", Input).remove_class("open")
        self.query_one(GroupList).focus()

    def _set_query(self, query: Query) -> None:
        self.shown_query = query
        self._search()
        self._refresh_list()

    def action_clear(self) -> None:
        if self.query_one("#line", Input).has_class("open"):
            self._close_line()
        elif str(self.shown_query):
            self._set_query(Query())

    def action_failure(self, direction: int) -> None:
        self._jump(FAILED, direction, "no other group failed altogether")

    def action_trouble(self, direction: int) -> None:
        self._jump(TROUBLED, direction, "no other group has a violation")

    def _jump(self, condition: pl.Expr, direction: int, otherwise: str) -> None:
        if not self.query_one(GroupList).go_to_next(condition, direction):
            self.notify(otherwise)

    def action_turn(self, pane: int, by: int) -> None:
        count = len(self._group.rollouts) if self._group else 0
        self._places[pane] = min(max(0, self._places[pane] + by), max(0, count - 1))
        self._refresh_panes()

    def action_layout(self, name: str) -> None:
        self.screen.toggle_class(name)

    def action_copy(self) -> None:
        if self._group:
            self.copy_to_clipboard(self._group.group_id)
            self.notify(f"copied {visible(self._group.group_id, one_line=True)}", markup=False)

    def action_reload(self) -> None:
        self.workers.cancel_all()
        try:
            self._dump = self._open()
        except RGEnvError as error:
            self._fail(error)
            return
        self._forget()
        self._load()
        self._search()

    def action_help(self) -> None:
        self.push_screen(Help([*GroupList.BINDINGS, *self.BINDINGS]))

    @property
    def task_names(self) -> list[str]:
        """Tasks read so far, for completion."""
        return [str(name) for name in self._rows["task"].drop_nulls().unique().sort()]
