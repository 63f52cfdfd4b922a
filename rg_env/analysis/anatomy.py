"""Where in a response its parts lie, and where it breaks the format.

Invariant: reads tags exactly as `rg_env.scoring.parse_response`, whose verdict it is given and does not judge again: a
violation has at least one fault that shows where, a response without one has none. Linear in the length of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rg_env.scoring.types import Violation

_TAG = re.compile(r"</?(?:think|answer)>")


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Characters `start` to `end` of a text; `start == end` is a place between characters."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A place where the format is broken, and what is wrong there in a few words."""

    span: Span
    what: str


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The parts of a response.

    Attributes:
        tags: all think and answer tags.
        think: the inside of the first think block; up to the end of the text where it is not closed.
        answer: the inside of the first answer block behind it, likewise.
        think_block: the think block with its tags, to cut out; None unless it is closed.
        faults: where the violation is; empty where there is none.
    """

    tags: tuple[Span, ...]
    think: Span | None
    answer: Span | None
    think_block: Span | None
    faults: tuple[Fault, ...]


def anatomy(text: str, violation: Violation | None) -> Anatomy:
    """The parts of a response.

    Args:
        text: the response, as it was scored.
        violation: what is wrong with it, from the record; None for nothing or unknown. With it goes whether the prompt
            had already opened the think block: a record does not say, and a response that ends a block which it never
            began, and was not blamed for it, shows it.
    """
    found = [(match.group(), Span(*match.span())) for match in _TAG.finditer(text)]
    first = found[0][0] if found else ""
    blamed_inside = violation not in (None, Violation.NO_THINK)
    prefilled = first != "<think>" and (blamed_inside or (first == "</think>" and violation is None))
    opened: Span | None = Span(0, 0) if prefilled else None
    closed = answer_opened = answer_closed = None
    again, early, surplus = [], [], []
    for tag, span in found:
        if tag == "<think>" and opened is None:
            opened = span
        elif tag == "</think>" and opened is not None and closed is None:
            closed = span
        elif tag in ("<think>", "</think>"):
            again.append(span)
        elif closed is None:
            early.append(span)
        elif tag == "<answer>" and answer_opened is None:
            answer_opened = span
        elif tag == "</answer>" and answer_opened is not None and answer_closed is None:
            answer_closed = span
        else:
            surplus.append(span)

    end = Span(len(text), len(text))
    think = Span(opened.end, (closed or end).start) if opened else None
    answer = Span(answer_opened.end, (answer_closed or end).start) if answer_opened else None
    start = [span for _, span in found[:1]] or [Span(0, 0)]
    places = {
        None: [],
        Violation.NO_THINK: start,
        Violation.UNCLOSED_THINK: [opened or Span(0, 0), end],
        Violation.MULTIPLE_THINK: again or start,
        Violation.ANSWER_INSIDE_THINK: early,
        Violation.NO_ANSWER: surplus or [end],
        Violation.UNCLOSED_ANSWER: [answer_opened or end, end],
        Violation.MULTIPLE_ANSWERS: surplus,
        Violation.EMPTY_ANSWER: [answer or end],
        Violation.ANSWER_TOO_LONG: [answer or end],
    }[violation]
    what = _WHAT[violation] if violation else ""
    return Anatomy(
        tags=tuple(span for _, span in found),
        think=think,
        answer=answer,
        think_block=Span(opened.start, closed.end) if opened and closed else None,
        faults=tuple(Fault(span, what) for span in places or ([end] if violation else [])),
    )


_WHAT = {
    Violation.NO_THINK: "does not begin with <think>",
    Violation.UNCLOSED_THINK: "no </think>",
    Violation.MULTIPLE_THINK: "a second think tag",
    Violation.NO_ANSWER: "no <answer> after the think block",
    Violation.UNCLOSED_ANSWER: "no </answer>",
    Violation.MULTIPLE_ANSWERS: "a second answer tag",
    Violation.ANSWER_INSIDE_THINK: "an answer tag inside the think block",
    Violation.EMPTY_ANSWER: "nothing in the answer",
    Violation.ANSWER_TOO_LONG: "the answer is too long",
}


def without_think(text: str, violation: Violation | None) -> str | None:
    """The response without its think block; None where there is no closed one, or a second one."""
    found = anatomy(text, violation)
    block = found.think_block
    if block is None or violation is Violation.MULTIPLE_THINK:
        return None
    return (text[: block.start] + text[block.end :].lstrip()).strip()
