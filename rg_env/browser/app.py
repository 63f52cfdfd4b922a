"""The terminal application.

Invariant: the user interface waits for the disk only to read the group that is shown. Groups are indexed and searched
in threads (`reading`); rows, filter and cursor change only in the UI thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar

import polars as pl
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Footer, Input, Static

from rg_env.browser.complete import Completion
from rg_env.browser.groups import HEADING, GroupList
from rg_env.browser.help import Help
from rg_env.browser.index import SCHEMA, read_row, text_files
from rg_env.browser.pane import Pane, plain_content
from rg_env.browser.query import Query
from rg_env.browser.ranking import group_facts, place_of, prompt, ranked
from rg_env.browser.reading import Failed, Found, Read, read, search
from rg_env.dump import Dump, GroupRecord, Outcome
from rg_env.errors import RGEnvError
from rg_env.sanitize import visible
from rg_env.scoring.types import Status

FAILED = pl.col("outcome") == Outcome.ALL_FAILED.value
TROUBLED = pl.any_horizontal(
    pl.col("violation").list.eval(pl.element().is_not_null()).list.any(),
    pl.col("status").list.eval(pl.element() != Status.OK.value).list.any(),
)


class Browser(App[None]):
    """A list of groups; the best and the worst response of the selected group side by side.

    Args:
        open_dump: opens the dump; called again on reload.
        query: the initial filter.
    """

    TITLE = "rg-env dumps show"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter('')", "Search"),
        Binding("t", "filter('task')", "Task"),
        Binding("o", "filter('outcome')", "Outcome", show=False),
        Binding("x", "filter('violation')", "Violation", show=False),
        Binding("s", "filter('step')", "Step", show=False),
        Binding("c", "filter('mean')", "Mean score", show=False),
        Binding("escape", "clear", "Clear filter", show=False),
        Binding("f", "failure(1)", "Next failure"),
        Binding("F", "failure(-1)", "Previous failure", show=False),
        Binding("v", "trouble(1)", "Next violation"),
        Binding("V", "trouble(-1)", "Previous violation", show=False),
        Binding("comma", "turn(1, -1)", "Right pane: better rollout", show=False),
        Binding("full_stop", "turn(1, 1)", "Right pane: worse rollout", show=False),
        Binding("less_than_sign", "turn(0, -1)", "Left pane: better rollout", show=False),
        Binding("greater_than_sign", "turn(0, 1)", "Left pane: worse rollout", show=False),
        Binding("p", "layout('no-prompt')", "Show or hide the prompt", show=False),
        Binding("z,enter", "layout('zoomed')", "Zoom", show=False),
        Binding("y", "copy", "Copy id"),
        Binding("r", "reload", "Reload", show=False),
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
        self._found: pl.DataFrame | None = None  # None without a text search
        self._share = 0.0
        self.loaded = self.searching = False

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
            compact=True,
            select_on_focus=False,
            placeholder="task=gcd step=10..20, then a text to search for",
            suggester=Completion(self.task_names),
        )
        yield Footer()

    def on_mount(self) -> None:
        self._read()

    # -- messages from threads

    def _read(self) -> None:
        self.run_worker(partial(read, self._dump, self.post_message), thread=True, group="read", exclusive=True)

    def on_read(self, message: Read) -> None:
        if message.dump is not self._dump:
            return
        self._rows = message.rows if message.at_end else pl.concat([self._rows, message.rows])
        self._share, self.loaded = message.share, message.at_end
        if self.loaded:
            self._search()
        self._refresh_list()

    def on_failed(self, message: Failed) -> None:
        self.failure = message.error
        self.exit()

    def _search(self) -> None:
        """Start the text search, once everything has been read."""
        self.workers.cancel_group(self, "search")
        self.shown_query = replace(self.shown_query)  # a new object, so that results of older searches are ignored
        self._found = pl.DataFrame(schema=SCHEMA) if self.shown_query.text else None
        self.searching = self._found is not None and self.loaded
        if self.searching:
            rows = self.shown_query.filter(self._rows)
            work = partial(search, self.shown_query, self._files, rows, self.post_message)
            self.run_worker(work, thread=True, group="search", exclusive=True)

    def on_found(self, message: Found) -> None:
        if message.query is self.shown_query and self._found is not None:
            self._found = pl.concat([self._found, message.rows])
            self.searching = not message.at_end
            self._refresh_list()

    # -- the screen

    def _refresh_list(self) -> None:
        rows = self.shown_query.filter(self._rows) if self._found is None else self._found
        self.query_one(GroupList).show(rows)
        self._refresh_head()

    def _refresh_head(self) -> None:
        shown, read = self.query_one(GroupList).rows.height, self._rows["problem"].is_null().sum()
        parts = [f"{shown:,} of {read:,} groups", str(self.shown_query) or "no filter"]
        if damaged := self._rows.height - read:
            parts.append(f"{damaged:,} damaged line{'s' if damaged > 1 else ''}")
        if not self.loaded:
            parts.append(f"reading {self._share:.0%}")
        elif self.searching:
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
        self.query_one("#facts", Static).update(plain_content(facts))
        asked = "\n".join(f"{role}: {content}" for role, content in prompt(group)) if group else ""
        self.query_one("#prompt Static", Static).update(plain_content(asked))
        self._refresh_panes()

    def _refresh_panes(self) -> None:
        order = ranked(self._group) if self._group else []
        for pane, place in zip(self.query(Pane), self._places, strict=True):
            if place < len(order):
                pane.show(order[place], f"{place_of(place, len(order))} of {len(order)}")
            else:
                pane.show(None, "")

    # -- keys

    def action_filter(self, column: str) -> None:
        """Open the filter line, to replace the conditions on a column or to enter a text."""
        line = self.query_one("#line", Input)
        line.add_class("open")
        query = self.shown_query
        if column:  # last, because only the end of the line is completed
            begun = f"{replace(query.without(column), text='')} {column}=".lstrip()
            line.value = f"{begun} {Query(text=query.text)}" if query.text else begun
        else:
            line.value = begun = str(query) if query.text else f"{query} /".lstrip()
        line.focus()
        line.cursor_position = len(begun)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            query = Query.parse(event.value)
        except RGEnvError as error:
            self.notify(visible(f"{error}. A text to search for begins with /"), severity="error", markup=False)
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
        self._jump(FAILED, direction, "no other group has only failed rollouts")

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
            self.post_message(Failed(error))
            return
        self._forget()
        self._read()

    def action_help(self) -> None:
        self.push_screen(Help([*GroupList.BINDINGS, *self.BINDINGS]))

    def task_names(self) -> list[str]:
        """The names of the tasks read so far, for completion."""
        return self._rows["task"].drop_nulls().unique().sort().to_list()
