"""Cheap policies: ways to answer every item of a task without solving it.

Invariant: a policy sees the question, never the item's own answer. A majority policy knows the correct answers of
*other* items, as training would teach them. Not covered: policies that perform the task itself (sorting the list,
adding up the numbers of a sum). What policies earn is measured by `rg_env.audit.free_reward`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rg_env.audit.random_plans import PLANS, Answer, constant

Grid = list[list[str]]


class Family(StrEnum):
    """What a policy uses."""

    CONSTANT = "constant"
    """The same text for every item."""
    MAJORITY = "majority"
    """The most frequent correct answers of other items."""
    COPY = "copy"
    """A part of the question, or a number near one of its numbers."""
    EDIT = "edit"
    """A part of the question with a fixed local change: blanks filled, a grid turned, one step done."""
    PLAN = "plan"
    """Random moves, or every move in turn."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy. `answer` returns None if the policy does not apply to the question."""

    name: str
    family: Family
    answer: Answer


def policies_for(task: str, others: Sequence[str]) -> list[Policy]:
    """The policies to try on a task.

    Args:
        others: correct answers of items on which the policies are not measured.
    """
    frequent = [text for text, _ in Counter(others).most_common(_MAJORITY)]
    return [
        *(Policy(_short(text), Family.CONSTANT, constant(text)) for text in _CONSTANTS),
        *(Policy(_short(text), Family.MAJORITY, constant(text)) for text in frequent),
        *(Policy(name, Family.MAJORITY, answer) for name, answer in _ROLES.items()),
        *(Policy(name, Family.COPY, answer) for name, answer in _COPIES.items()),
        *(Policy(name, Family.EDIT, answer) for name, answer in _EDITS.items()),
        *(Policy(name, Family.PLAN, answer) for name, answer in PLANS.get(task, {}).items()),
    ]


# -- the same text for every item

_MAJORITY = 8
"""Number of answers of other items that are tried."""


def _coloring(colors: int) -> str:
    return json.dumps({str(vertex): 1 + vertex % colors for vertex in range(12)})


_ROLES: dict[str, Answer] = {
    "all are of the first kind": lambda entry: everybody(entry["question"], 0),
    "all are of the second kind": lambda entry: everybody(entry["question"], 1),
    "only the first is of the first kind": lambda entry: everybody(entry["question"], 2),
}
"""knights_knaves: the same roles for every item, whatever the names."""

_CONSTANTS = (
    *("", "0", "1", "2", "3", "4", "5", "6", "7", "8", "10", "-1", "0.0", "0.5", "1/2", "100", "0x0", "1e0", "a", "e"),
    *("True", "False", "Yes", "No", "on", "off", "undetermined", "Pass", "Chi", "Peng", "None", "infeasible", "A", "B"),
    *("[]", "{}", "[{}]", "[[]]", "['0']", "[0]", "[1]", "C", "x", "x + C", "P", "P ∨ ¬P", "(P ∨ Q)", "up", "right"),
    *("red", "white", "green", "mother", "brother", "the", "eeeeee", "C7", "0 0 0 0 0 0 0 0 0"),
    *("1 day", "0 days", "30 days", "50 days", "08:00", "08:00:00", "08:00:00.000", "50 days, 12:00"),
    *("50 days, 12:00:00", _coloring(1), _coloring(2), _coloring(3)),
    *(json.dumps([[0] * size] * size) for size in (10, 20)),
)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return f"`{text if len(text) <= 24 else f'{text[:23]}…'}`"


# -- parts of the question


def _of_question(read: Callable[[str], str | None]) -> Answer:
    return lambda entry: read(entry["question"].strip())


def _last_of(pattern: str) -> Answer:
    """The last match of the pattern in the question."""
    return _of_question(lambda question: next(reversed(re.findall(pattern, question)), None))


def _after_colon(question: str) -> str:
    return question.rpartition(":")[2].strip()


