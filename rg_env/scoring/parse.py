"""The format of a response: one think block and then one answer block, or in the lenient format an answer block.

Invariant: every text has exactly one result, found in one pass over its tags: an answer that is not empty, or one
violation. Time and memory are linear in the length of the text, whatever it contains. Everything that shows or edits
parts of a response uses the spans of this parser; nothing else interprets the tags.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rg_env.base.choices import ResponseFormat
from rg_env.base.errors import refuse
from rg_env.scoring.types import ParsedResponse, Span, Violation

_TAG = re.compile(r"</?(?:think|answer)>")
_TAG_IN_ANY_CASE = re.compile(_TAG.pattern, re.IGNORECASE | re.ASCII)
_REPEATED_OPENING = re.compile(r"\s*<think>")


def parse_response(
    text: str,
    prefilled_think: bool = False,
    max_answer_chars: int = 8192,
    format: ResponseFormat | str = ResponseFormat.STRICT,
) -> ParsedResponse:
    """Find the think block and the answer of a response, or how it violates the format.

    In the strict format, a well-formed response is `<think>…</think>` and then `<answer>…</answer>`, once each, with
    any text before, between and after. Tags are exactly these four strings: lower case, without attributes or spaces.
    Otherwise the violation is the first of `rg_env.scoring.types.MEANINGS` that applies.

    The lenient format is the rule of the Atropos environment: an answer block is enough, with or without a think block,
    also inside it, with tags in any case. The last answer block counts, from the last `<answer>` before its closing
    tag, so that a think block may mention the tag; two outside of closed think blocks are `multiple_answers`.
    `no_answer`, `unclosed_answer`, `empty_answer` and `answer_too_long` are the other violations. Unlike in Atropos, an
    empty answer is a violation, and a response that is well-formed in the strict format has the same answer in both,
    even if it also contains tags in upper case.

    Args:
        text: the response, as decoded.
        prefilled_think: the chat template opened `<think>` in the prompt, so the text begins inside the think block.
            One more `<think>` at the very beginning is allowed. `no_think` cannot occur.
        max_answer_chars: the longest answer allowed, in characters, at least 1.
        format: `strict` or `lenient`.

    Raises:
        ConfigError: `format` is neither.

    Returns:
        `think` if the think block is closed and `answer` if there is no violation, both without surrounding
        whitespace, and the spans of both blocks in `text`.

    >>> parse_response("<think>2 + 2</think> So: <answer> 4 </answer>")
    ParsedResponse(think='2 + 2', answer='4', violation=None)
    >>> parse_response("The answer is 4.").violation
    <Violation.NO_THINK: 'no_think'>
    >>> parse_response("It is <ANSWER>4</ANSWER>.", format="lenient").answer
    '4'
    """
    if format not in tuple(ResponseFormat):
        refuse("format", format, "use strict or lenient")
    think_from = None
    if prefilled_think:
        repeated = _REPEATED_OPENING.match(text)
        think_from = repeated.end() if repeated else 0
    # Strict first, also in the lenient format: a well-formed response has the same answer in both.
    parsed = _parse_strict(text, think_from, max_answer_chars)
    if parsed.violation is None or format == ResponseFormat.STRICT:
        return parsed
    return _parse_lenient(text, think_from, max_answer_chars)


def _parse_strict(text: str, think_from: int | None, max_answer_chars: int) -> ParsedResponse:
    # From inside the think block if the prompt opened it, so that a repeated <think> is not seen as a second one.
    tags = _tags(text, ResponseFormat.STRICT, think_from or 0)
    if think_from is None:
        if not tags or tags[0][0] != "<think>":
            return ParsedResponse(None, None, Violation.NO_THINK)
        think_from = tags.pop(0)[1].end
    # The parts: they are known whatever the violation, so that a response can be shown with its blocks.
    names = [name for name, _ in tags]
    if "</think>" not in names:
        return ParsedResponse(None, None, Violation.UNCLOSED_THINK, Span(think_from, len(text)))
    think_end = names.index("</think>")
    think = Span(think_from, tags[think_end][1].start)
    answer, answer_span, is_closed = "", None, False
    if "<answer>" in names[think_end:]:
        opening = names.index("<answer>", think_end)
        is_closed = "</answer>" in names[opening:]
        end = len(text)
        if is_closed:
            end = tags[names.index("</answer>", opening)][1].start
        answer_span = Span(tags[opening][1].end, end)
        answer = text[slice(*answer_span)].strip()

    # The violation: the first that applies, in the order of `MEANINGS`.
    if "<think>" in names or names.count("</think>") > 1:
        violation: Violation | None = Violation.MULTIPLE_THINK
    elif think_end > 0:
        violation = Violation.ANSWER_INSIDE_THINK
    elif answer_span is None:
        violation = Violation.NO_ANSWER
    elif not is_closed:
        violation = Violation.UNCLOSED_ANSWER
    elif len(names) > len(("</think>", "<answer>", "</answer>")):
        violation = Violation.MULTIPLE_ANSWERS
    else:
        violation = _violation_inside(answer, max_answer_chars)
    return ParsedResponse(text[slice(*think)].strip(), None if violation else answer, violation, think, answer_span)


def with_opening(text: str) -> str:
    """Return a response with the `<think>` that the chat template wrote into the prompt, unless it begins with its own.

    >>> with_opening("2 + 2</think> <answer>4</answer>")
    '<think>2 + 2</think> <answer>4</answer>'
    """
    if not text or _REPEATED_OPENING.match(text):
        return text
    return f"<think>{text}"


def is_opened(text: str) -> bool:
    """Return whether a response closes a think block that the prompt must have opened.

    >>> is_opened("2 + 2</think> <answer>4</answer>"), is_opened("<think>2 + 2</think>")
    (True, False)
    """
    return "</think>" in text and "<think>" not in text


class _Answers(NamedTuple):
    """The answer blocks outside of closed think blocks: how many are closed, and whether one more is open."""

    closed: int = 0
    is_open: bool = False


def _parse_lenient(text: str, think_from: int | None, max_answer_chars: int) -> ParsedResponse:
    thinks: list[Span] = []
    answer_span: Span | None = None
    answer_from: int | None = None
    outside = before_think = _Answers()
    for name, tag in _tags(text, ResponseFormat.LENIENT):
        # What a closed think block mentions does not count: the state from before it comes back.
        if name == "<think>" and think_from is None:
            think_from, before_think = tag.end, outside
        elif name == "</think>" and think_from is not None:
            thinks.append(Span(think_from, tag.start))
            think_from, outside = None, before_think
        elif name == "<answer>":
            answer_from, outside = tag.end, _Answers(outside.closed, is_open=True)
        elif name == "</answer>":
            if outside.is_open:
                outside = _Answers(outside.closed + 1)
            if answer_from is not None:
                answer_span, answer_from = Span(answer_from, tag.start), None

    think = None
    if len(thinks) == 1:
        think = text[slice(*thinks[0])].strip()
    # The answer is inside the think block, or the other way round: the text would have both.
    if thinks and answer_span and thinks[0].start < answer_span.end and answer_span.start < thinks[0].end:
        think = None
    answer: str | None = None
    violation: Violation | None = None
    if outside.closed > 1:
        violation = Violation.MULTIPLE_ANSWERS
    elif answer_span:
        answer = text[slice(*answer_span)].strip()
        violation = _violation_inside(answer, max_answer_chars)
    elif answer_from is None:
        violation = Violation.NO_ANSWER
    else:
        violation = Violation.UNCLOSED_ANSWER
        answer_span = Span(answer_from, len(text))
    if violation:
        answer = None
    if think_from is not None:
        thinks.append(Span(think_from, len(text)))
    think_span = thinks[0] if thinks else None
    return ParsedResponse(think, answer, violation, think_span, answer_span, ResponseFormat.LENIENT)


def _violation_inside(answer: str, max_answer_chars: int) -> Violation | None:
    if not answer:
        return Violation.EMPTY_ANSWER
    return Violation.ANSWER_TOO_LONG if len(answer) > max_answer_chars else None


def _tags(text: str, format: ResponseFormat, start: int = 0) -> list[tuple[str, Span]]:
    """Return the tags of a text in a format, in order and in lower case, and where they are."""
    tag = _TAG_IN_ANY_CASE if format is ResponseFormat.LENIENT else _TAG
    return [(match[0].lower(), Span(*match.span())) for match in tag.finditer(text, start)]


def tag_spans(text: str, format: ResponseFormat = ResponseFormat.STRICT) -> list[Span]:
    """Return all think and answer tags of a text in a format, in order."""
    return [span for _, span in _tags(text, format)]


# -- answers
