"""What is formatting in an answer: the one place that says so, without knowing its task.

Invariant: time is linear in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from rg_env.base.braces import BRACE, closing_brace

_MOST_LAYERS = 6
"""`**$\\boxed{\\text{7}}.$**` has five."""
_FENCE = re.compile(r"```(?:text|plaintext|plain|txt|json|python|latex|math|markdown)?[ \t]*\r?\n", re.IGNORECASE)
# `$$` before `$`, which it begins with.
_MARKS = (
    *(("$$", "$$"), ("$", "$"), ("**", "**"), ("*", "*"), ("__", "__"), ("`", "`"), (r"\[", r"\]"), (r"\(", r"\)")),
)
_COMMAND = re.compile(r"\\(?:boxed|fbox|text|textbf|textit|textrm|mathrm|mathbf|mathit|emph|mbox)\s?(?=\{)")
_QUOTES = (('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"))
_LEAD_IN = re.compile(
    r"(?:#{2,4}|(?:\*\*)?(?:(?:so|thus|hence|therefore),? )?(?:the )?(?:final |correct |right |total )?"
    r"(?:answer|solution|result|value|total|sum|ratio|point|probability|area|volume|number|cost|price|average|mean)"
    r"(?: is| are| equals| =|:)?:?(?:\*\*)?|about|approximately|around|roughly|exactly|a total of)\s+(?=\S)",
    re.IGNORECASE,
)
_MARKED = re.compile(
    r"(?:\$([^$]{1,100})\$|\\\(([^()]{1,100})\\\)|\*\*([^*]{1,100})\*\*|\\boxed ?\{([^{}]{1,100})\})"
    r"(?= ?(?:[A-Za-z%°]|\\%|\\(?:text|mathrm)))"
)
"""A number with formatting of its own before its unit: `$5$ cm`."""
_ENVIRONMENT = re.compile(r"\\begin\{((?:align|aligned|equation|gather|gathered)\*?)\}")
_UNSEEN = re.compile("[\u200b\u200c\u200d\u2060\ufeff]")
_SPACES = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,1000}(?:\.[0-9]{0,1000})?|\.[0-9]{1,1000})")
_WITH_SEPARATORS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3}){1,300}(?:\.[0-9]{1,1000})?")
_AROUND_SIGNS = re.compile(r"\s*([][(){},;:])\s*")


def unwrapped(answer: str) -> str:
    r"""Return the answer without the formatting around it, its characters in one form; itself if nothing is left.

    Formatting is `\boxed{}`, `\text{}`, `$…$`, `\(…\)`, `\[…\]`, `**…**`, `*…*`, `__…__`, backticks, a code fence, an
    environment of one line, and a final period. No word and no number is removed: a text that gives two answers, such
    as `9 \boxed{7}`, stays as it is.

    >>> unwrapped(r"**$\boxed{7}$**."), unwrapped("```\n7\n```"), unwrapped("**7** or **9**")
    ('7', '7', '**7** or **9**')
    """
    text = in_one_form(answer).strip()
    # A bound, since each layer takes time by the length of the text.
    for _ in range(_MOST_LAYERS):
        inner = _without_layer(text).strip()
        if not inner or inner == text:
            break
        text = inner
    return text or answer


def without_separators(answer: str) -> str:
    """Return a number without thousands separators; any other text, also one with a number in it, unchanged.

    >>> without_separators("-1,234,567.5"), without_separators("1,23"), without_separators("1, 234")
    ('-1234567.5', '1,23', '1, 234')
    """
    if _WITH_SEPARATORS.fullmatch(answer):
        return answer.replace(",", "")
    return answer


def short_answer(answer: str) -> str:
    """Return the answer without formatting, quotes, and words such as `The answer is`; itself if nothing is left.

    >>> short_answer('**Answer:** "18"'), short_answer("The total is $18$ cm."), short_answer("The answer is not 18")
    ('18', '18 cm', 'not 18')
    """
    text = unquoted(answer)
    if lead_in := _LEAD_IN.match(text):
        text = unquoted(text[lead_in.end() :])
    if marked := _MARKED.match(text):
        number = next(filter(None, marked.groups()))
        text = unwrapped(number) + text[marked.end() :]
    return text


def unquoted(answer: str) -> str:
    """Return the answer without formatting and the quotation marks around it."""
    text = unwrapped(answer)
    for opening, closing in _QUOTES:
        inner = text[1:-1]
        if text[:1] == opening and text[1:].endswith(closing) and inner.strip("' ") and closing not in inner:
            return unwrapped(inner)
    return text


def in_one_form(text: str) -> str:
    """Return a text with composed characters (NFC), line feeds, and plain spaces, without characters of no width."""
    if text.isascii():
        return text.replace("\r\n", "\n")
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n"))
    return _SPACES.sub(" ", _UNSEEN.sub("", text))


def _without_layer(text: str) -> str:
    """Take the outermost layer off a text; the text itself if it has none, or if a second one follows the first."""
    fence = _FENCE.match(text)
    if fence and text.find("```", fence.end()) == len(text) - 3:
        return text[fence.end() : -3]
    # Not a mark: a dollar that LaTeX writes.
    plain = text.replace(r"\$", "  ")
    for opening, closing in _MARKS:
        inner = plain[len(opening) : -len(closing)]
        is_around = plain.startswith(opening) and plain.endswith(closing)
        if is_around and inner and opening not in inner and closing not in inner:
            return text[len(opening) : -len(closing)]
    command = _COMMAND.match(text)
    if command and closing_brace(text, command.end()) == len(text) - 1:
        return text[command.end() + 1 : -1]
    environment = _ENVIRONMENT.match(text)
    if environment:
        end = rf"\end{{{environment[1]}}}"
        inner = text[environment.end() : -len(end)]
        if text.endswith(end) and r"\\" not in inner and r"\end" not in inner:
            return inner
    # Not of an ellipsis.
    if text.endswith(".") and not text.endswith(".."):
        return text[:-1]
    return text


def last_boxed(text: str) -> str | None:
    r"""Return what the last closed `\boxed{…}` of a text holds; None if there is none.

    >>> last_boxed(r"\boxed{1}, no: $\boxed{\frac{1}{2}}$, \boxed{")
    '\\frac{1}{2}'
    """
    found = None
    opened: list[re.Match[str]] = []
    for match in BRACE.finditer(text):
        if match[0] == "}" and opened:
            opening = opened.pop()
            if opening[0] != "{":
                found = text[opening.end() : match.start()]
        elif match[0].endswith("{") and match[0] != r"\{":
            opened.append(match)
    return found


def canonical(answer: str) -> str:
    """Return a text that is equal for equal numbers, and for answers that differ in case and extra whitespace only.

    >>> canonical("1, 2 "), canonical("72.0"), canonical("1 23"), canonical("TRUE")
    ('1,2', '72', '1 23', 'true')
    """
    text = answer.strip()
    # As a fraction, so that 72.0 and 72 are equal. The pattern has no exponent, with which it could take minutes.
    if _NUMBER.fullmatch(text):
        return str(Fraction(text))
    return _AROUND_SIGNS.sub(r"\1", " ".join(text.split()).casefold())
