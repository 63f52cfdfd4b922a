"""The format of a response: one think block, then one answer block.

Invariant: every text has exactly one result, found in one pass over its tags: an answer that is not empty, or one
violation. Time and memory are linear in the length of the text, whatever it contains. Everything that shows or edits
parts of a response uses the spans of this parser; nothing else interprets the tags.
"""

from __future__ import annotations

import re

from rg_env.scoring.types import ParsedResponse, Span, Violation

_TAG = re.compile(r"</?(?:think|answer)>")
_REPEATED_OPENING = re.compile(r"\s*<think>")


def parse_response(text: str, prefilled_think: bool = False, max_answer_chars: int = 8192) -> ParsedResponse:
    """Find the think block and the answer of a response, or how it violates the format.

    A well-formed response is `<think>…</think>` and then `<answer>…</answer>`, once each, with any text before, between
    and after. Tags are exactly these four strings: lower case, without attributes or spaces. If several rules are
    broken, the first row of this table that applies is the violation:

    | violation             | applies when                                                                            |
    |-----------------------|-----------------------------------------------------------------------------------------|
    | `no_think`            | the first tag of the response is not `<think>`, or there is no tag                      |
    | `unclosed_think`      | no `</think>` follows                                                                   |
    | `multiple_think`      | there is a second `<think>` or a second `</think>`, anywhere                            |
    | `answer_inside_think` | `<answer>` or `</answer>` is inside the think block, with or without an answer after it |
    | `no_answer`           | no `<answer>` follows the think block                                                   |
    | `unclosed_answer`     | no `</answer>` follows that `<answer>`                                                  |
    | `multiple_answers`    | after the think block there is a second `<answer>` or a second `</answer>`              |
    | `empty_answer`        | nothing but whitespace between the answer tags                                          |
    | `answer_too_long`     | the answer, without whitespace around it, has more than `max_answer_chars` characters   |

    Args:
        text: the response, as decoded.
        prefilled_think: the chat template opened `<think>` in the prompt, so the text begins inside the think block.
            One more `<think>` at the very beginning is allowed. `no_think` cannot occur.
        max_answer_chars: the longest answer allowed, in characters, at least 1.

    Returns:
        `think` if the think block is closed and `answer` if there is no violation, both without surrounding
        whitespace, and the spans of both blocks in `text`.

    >>> parse_response("<think>2 + 2</think> So: <answer> 4 </answer>")
    ParsedResponse(think='2 + 2', answer='4', violation=None)
    >>> parse_response("The answer is 4.").violation
    <Violation.NO_THINK: 'no_think'>
    """
    start = 0
    think_from = 0 if prefilled_think else None
    if prefilled_think and (repeated := _REPEATED_OPENING.match(text)):
        start = think_from = repeated.end()

    think_to: int | None = None
    answer_from: int | None = None
    answer_to: int | None = None
    answer_inside_think = False
    second_think = False
    second_answer = False

    for match in _TAG.finditer(text, start):
        tag = match.group()
        if think_from is None:
            if tag != "<think>":
                return ParsedResponse(None, None, Violation.NO_THINK)
            think_from = match.end()
        elif tag == "<think>":
            second_think = True
        elif tag == "</think>":
            if think_to is None:
                think_to = match.start()
            else:
                second_think = True
        elif think_to is None:
            answer_inside_think = True
        elif tag == "<answer>":
            if answer_from is None:
                answer_from = match.end()
            else:
                second_answer = True
        elif answer_from is not None and answer_to is None:
            answer_to = match.start()
        else:  # one </answer> too many: this response has two, or no <answer> before it
            second_answer = True

    if think_from is None:
        return ParsedResponse(None, None, Violation.NO_THINK)
    if think_to is None:
        return ParsedResponse(None, None, Violation.UNCLOSED_THINK, Span(think_from, len(text)))

    think = text[think_from:think_to].strip()
    answer = None if answer_from is None or answer_to is None else text[answer_from:answer_to].strip()
    violation = None
    if second_think:
        violation = Violation.MULTIPLE_THINK
    elif answer_inside_think:
        violation = Violation.ANSWER_INSIDE_THINK
    elif answer_from is None:
        violation = Violation.NO_ANSWER
    elif answer is None:
        violation = Violation.UNCLOSED_ANSWER
    elif second_answer:
        violation = Violation.MULTIPLE_ANSWERS
    elif not answer:
        violation = Violation.EMPTY_ANSWER
    elif len(answer) > max_answer_chars:
        violation = Violation.ANSWER_TOO_LONG
    return ParsedResponse(
        think,
        None if violation else answer,
        violation,
        Span(think_from, think_to),
        None if answer_from is None else Span(answer_from, len(text) if answer_to is None else answer_to),
    )


def tag_spans(text: str) -> list[Span]:
    """All think and answer tags of a text, in order."""
    return [Span(*match.span()) for match in _TAG.finditer(text)]


def violation_spans(text: str, parsed: ParsedResponse) -> list[Span]:
    """The places that break the format, in order: surplus tags, or the position at which a tag is missing.

    Args:
        text: a response.
        parsed: from `parse_response(text)`.

    Returns:
        At least one span if there is a violation, else none.

    >>> text = "<think></think><answer>4</answer><answer>5"
    >>> [text[start:end] for start, end in violation_spans(text, parse_response(text))]
    ['<answer>']
    """
    tags = tag_spans(text)
    end = Span(len(text), len(text))
    think, answer = parsed.think_span or end, parsed.answer_span or end
    after_think = [tag for tag in tags if tag.start > think.end]
    match parsed.violation:
        case None:
            return []
        case Violation.NO_THINK:
            return tags[:1] or [Span(0, 0)]
        case Violation.UNCLOSED_THINK:
            return [*(tag for tag in tags if tag.end == think.start), end]
        case Violation.MULTIPLE_THINK:
            return [tag for tag in tags if _is_think(text, tag) and not _delimits(tag, think)]
        case Violation.ANSWER_INSIDE_THINK:
            return [tag for tag in tags if tag.start < think.end and not _is_think(text, tag)]
        case Violation.NO_ANSWER:
            return after_think or [end]
        case Violation.UNCLOSED_ANSWER:
            return [*(tag for tag in tags if tag.end == answer.start), end]
        case Violation.MULTIPLE_ANSWERS:
            return [tag for tag in after_think if not _delimits(tag, answer)]
        case Violation.EMPTY_ANSWER | Violation.ANSWER_TOO_LONG:
            return [answer]


def _is_think(text: str, tag: Span) -> bool:
    return text.startswith(("<think>", "</think>"), tag.start)


def _delimits(tag: Span, block: Span) -> bool:
    return tag.end == block.start or tag.start == block.end
