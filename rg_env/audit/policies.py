"""Cheap policies: ways to answer every item of a task without solving it.

Invariant: a policy sees the question, never the item's own answer. A majority policy knows the correct answers of
*other* items, as training would teach them. Not covered: policies that perform the task itself (sorting the list,
adding up the numbers of a sum). The scores of policies are measured by `rg_env.audit.run`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rg_env.scoring.baselines import CHEAP

Grid = list[list[str]]
Entry = Mapping[str, Any]
Answer = Callable[[Entry], str | None]


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
    CHEAP = "cheap"
    """What `rg_env.scoring.baselines` tries on the task, to calibrate its partial credit."""


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
    # The same role for all inhabitants is one answer, whatever their names.
    family = Family.MAJORITY if task == "knights_knaves" else Family.CHEAP
    frequent = [text for text, _ in Counter(others).most_common(_MAJORITY)]
    return [
        *(Policy(_short(text), Family.CONSTANT, _constant(text)) for text in CONSTANTS),
        *(Policy(_short(text), Family.MAJORITY, _constant(text)) for text in frequent),
        *(Policy(f"cheap answer {n + 1}", family, _cheap(task, n)) for n in range(_CHEAP if task in CHEAP else 0)),
        *(Policy(name, Family.COPY, answer) for name, answer in COPIES.items()),
        *(Policy(name, Family.EDIT, answer) for name, answer in _EDITS.items()),
    ]


# -- the same text for every item

_MAJORITY = 8
"""Number of answers of other items that are tried."""
_CHEAP = 5


def _constant(text: str) -> Answer:
    return lambda _: text


def _cheap(task: str, number: int) -> Answer:
    return lambda entry: next(itertools.islice(CHEAP[task](entry), number, None), None)


def _coloring(colors: int) -> str:
    return json.dumps({str(vertex): 1 + vertex % colors for vertex in range(12)})


CONSTANTS = (
    *("0", "1", "True", "Yes", "None", "nan", "False", "No", "", "2", "3", "4", "5", "6", "7", "8", "10", "-1"),
    *("0.0", "0.5", "1/2", "100", "0x0", "1e0", "-0", "1e9", "1e300", "inf", "-inf", "nan+nani", "nan/1", "inf-inf"),
    *("42", "24", "a", "e", "on", "off", "undetermined", "Pass", "Chi", "Peng", "infeasible", "unknown", "AM", "A"),
    *("[]", "{}", "[{}]", "[[]]", "()", "?", ".", ",", " ", "['0']", "[0]", "[1]", "[[0]]", "C", "x", "x + C", "P"),
    *("P ∨ ¬P", "(P ∨ Q)", "up", "right", "red", "white", "green", "mother", "brother", "the", "eeeeee", "C7", "B"),
    *("0 0", "1 2 3", "0 0 0 0 0 0 0 0 0", "9" * 40, "0" * 400, "a" * 400, "<answer></answer>", "</answer>", "I"),
    *("1 day", "0 days", "30 days", "50 days", "08:00", "08:00:00", "08:00:00.000", "12:00", "50 days, 12:00"),
    *("50 days, 12:00:00", "2024-01-01", "Monday", "knight", "impossible", "I don't know", "no solution"),
    *(_coloring(1), _coloring(2), _coloring(3), "\n".join([" ".join("0" * 10)] * 10)),
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


COPIES: dict[str, Answer] = {
    "the question": _of_question(lambda question: question[:4000]),
    "the question reversed": _of_question(lambda question: question[::-1][:4000]),
    "the words of the question": _of_question(lambda question: " ".join(sorted(set(question.split())))[:4000]),
    "the first line": _of_question(lambda question: question.splitlines()[0]),
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


def _filled(blank: str, sign: str) -> Answer:
    """The last block with every blank filled, everything else unchanged."""

    def answer(question: str) -> str | None:
        block = block_of(question)
        return block.replace(blank, sign) if blank in block else None

    return _of_question(answer)


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


_EDITS: dict[str, Answer] = {
    **{f"blanks filled by {sign}": _filled("_", sign) for sign in "1234Q"},
    **{f"zeros filled by {sign}": _filled("0", sign) for sign in "1234"},
    **{f"question marks filled by {sign}": _filled("❔", sign) for sign in "❌✅"},
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
    "the words": _words(", ".join),
    "the words, as a list": _words(lambda words: words),
    "the words, all but the first": _words(lambda words: words[1:]),
    "the first word as a list": _words(lambda words: words[:1]),
    "the last word as a list": _words(lambda words: words[-1:]),
    "every word by itself": _words(lambda words: [[word] for word in words]),
    "every letter by itself": _words(lambda words: [list(words[-1])]),
}
