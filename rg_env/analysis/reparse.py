"""A recorded response, parsed again: its parts, and the text without the think block.

Invariant: `rg_env.scoring.parse` alone interprets the tags.
"""

from __future__ import annotations

import sys

from rg_env.base.choices import ResponseFormat
from rg_env.scoring.parse import parse_response, tag_spans
from rg_env.scoring.types import ParsedResponse, Violation


def reparse(text: str, violation: Violation | None) -> ParsedResponse:
    """Parse a response as it was parsed when it was scored.

    A record does not contain the format, whether the prompt had opened the think block, or the longest answer allowed.
    The first parse that leads to the recorded violation is taken; if none does, the strict one for an ordinary prompt.

    Args:
        violation: from the record; None: none or unknown.
    """
    # The run's limit is unknown: the least one leads to this violation, and none leads to the others.
    longest = 1 if violation is Violation.ANSWER_TOO_LONG else sys.maxsize
    # Made one by one: no more than it takes to find the violation.
    parses = (
        parse_response(text, prefilled, longest, format) for format in ResponseFormat for prefilled in (False, True)
    )
    first = next(parses)
    return next((parsed for parsed in (first, *parses) if parsed.violation is violation), first)


def without_think(text: str, violation: Violation | None) -> str | None:
    """Return the response without its think block; the response itself if it has none, as the lenient format allows.

    None if the block is not closed, if there is a second one, or if the answer is inside.

    Args:
        violation: from the record; None: none or unknown.
    """
    parsed = reparse(text, violation)
    block = parsed.think_span
    if block is None and parsed.answer is not None:
        return text.strip()
    if parsed.think is None or block is None or violation is Violation.MULTIPLE_THINK:
        return None
    # The block goes with its own tags, which touch it; an opening tag in the prompt is not in the text.
    start, end = block.start, block.end
    for tag in tag_spans(text, parsed.format):
        if tag.end == block.start or tag.start == block.end:
            start, end = min(start, tag.start), max(end, tag.end)
    return (text[:start] + text[end:].lstrip()).strip()
