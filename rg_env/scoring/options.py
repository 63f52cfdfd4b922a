"""Options of a question and the one that an answer names: by its letter, its text, or both.

Invariant: an answer that names two options, or a letter with the text of another one, names none.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence

from rg_env.scoring.formatting import canonical, short_answer, unquoted
from rg_env.scoring.numbers import ROUNDING, read_quantity, same_quantity
from rg_env.tasks.question_options import read_lines, read_marked

_MARK = re.compile(r"(?<![^\s(])\(?([A-Za-z])[).:](?=\s|\S)\s*")
_LATEX_MARK = re.compile(
    r"\(?\\(?:text|textbf|textrm|mathrm|mathbf) ?\{ ?\(?([A-Z])(?:\)(?:\\? )?\}| ?\}\))(?:\\ |[\s~])*"
)
r"""As in `$\textbf{(A) }1 \qquad \textbf{(B) }2$` and `(\mathrm{A}) 1`."""
_LATEX_SPACE = re.compile(r"\\q?quad(?![A-Za-z])")
_ASCII = {0xFF01 + number: 0x21 + number for number in range(94)} | {ord("。"): ".", ord("、"): "."}
"""Signs of full width, as in `（Ｂ）`, and what stands behind letters in Chinese."""
_LEAD_IN = (
    r"(?:(?:so|thus|hence|therefore),? )?"
    r"(?:(?:the )?(?:correct |final |best )?(?:answer|option|choice)(?: is)?:? ?){0,2}"
)
_LETTER = re.compile(rf"{_LEAD_IN}[(\[]?([A-Za-z])[)\]]?[.:)]?", re.IGNORECASE)
_LETTER_AND_TEXT = re.compile(
    rf"{_LEAD_IN}(?:\(([A-Za-z])\)|([A-Za-z])(?:[).:]| [-\u2013\u2014] ))\s*(\S.*)"
    rf"|{_LEAD_IN}([A-Za-z]) \((.+)\)",
    re.IGNORECASE | re.DOTALL,
)


def options_of(question: str, listed: object) -> dict[str, str]:
    """Return the options of a question by letter; empty if it has none.

    Args:
        question: its text, which lists them as `A) …`, `(A) …`, `A. …` or `A: …` if no column does.
        listed: the column of options: a list, with or without letters, a text that lists them, or Hugging Face's
            `{"label": […], "text": […]}`.
    """
    if isinstance(listed, Mapping):
        labels, texts = listed.get("label"), listed.get("text")
        if isinstance(labels, Sequence) and isinstance(texts, Sequence):
            return {str(label).upper(): str(text) for label, text in zip(labels, texts, strict=False)}
        return {str(label).upper(): str(text) for label, text in listed.items()}
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        found = _read_list(" ".join(map(str, listed)))
        if len(found) == len(listed):
            return found
        return dict(zip(string.ascii_uppercase, map(str, listed), strict=False))
    return _read_list(str(listed or "")) or _read_list(question)


def _read_list(text: str) -> dict[str, str]:
    """Return what a text lists by letter. Lines that begin with the letters decide alone, where there are such: other
    letters, as in `C) Both B and A.`, are part of an option."""
    text = text.translate(_ASCII)
    plain = _LATEX_MARK.sub(r" (\1) ", text)
    if plain == text:
        return _read_marks(text)
    listed = _read_marks(_LATEX_SPACE.sub(" ", plain))
    return {letter: _without_ends(option) for letter, option in listed.items()}


def _without_ends(option: str) -> str:
    """Return an option without the end of a line of LaTeX, and without a dollar that opens or closes all options."""
    option = option.rstrip("\\ \n")
    if option.replace(r"\$", "").count("$") == 1:
        option = option.removeprefix("$").removesuffix("$")
    return option.strip().rstrip("\\ \n")


def _read_marks(text: str) -> dict[str, str]:
    lines = read_lines(text)
    # A talk of A and B may come before the options, which stand in one line.
    behind = [text, *lines.values()][-1]
    listed = read_marked(behind, _MARK.finditer(behind))
    return listed if len(listed) > len(lines) else lines


def chosen(answer: str, options: Mapping[str, str]) -> str | None:
    """Return the letter of the option that an answer names; None if it names none, or more than one.

    >>> options = {"A": "1/3/1937", "B": "1/4/1937"}
    >>> chosen("(b)", options), chosen("**B.** 1/4/1937", options), chosen("1/4/1937", options), chosen("A, B", options)
    ('B', 'B', 'B', None)
    """
    text = unquoted(answer.translate(_ASCII))
    if letter := _LETTER.fullmatch(text.replace("**", "")):
        named = letter[1].upper()
        # Another letter may be the text of an option: H, O, N.
        if not options or named in options:
            return named
        text = letter[1]
    if both := _LETTER_AND_TEXT.fullmatch(text.replace("**", "")):
        named = (both[1] or both[2] or both[4]).upper()
        # Both must mean the same option.
        if named in options and _is_same_text(both[3] or both[5], options[named]):
            return named
    # An option may itself begin with such words as `The answer is`.
    for form in (text, short_answer(text)):
        named_by_text = [letter for letter, option in options.items() if _is_same_text(form, option)]
        if len(named_by_text) == 1:
            return named_by_text[0]
    return None


def _is_same_text(one: str, other: str) -> bool:
    one, other = (unquoted(text.translate(_ASCII)) for text in (one, other))
    if canonical(one) == canonical(other):
        return True
    number, other_number = read_quantity(one), read_quantity(other)
    return number is not None and other_number is not None and same_quantity(number, other_number, ROUNDING)
