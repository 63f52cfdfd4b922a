"""A recorded response, parsed again: its parts, the places that break the format, the text without the think block.

Invariant: `rg_env.scoring.parse` alone interprets the tags. A response is only marked as faulty if the record says so.
"""

from __future__ import annotations

import sys

from rg_env.scoring.parse import parse_response, violation_spans
from rg_env.scoring.types import ParsedResponse, Span, Violation

FAULTS = {
    Violation.NO_THINK: "the first tag of the response is not <think>",
    Violation.UNCLOSED_THINK: "no </think> follows the <think>",
    Violation.MULTIPLE_THINK: "more than one <think> or </think>",
    Violation.NO_ANSWER: "no <answer> follows the think block",
    Violation.UNCLOSED_ANSWER: "no </answer> follows the <answer>",
    Violation.MULTIPLE_ANSWERS: "more than one <answer> or </answer> after the think block",
    Violation.ANSWER_INSIDE_THINK: "an answer tag inside the think block",
    Violation.EMPTY_ANSWER: "nothing between the answer tags",
    Violation.ANSWER_TOO_LONG: "the answer is longer than allowed",
}
"""What each violation means, as a remark on a response."""


def reparse(text: str, violation: Violation | None) -> ParsedResponse:
    """Parse a response as it was parsed when it was scored.

    A record does not contain whether the prompt had opened the think block, or the longest answer allowed. The parse
    that leads to the recorded violation is taken; if neither does, the one for an ordinary prompt.

    Args:
        violation: from the record; None: none or unknown.
    """
    longest = 1 if violation is Violation.ANSWER_TOO_LONG else sys.maxsize
    parsed = parse_response(text, False, longest)
    if parsed.violation is not violation:
        prefilled = parse_response(text, True, longest)
        return prefilled if prefilled.violation is violation else parsed
    return parsed


def faults(text: str, violation: Violation | None) -> tuple[list[Span], str]:
    """The places that break the format, in order, and what is wrong there in a few words. Without violation, none.

    Args:
        violation: from the record; None: none or unknown.
    """
    if violation is None:
        return [], ""
    return violation_spans(text, reparse(text, violation)) or [Span(len(text), len(text))], FAULTS[violation]


def without_think(text: str, violation: Violation | None) -> str | None:
    """The response without its think block; None if the block is not closed, or there is a second one.

    Args:
        violation: from the record; None: none or unknown.
    """
    parsed = reparse(text, violation)
    block = parsed.think_span
    if parsed.think is None or block is None or violation is Violation.MULTIPLE_THINK:
        return None
    before = text[: block.start].removesuffix("<think>")
    return (before + text[block.end :].removeprefix("</think>").lstrip()).strip()