def _near(choose: Callable[[list[float]], float], plus: int = 0) -> Answer:
    """One of the numbers in the last line that has any, plus something."""

    def read(question: str) -> str | None:
        for line in reversed(question.splitlines()):
            if found := re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", line):
                return f"{choose([float(number) for number in found]) + plus:.10g}"
        return None

    return _of_question(read)


def block_of(question: str) -> str:
    """The last lines of the question without a word of three letters: a grid, a board, a list of numbers."""
    block: list[str] = []
    for line in reversed(question.rstrip().splitlines()):
        if not re.search(r"[A-Za-z]{3}", line):
            block.append(line)
        elif any(line.strip() for line in block):
            break
        else:
            block.clear()
    return "\n".join(reversed(block)).strip("\n")


_COPIES: dict[str, Answer] = {
    "the question": _of_question(lambda question: question[:4000]),
    "the last line": _of_question(lambda question: question.splitlines()[-1]),
    "the last paragraph": _of_question(lambda question: question.split("\n\n")[-1]),
    "the last block": _of_question(block_of),
    "after the last colon": _of_question(_after_colon),
    "after the last colon, without its period": _of_question(lambda question: _after_colon(question).rstrip(".?")),
    "in the last quotes": _last_of(r"[\"']([^\"']+)[\"']"),
    "in the last brackets": _last_of(r"\[[^\[\]]+\]"),
    "the last word": _last_of(r"\w+"),
    "the last name": _last_of(r"(?<![.?!\n] )\b[A-Z][a-z]+\b"),
    "the last formula": _last_of(r"\d\. (.+)"),
    "the first number": _near(lambda numbers: numbers[0]),
    "the last number": _near(lambda numbers: numbers[-1]),
    "the last number + 1": _near(lambda numbers: numbers[-1], 1),
    "the last number - 1": _near(lambda numbers: numbers[-1], -1),
    "the largest number": _near(max),
    "the smallest number": _near(min),
    "how many numbers": _near(len),
}


# -- parts of the question with a local change


def filled(blank: str, fill: Callable[[Sequence[str], int], str | None]) -> Answer:
    """The last block with its blanks filled, everything else unchanged.

    Args:
        blank: the symbol of an empty cell.
        fill: (cells of the row, number of the blank within the row) → what to write; None: nothing.
    """

    def answer(question: str) -> str | None:
        block = block_of(question)
        return "\n".join(_fill_row(row, blank, fill) for row in block.splitlines()) if blank in block else None

    return _of_question(answer)


def _fill_row(row: str, blank: str, fill: Callable[[Sequence[str], int], str | None]) -> str:
    cells = row.split() if " " in row else list(row)
    pieces = row.split(blank)
    return pieces[0] + "".join((fill(cells, number) or blank) + piece for number, piece in enumerate(pieces[1:]))


def missing_digit(cells: Sequence[str], number: int) -> str:
    """The digits that the row lacks, in order."""
    digits = [cell for cell in cells if cell.isdigit() or cell == "_"]
    missing = [str(digit) for digit in range(1, len(digits) + 1) if str(digit) not in digits]
    return missing[number] if number < len(missing) else "1"


def _always(sign: str) -> Callable[[Sequence[str], int], str]:
    return lambda _, __: sign


def _grid(edit: Callable[[Grid], Iterable[Iterable[str]]]) -> Answer:
    """An edit of the last block, taken as a grid."""

    def answer(question: str) -> str | None:
        grid = [row.split() for row in block_of(question).splitlines() if row.split()]
        if len({len(row) for row in grid}) != 1:
            return None
        return "\n".join(" ".join(row) for row in edit(grid))

    return _of_question(answer)


def _text(edit: Callable[[str], str]) -> Answer:
    """An edit of what follows the last colon."""
    return _of_question(lambda question: edit(_after_colon(question)))


def _words(edit: Callable[[list[str]], object]) -> Answer:
    """An edit of the list after the last colon or in the last brackets."""

    def answer(question: str) -> str:
        found = re.findall(r"\[([^\[\]]+)\]", question)
        words = [word.strip(" '\".?") for word in (found[-1] if found else _after_colon(question)).split(",")]
        edited = edit(words)
        return edited if isinstance(edited, str) else json.dumps(edited, ensure_ascii=False)

    return _of_question(answer)


