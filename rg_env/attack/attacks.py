"""Answers that a policy might give instead of solving: texts that a scorer may reward for nothing or raise on.

Invariant: an attack sees the question and the right answers of *other* items, as training would teach them, never the
item's own. No text runs anything or takes long, whatever reads it (`rg_env.attack.probes` finds scorers that would run
one that does). Not covered: policies that perform the task itself, such as adding up a sum.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Grid = list[list[str]]


@dataclass(frozen=True, slots=True)
class Attack:
    """A way to answer: `answer` makes a text of a question, or None."""

    name: str
    answer: Callable[[str], str | None]


def attacks(others: Sequence[str], junk: Sequence[str] = ()) -> list[Attack]:
    """Every attack on a task.

    Args:
        others: right answers of items that are not attacked.
        junk: further texts, which come first.
    """
    frequent = [text for text, _ in Counter(others).most_common(5)]
    distinct = list(dict.fromkeys(others))
    # All right answers of the task in one text, for scorers that look for the answer in what they get.
    joined: list[str] = []
    if len(distinct) > 1:
        joined = [sign.join(distinct)[:8000] for sign in (" ", ", ", "\n", " or ")]
    shapes = [make(length) for make in _SHAPES for length in _LENGTHS]
    texts = dict.fromkeys((*junk, *frequent, *CONSTANTS, *joined, *shapes, *_MALFORMED))
    result = [Attack(name, answer) for name, answer in POLICIES.items()]
    result += [_constant(text) for text in texts]
    return result


def _constant(text: str) -> Attack:
    """Make the attack that answers every question with the same text."""
    shown = " ".join(text.split()) or repr(text)
    name = f"`{shown}`"
    if len(shown) > 30:
        name = f"`{shown[:29]}…` ({len(text)} characters)"
    return Attack(name, lambda _: text)


_MALFORMED = (
    *("word", "{", '"', "\\", "null", "[null]", '{"": ""}', '{"a": {"b": null}}', '[["a"]]', "1/0", "--1", "0x", "٣"),
    *("1e400", "NaN", "1j", ")(", "P ∧", "A-", "99/99/9999", "2024-02-30", "½", "\u202e1", "%s%n", "a\u0300"),
)


# -- shapes: length → a text of about that length


def _nest(opening: str, closing: str, length: int) -> str:
    """Return a text nested as deep as the length allows."""
    depth = length // len(opening + closing)
    return opening * depth + closing * depth


def _unnamed_objects(length: int) -> str:
    return _nest('{"":', "}", length - 2).replace(":}", ":{}}", 1)


def _named_objects(length: int) -> str:
    return _nest('{"a":', "}", length - 2).replace(":}", ":{}}", 1)


def _lists(length: int) -> str:
    return _nest("[", "]", length)


def _brackets(length: int) -> str:
    return _nest("(", ")", length - 1).replace("()", "(1)", 1)


def _many_keys(length: int) -> str:
    return json.dumps({str(number): 0 for number in range(length // 10)})


def _many_zeros(length: int) -> str:
    return json.dumps([0] * (length // 3))


def _emoji(length: int) -> str:
    return json.dumps("😀" * (length - 2), ensure_ascii=False)


def _digits(length: int) -> str:
    return "9" * length


def _many_words(length: int) -> str:
    return "a " * (length // 2)


_SHAPES: tuple[Callable[[int], str], ...] = (
    _unnamed_objects,
    _named_objects,
    _lists,
    _brackets,
    _many_keys,
    _many_zeros,
    _emoji,
    _digits,
    _many_words,
)
_LENGTHS = (60, 250, 1000, 2000, 4000, 8000)

CONSTANTS = (
    *("0", "1", "True", "Yes", "None", "nan", "False", "No", "", "2", "3", "4", "5", "6", "7", "8", "9", "10", "-1"),
    *("0.5", "100", "inf", "a", "A", "on", "unknown", "impossible", "infeasible", "[]", "{}", "[[]]", "()", "[0]"),
    *("x", "?", " ", "the", "[[0, 0], [0, 0]]", "</answer>", "I don't know", "Yes No", "True False", "A B C D E"),
    *("0123456789" * 10, " ".join(map(str, range(200))), " ".join("abcdefghijklmnopqrstuvwxyz")),
)


# -- policies


def numbers_of(question: str) -> list[float]:
    """Return the numbers of the last line that has any."""
    for line in reversed(question.splitlines()):
        if numbers := re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", line):
            return [float(number) for number in numbers]
    return []


def block_of(question: str) -> str:
    """Return the last lines of the question without a word of three letters: a grid, a board, a list of numbers."""
    # From the end upward: questions have their grid below the rules and the example.
    block: list[str] = []
    for line in reversed(question.rstrip().splitlines()):
        if not re.search(r"[A-Za-z]{3}", line):
            block.append(line)
        elif any(line.strip() for line in block):
            break
        else:
            block.clear()
    return "\n".join(reversed(block)).strip("\n")


def after_colon(question: str) -> str:
    """Return the text behind the last colon, without a period at its end."""
    return question.rpartition(":")[2].strip().rstrip(".?")


def words_of(question: str) -> list[str]:
    """Return the list in the last brackets or, without any, after the last colon."""
    lists = re.findall(r"\[([^\[\]]+)\]", question)
    text = lists[-1] if lists else after_colon(question)
    return [word.strip(" '\".?") for word in text.split(",")]


# Each of the next four makes a policy: question → answer, or None where the question does not have what it looks for.


def _number(choose: Callable[[list[float]], float]) -> Callable[[str], str | None]:
    def answer(question: str) -> str | None:
        numbers = numbers_of(question)
        if not numbers:
            return None
        return f"{choose(numbers):.10g}"

    return answer


def _grid(edit: Callable[[Grid], Iterable[Iterable[str]]]) -> Callable[[str], str | None]:
    def answer(question: str) -> str | None:
        grid = []
        for line in block_of(question).splitlines():
            if cells := line.split():
                grid.append(cells)
        # No grid, or lines of several lengths, which are something else.
        if len({len(row) for row in grid}) != 1:
            return None
        return "\n".join(" ".join(row) for row in edit(grid))

    return answer


def _words(edit: Callable[[list[str]], list[str]]) -> Callable[[str], str | None]:
    def answer(question: str) -> str | None:
        return json.dumps(edit(words_of(question)), ensure_ascii=False)

    return answer


def _last(pattern: str) -> Callable[[str], str | None]:
    def answer(question: str) -> str | None:
        return next(reversed(re.findall(pattern, question)), None)

    return answer


def _beginning(question: str) -> str:
    return question[:8000]


def _last_line(question: str) -> str:
    lines = question.splitlines()
    return lines[-1] if lines else ""


def _fill_blanks(question: str) -> str:
    return block_of(question).replace("_", "1")


def _zeros(grid: Grid) -> Grid:
    return [["0"] * len(row) for row in grid]


def _transpose(grid: Grid) -> Iterable[Iterable[str]]:
    return zip(*grid, strict=True)


def _turn_right(grid: Grid) -> Iterable[Iterable[str]]:
    return zip(*grid[::-1], strict=True)


def _turn_over(grid: Grid) -> Grid:
    return [row[::-1] for row in grid[::-1]]


def _join_rows(grid: Grid) -> Grid:
    return [list(itertools.chain.from_iterable(grid))]


POLICIES: dict[str, Callable[[str], str | None]] = {
    "the question": _beginning,
    "the last line": _last_line,
    "the last block": block_of,
    "what follows the last colon": after_colon,
    "what is in the last quotes": _last(r"[\"']([^\"']+)[\"']"),
    "what is in the last brackets": _last(r"\[[^\[\]]+\]"),
    "the last word": _last(r"\w+"),
    "the first number": _number(lambda numbers: numbers[0]),
    "the last number": _number(lambda numbers: numbers[-1]),
    "the last number + 1": _number(lambda numbers: numbers[-1] + 1),
    "the last number - 1": _number(lambda numbers: numbers[-1] - 1),
    "the largest number": _number(max),
    "the smallest number": _number(min),
    "how many numbers": _number(len),
    "the sum of the numbers": _number(sum),
    "the blanks filled by 1": _fill_blanks,
    "the grid, all 0": _grid(_zeros),
    "the grid, transposed": _grid(_transpose),
    "the grid, turned right": _grid(_turn_right),
    "the grid, turned over": _grid(_turn_over),
    "the grid, row by row": _grid(_join_rows),
    "the words, as a list": _words(lambda words: words),
    "the words, backward": _words(lambda words: words[::-1]),
    "the words, sorted": _words(sorted),
}
