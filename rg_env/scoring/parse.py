"""The format of a response: one think block, then one answer block.

Invariant: every text has exactly one reading, found in one pass over its tags: either an answer that is not empty, or
one violation. Time and memory are linear in the length of the text, whatever it holds.
"""

from __future__ import annotations

import re

from rg_env.scoring.types import ParsedResponse, Violation

_TAG = re.compile(r"</?(?:think|answer)>")
_REPEATED_OPENING = re.compile(r"\s*<think>")


def parse_response(text: str, prefilled_think: bool = False, max_answer_chars: int = 8192) -> ParsedResponse:
    """Take a response apart, or say how it breaks the format.

    A good response is `<think>…</think>` and then `<answer>…</answer>`, once each, with any prose before, between and
    after. Tags are these four texts exactly: lower case, without attributes or spaces; anything else is prose. Where
    several rules are broken, the first line of this table that holds is the violation:

    | violation             | holds when                                                                              |
    |-----------------------|-----------------------------------------------------------------------------------------|
    | `no_think`            | the first tag of the response is not `<think>` (or there is no tag)                     |
    | `unclosed_think`      | no `</think>` follows                                                                   |
    | `multiple_think`      | there is a second `<think>` or a second `</think>`, anywhere                            |
    | `answer_inside_think` | `<answer>` or `</answer>` stands inside the think block (an answer after it or not)     |
    | `no_answer`           | no `<answer>` follows the think block                                                   |
    | `unclosed_answer`     | no `</answer>` follows that `<answer>`                                                  |
    | `multiple_answers`    | after the think block there is a second `<answer>` or a second `</answer>`              |
    | `empty_answer`        | nothing but whitespace between the answer tags                                          |
    | `answer_too_long`     | the answer, without whitespace around it, has more than `max_answer_chars` characters   |

    Args:
        text: the response, as decoded.
        prefilled_think: the chat template opened `<think>` in the prompt, so that the text begins inside the think
            block. A model that opens it again, first thing, is forgiven once. `no_think` cannot occur then.
        max_answer_chars: the longest answer that is let through, in characters, at least 1.

    Returns:
        `think` is the text of the think block where it has an end, `answer` the answer where there is no violation,
        both without the whitespace around them.

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
        else:  # an </answer> too many: whatever follows, this response will hold two, or lack its <answer>
            second_answer = True

    if think_from is None:
        return ParsedResponse(None, None, Violation.NO_THINK)
    if think_to is None:
        return ParsedResponse(None, None, Violation.UNCLOSED_THINK)

    think = text[think_from:think_to].strip()
    if second_think:
        return ParsedResponse(think, None, Violation.MULTIPLE_THINK)
    if answer_inside_think:
        return ParsedResponse(think, None, Violation.ANSWER_INSIDE_THINK)
    if answer_from is None:
        return ParsedResponse(think, None, Violation.NO_ANSWER)
    if answer_to is None:
        return ParsedResponse(think, None, Violation.UNCLOSED_ANSWER)
    if second_answer:
        return ParsedResponse(think, None, Violation.MULTIPLE_ANSWERS)

    answer = text[answer_from:answer_to].strip()
    if not answer:
        return ParsedResponse(think, None, Violation.EMPTY_ANSWER)
    if len(answer) > max_answer_chars:
        return ParsedResponse(think, None, Violation.ANSWER_TOO_LONG)
    return ParsedResponse(think, answer, None)