def divided_once(question: str) -> str | None:
    """`2 × 167` for 334."""
    number = int(found[0]) if (found := re.findall(r"\d+", question)) else 0
    factor = next((factor for factor in (2, 3, 5) if number > factor and number % factor == 0), None)
    return f"{factor} × {number // factor}" if factor else None


def everybody(question: str, kind: int) -> str | None:
    """The role number `kind` for all inhabitants; 2: the first role for the first inhabitant only."""
    form = re.search(r"like: \"(.+)\"\)", question)
    if form is None:
        return None
    roles = re.findall(r"(\w+)/(\w+)", form[1])
    chosen = iter(pair[min(number, 1) if kind == 2 else kind] for number, pair in enumerate(roles))
    return re.sub(r"\w+/\w+", lambda _: next(chosen), form[1])


def letter_by_letter(question: str) -> str | None:
    """word_ladder: replace one letter at a time, whether the results are words or not."""
    found = re.findall(r"'([A-Z]+)'", question)[:2]
    if len(found) != 2 or len(found[0]) != len(found[1]):
        return None
    start, goal = found
    return ",".join(dict.fromkeys(goal[:place] + start[place:] for place in range(len(goal) + 1)))


_EDITS: dict[str, Answer] = {
    "blanks filled by missing digits": filled("_", missing_digit),
    **{f"blanks filled by {sign}": filled("_", _always(sign)) for sign in "1234Q"},
    **{f"zeros filled by {sign}": filled("0", _always(sign)) for sign in "1234"},
    **{f"question marks filled by {sign}": filled("❔", _always(sign)) for sign in "❌✅"},
    "the grid, all 0": _grid(lambda grid: [["0"] * len(row) for row in grid]),
    "the grid, all its most frequent": _grid(
        lambda grid: [[Counter([cell for row in grid for cell in row]).most_common(1)[0][0]] * len(row) for row in grid]
    ),
    "the grid, transposed": _grid(lambda grid: zip(*grid, strict=True)),
    "the grid, turned right": _grid(lambda grid: zip(*grid[::-1], strict=True)),
    "the grid, turned left": _grid(lambda grid: list(zip(*grid, strict=True))[::-1]),
    "the grid, turned over": _grid(lambda grid: [row[::-1] for row in grid[::-1]]),
    "the grid, mirrored": _grid(lambda grid: [row[::-1] for row in grid]),
    "the grid, upside down": _grid(lambda grid: grid[::-1]),
    "the grid, row by row": _grid(lambda grid: [[cell for row in grid for cell in row]]),
    "the grid, shifted right": _grid(lambda grid: [["0", *row[:-1]] for row in grid]),
    "the grid, every second row and column": _grid(lambda grid: [row[::2] for row in grid[::2]]),
    "the text, without spaces and commas": _text(lambda text: re.sub(r"[\s,.]", "", text)),
    "the text, first letters of words exchanged": _text(lambda text: re.sub(r"\b(\w)(\w)", r"\2\1", text)),
    "the text, last two words exchanged": _text(lambda text: re.sub(r"(\w+) (\w+)(\W*)$", r"\2 \1\3", text)),
    "the words": _words(", ".join),
    "the words, as a list": _words(lambda words: words),
    "the words, first and last exchanged": _words(lambda words: ", ".join([words[-1], *words[1:-1], words[0]])),
    "the words, all but the first": _words(lambda words: words[1:]),
    "the first word as a list": _words(lambda words: words[:1]),
    "the last word as a list": _words(lambda words: words[-1:]),
    "every word by itself": _words(lambda words: [[word] for word in words]),
    "every letter by itself": _words(lambda words: [list(words[-1])]),
    "divided once by 2, 3 or 5": _of_question(divided_once),
    "letter by letter": _of_question(letter_by_letter),
}
