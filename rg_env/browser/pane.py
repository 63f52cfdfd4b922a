"""The view of a rollout: its numbers, and its response with colored think and answer blocks.

Invariant: recorded text reaches the screen as `Content` made of visible characters, never as markup.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from rg_env.analysis.reparse import reparse
from rg_env.browser.facts import rollout_facts
from rg_env.dump.schema import RolloutRecord, as_violation
from rg_env.output import visible
from rg_env.scoring.parse import tag_spans
from rg_env.scoring.types import Span

LONGEST = 50_000
"""Maximum number of characters of a text that are shown."""
_STYLES = ("", "italic cyan", "bold green", "dim")
_THINK, _ANSWER, _TAG = 1, 2, 3


class Pane(VerticalScroll):
    """One rollout of a group."""

    def compose(self) -> ComposeResult:
        yield Static(classes="facts")
        yield Static(classes="response")

    def show(self, rollout: RolloutRecord | None, title: str, baseline: float = 0.0) -> None:
        self.border_title = title
        facts, text = self.query(Static)
        facts.update(Content(visible(rollout_facts(rollout, baseline), one_line=True)) if rollout else "")
        text.update(styled_response(rollout) if rollout else "")
        self.scroll_home(animate=False)


def styled_response(rollout: RolloutRecord) -> Content:
    """The response in colors, in linear time. Tags override blocks."""
    text = rollout.transcript()
    parsed = reparse(text, as_violation(rollout.violation))
    length = min(len(text), LONGEST)
    paint = bytearray(length)  # the style of each character
    spans: list[tuple[Span | None, int]] = [(parsed.think_span, _THINK), (parsed.answer_span, _ANSWER)]
    spans += [(tag, _TAG) for tag in tag_spans(text, parsed.format)]
    for span, style in spans:
        if span is not None and span.start < length:
            paint[span.start : span.end] = bytes([style]) * (min(span.end, length) - span.start)
    pieces: list[tuple[str, str]] = []
    start = 0
    for place in range(1, length + 1):
        if place == length or paint[place] != paint[start]:
            pieces.append((visible(text[start:place]), _STYLES[paint[start]]))
            start = place
    pieces.append((_rest(text), _STYLES[_TAG]))
    return Content.assemble(*pieces)


def plain_content(text: str) -> Content:
    """A text other than a response."""
    return Content(visible(text[:LONGEST]) + _rest(text))


def _rest(text: str) -> str:
    return f"\n… {len(text) - LONGEST:,} characters more" if len(text) > LONGEST else ""
