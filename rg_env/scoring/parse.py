"""The format of a response: one think block and then one answer block, or in the lenient format an answer block.

Invariant: every text has exactly one result, found in one pass over its tags: an answer that is not empty, or one
violation. Time and memory are linear in the length of the text, whatever it contains. Everything that shows or edits
parts of a response uses the spans of this parser; nothing else interprets the tags.

`unwrapped` and `normal_form` say what is formatting in an answer, without knowing its task.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction

from rg_env.choices import ResponseFormat
from rg_env.errors import refuse
from rg_env.scoring.types import ParsedResponse, Span, Violation

_TAG = re.compile(r"</?(?:think|answer)>")
_TAG_IN_ANY_CASE = re.compile(_TAG.pattern, re.IGNORECASE | re.ASCII)
_REPEATED_OPENING = re.compile(r"\s*<think>")

_MOST_LAYERS = 4
"""`**$\\boxed{7}$**` has three."""
_FENCE = re.compile(r"```(?:text|plaintext|plain|txt|json|python|latex|math|markdown)?[ \t]*\r?\n", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,1000}(?:\.[0-9]{0,1000})?|\.[0-9]{1,1000})")
_AROUND_SIGNS = re.compile(r"\s*([][(){},;:])\s*")


def parse_response(
    text: str,
    prefilled_think: bool = False,
    max_answer_chars: int = 8192,
    format: ResponseFormat | str = ResponseFormat.STRICT,
) -> ParsedResponse:
    """Find the think block and the answer of a response, or how it violates the format.

    In the strict format, a well-formed response is `<think>…</think>` and then `<answer>…</answer>`, once each, with
    any text before, between and after. Tags are exactly these four strings: lower case, without attributes or spaces.
    If several rules are broken, the first row of this table that applies is the violation:

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
    parsed = _parse_strict(text, prefilled_think, max_answer_chars)
    if parsed.violation is None or format == ResponseFormat.STRICT:
        return parsed
    return _parse_lenient(text, prefilled_think, max_answer_chars)


def _inside_from(text: str, prefilled_think: bool) -> int | None:
    """Where the think block that the prompt opened begins, after one repeated tag; None if the prompt opened none."""
    if not prefilled_think:
        return None
    repeated = _REPEATED_OPENING.match(text)
    return repeated.end() if repeated else 0


def _parse_strict(text: str, prefilled_think: bool, max_answer_chars: int) -> ParsedResponse:
    think_from = _inside_from(text, prefilled_think)
    think_to: int | None = None
    answer_from: int | None = None
    answer_to: int | None = None
    answer_inside_think = False
    second_think = False
    second_answer = False

    for match in _TAG.finditer(text, think_from or 0):
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


def _parse_lenient(text: str, prefilled_think: bool, max_answer_chars: int) -> ParsedResponse:
    tags = [(match.group().lower(), Span(*match.span())) for match in _TAG_IN_ANY_CASE.finditer(text)]
    thinks, open_think = _blocks(tags, "think", _inside_from(text, prefilled_think))
    answers, open_answer = _blocks(tags, "answer")
    outside, _ = _blocks(_tags_outside(tags, thinks), "answer")

    answer_span = answers[-1] if answers else None
    answer = text[slice(*answer_span)].strip() if answer_span else None
    violation = None
    if len(outside) > 1:
        violation = Violation.MULTIPLE_ANSWERS
    elif answer is None:
        violation = Violation.NO_ANSWER if open_answer is None else Violation.UNCLOSED_ANSWER
    elif not answer:
        violation = Violation.EMPTY_ANSWER
    elif len(answer) > max_answer_chars:
        violation = Violation.ANSWER_TOO_LONG

    think_span = thinks[0] if thinks else None if open_think is None else Span(open_think, len(text))
    separate = len(thinks) == 1 and not (
        answer_span and thinks[0].start < answer_span.end and answer_span.start < thinks[0].end
    )
    return ParsedResponse(
        text[slice(*thinks[0])].strip() if separate else None,
        None if violation else answer,
        violation,
        think_span,
        Span(open_answer, len(text)) if answer_span is None and open_answer is not None else answer_span,
        ResponseFormat.LENIENT,
    )


