"""The help screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

_NAMES = {"question_mark": "?", "slash": "/", "comma": ",", "full_stop": ".", "less_than_sign": "<"}
_NAMES |= {"greater_than_sign": ">", "escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "up": "↑", "down": "↓"}
_FILTERS = """
Filter line: conditions as for `rg-env dumps stats --where`, then a text to search for, ignoring case:
task=gcd,spell_*  outcome=all_failed  violation!=none  phase=eval  step=10..20  response_tokens>200  /words
best, mean and worst are base scores of the group. A group is shown if one of its rollouts matches."""


class Help(ModalScreen[None]):
    """A list of all keys."""

    DEFAULT_CSS = """
    Help { align: center middle; }
    Help > VerticalScroll {
        width: 80%; max-width: 90; height: auto; max-height: 90%; border: round $primary; padding: 0 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Close")]

    def __init__(self, bindings: Iterable[BindingType]) -> None:
        super().__init__()
        self._bindings_shown = [binding for binding in bindings if isinstance(binding, Binding)]

    def compose(self) -> ComposeResult:
        lines = [
            f"{' '.join(_NAMES.get(key, key) for key in binding.key.split(',')):>14}  {binding.description}"
            for binding in self._bindings_shown
        ]
        with VerticalScroll():
            yield Static(Content("\n".join([*lines, _FILTERS])))
