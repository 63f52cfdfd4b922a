"""The view of a rollout: its numbers, and its response with colored think and answer blocks and marked faults.

Invariant: recorded text reaches the screen as `Content` made of visible characters, never as markup.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from rg_env.analysis.reparse import faults, reparse
from rg_env.browser.facts import response, rollout_facts
from rg_env.dump.schema import RolloutRecord
from rg_env.sanitize import visible
from rg_env.scoring.parse import tag_spans
from rg_env.scoring.types import Span, Violation

LONGEST = 50_000
"""Maximum number of characters of a text that are shown."""
_STYLES = ("", "italic cyan", "bold green", "dim", "bold white on red")
_THINK, _ANSWER, _TAG, _FAULT = 1, 2, 3, 4


class Pane(VerticalScroll):
    """One rollout of a group."""

    def compose(self) -> ComposeResult:
        yield Static(classes="facts")
        yield Static(classes="response")

    def show(self, rollout: RolloutRecord | None, title: str) -> None:
        self.border_title = title
        facts, text = self.query(Static)
        facts.update(Content(visible(rollout_facts(rollout), one_line=True)) if rollout else "")
        text.update(styled_response(rollout) if rollout else "")
        self.scroll_home(animate=False)


def styled_response(rollout: RolloutRecord) -> Content:
    """The response in colors, in linear time."""
    text = response(rollout)
    broken, what = faults(text, rollout.violation)
    shown = text[:LONGEST]
    notes = {span.end for span in broken}
    paint = _paint(text, rollout.violation, broken, len(shown))
    pieces: list[tuple[str, str]] = []
    start = 0
    for place in range(len(shown) + 1):
        if place == len(shown) or place in notes or paint[place] != paint[start]:
            if place > start:
                pieces.append((visible(shown[start:place]), _STYLES[paint[start]]))
            if place in notes:
                pieces.append((f"◀ {what} ", _STYLES[_FAULT]))
            start = place
    pieces.append((_rest(text), _STYLES[_TAG]))
    return Content.assemble(*pieces)


def plain_content(text: str) -> Content:
    """A text other than a response."""
    return Content(visible(text[:LONGEST]) + _rest(text))


def _rest(text: str) -> str:
    return f"\n… {len(text) - LONGEST:,} characters more" if len(text) > LONGEST else ""


def _paint(text: str, violation: Violation | None, broken: list[Span], length: int) -> bytearray:
    """The style of each of the first `length` characters. Faults override tags, tags override blocks."""
    parsed = reparse(text, violation)
    paint = bytearray(length)

    def over(span: Span | None, style: int) -> None:
        if span is not None and span.start < length:
            end = min(span.end, length)
            paint[span.start : end] = bytes([style]) * (end - span.start)

    over(parsed.think_span, _THINK)
    over(parsed.answer_span, _ANSWER)
    for tag in tag_spans(text, parsed.format):
        over(tag, _TAG)
    for span in broken:
        over(span, _FAULT)
    return paint