def _blocks(tags: Iterable[tuple[str, Span]], name: str, start: int | None = None) -> tuple[list[Span], int | None]:
    """The insides of closed blocks: a think block from its first opening tag, an answer block from its last one.

    Args:
        start: where a block begins that was opened before the first tag.

    Returns:
        the blocks, and where the block begins that is not closed, or None.
    """
    blocks = []
    for tag, span in tags:
        if tag == f"<{name}>" and (start is None or name == "answer"):
            start = span.end
        elif tag == f"</{name}>" and start is not None:
            blocks.append(Span(start, span.start))
            start = None
    return blocks, start


def _tags_outside(tags: Iterable[tuple[str, Span]], blocks: Iterable[Span]) -> Iterator[tuple[str, Span]]:
    """The tags that are in none of the blocks. Both are in order."""
    remaining = iter(blocks)
    block = next(remaining, None)
    for tag, span in tags:
        while block and span.start > block.end:
            block = next(remaining, None)
        if not (block and block.start <= span.start < block.end):
            yield tag, span


def tag_spans(text: str, format: ResponseFormat = ResponseFormat.STRICT) -> list[Span]:
    """All think and answer tags of a text in a format, in order."""
    tag = _TAG_IN_ANY_CASE if format is ResponseFormat.LENIENT else _TAG
    return [Span(*match.span()) for match in tag.finditer(text)]


# -- answers


def unwrapped(answer: str) -> str:
    r"""The answer without `\boxed{}`, `$…$`, `**…**` or a code fence around it; the same text if there is none.

    No word and no number is removed: a text that gives two answers, such as `9 \boxed{7}`, stays as it is.

    >>> unwrapped(r"**$\boxed{7}$**"), unwrapped("```\n7\n```"), unwrapped("**7** or **9**")
    ('7', '7', '**7** or **9**')
    """
    text = answer.strip()
    for _ in range(_MOST_LAYERS):
        inner = _without_layer(text).strip()
        if not inner or inner == text:
            break
        answer = text = inner
    return answer


def _without_layer(text: str) -> str:
    """The text without its outermost layer; the text itself if it has none, or if a second one follows the first."""
    fence = _FENCE.match(text)
    if fence and text.find("```", fence.end()) == len(text) - 3:
        return text[fence.end() : -3]
    for mark in ("$$", "$", "**"):
        inner = text[len(mark) : -len(mark)]
        if text.startswith(mark) and text.endswith(mark) and inner and mark not in inner:
            return inner
    if text.startswith(r"\boxed{") and _closing_brace(text, len(r"\boxed")) == len(text) - 1:
        return text[len(r"\boxed{") : -1]
    return text


def _closing_brace(text: str, opening: int) -> int:
    """Where the brace opened at `opening` is closed; −1 if nowhere."""
    depth = 0
    for match in re.finditer(r"[{}]", text[opening:]):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return opening + match.start()
    return -1


def is_same_answer(answer: str, other: str) -> bool:
    """Compare without case and extra whitespace, or as exact numbers.

    >>> is_same_answer("1, 2", "1,2"), is_same_answer("0", "0.0"), is_same_answer("1234567890", "1234567891")
    (True, True, False)
    """
    return normal_form(answer) == normal_form(other)


def normal_form(answer: str) -> str:
    """A text that is equal for answers that are the same text but for case and extra whitespace, or the same number.

    >>> normal_form("1, 2 "), normal_form("72.0") == normal_form("72"), normal_form("1 23")
    ('1,2', True, '1 23')
    """
    text = answer.strip()
    if _NUMBER.fullmatch(text):
        return str(Fraction(text))
    return _AROUND_SIGNS.sub(r"\1", " ".join(text.split()).casefold())
