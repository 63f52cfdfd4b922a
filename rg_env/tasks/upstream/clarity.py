"""Items as they are drawn from reasoning-gym 0.1.25: a question without a clear answer is not an item (`correct`).

Each function says why a question has no clear answer, and "" for one that has. evidence/upstream-findings.md has
examples and frequencies.
"""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from fractions import Fraction
from itertools import islice, permutations
from typing import Any

from rg_env.tasks.upstream import UnusableItemError
from rg_env.tasks.upstream.oracles import CORRECTIONS, read_interval, replace_fields, validity_of

Entry = Mapping[str, Any]
Square = tuple[int, int]
_POWER = re.compile(r"Compute (-?)[\d.]+\^-?(\d+)")
_LETTER = re.compile(r'letter "(.)" appear in the text: "(.*)"', re.DOTALL)
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def correct(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the entry with the correct answer; the entry itself if the task's stored answers are correct.

    Raises:
        UnusableItemError: the question has no clear answer.
    """
    task = entry["metadata"]["source_dataset"]
    # First of all: an answer without a clear question is not worth correcting.
    if task in _UNCLEAR and (reason := _UNCLEAR[task](entry)):
        raise UnusableItemError(reason)
    if task not in CORRECTIONS:
        return entry
    return replace_fields(entry, CORRECTIONS[task](entry))


def _colleagues(entry: Entry) -> str:
    question = entry["question"]
    if "Matilda" in question:
        return "it is not clear whether Matilda is in one circle of colleagues or in both"
    if "sisters" in question and f"does {question.split()[0]}'s" not in question:
        return "it asks about the brother of somebody who is not introduced"
    return ""


def _whole(entry: Entry) -> str:
    expression = entry["metadata"]["expression"]
    if "/" not in expression or _is_whole(expression):
        return ""
    return "it rounds a quotient, and does not say how"


def _business_days(entry: Entry) -> str:
    metadata = entry["metadata"]
    # Other questions of the task have no such dates; these are read all the same, since a wrong one is an error.
    start = date.fromisoformat(metadata.get("start_date", "2022-01-01"))
    end = date.fromisoformat(metadata.get("end_date", "2022-01-01"))
    if metadata["task"] == "count_business_days" and start.year != end.year:
        return "it gives the year of the start to a date in the next year"
    return ""


def _letter_case(entry: Entry) -> str:
    letter, text = _LETTER.findall(entry["question"])[0]
    if text.count(letter) == text.lower().count(letter.lower()):
        return ""
    return "it is not clear whether capitals count"


def _sign(entry: Entry) -> str:
    sign, exponent = _POWER.findall(entry["question"])[0]
    if sign and int(exponent) % 2 == 0:
        return "-2^4 is 16 or -16"
    return ""


def _gave_up(entry: Entry) -> str:
    if entry["answer"] == '["No solution"]':
        return "its search for a solution gave up"
    return ""


def _abbreviated(entry: Entry) -> str:
    if "..." in entry["question"]:
        return "NumPy prints a board of more than 1000 cells with dots"
    return ""


def _bottom(entry: Entry) -> str:
    if "bottom" in entry["metadata"]["rotations"]:
        return "there are two ways to turn the bottom to the top"
    return ""


def _other_operator(entry: Entry) -> str:
    _, _, behind = entry["question"].partition("the operators ")
    allowed = behind.partition(".")[0]
    if all(operator in allowed for operator in re.findall("[-+*/]", entry["answer"])):
        return ""
    return "its own answer has an operator that the question does not allow"


def _lost_variable(entry: Entry) -> str:
    if entry["metadata"]["variable"] in entry["metadata"]["equation"]:
        return ""
    return "0 = 0"


def _unclear_syllogism(entry: Entry) -> str:
    _, unclear = validity_of(entry["question"])
    return unclear


def _unclear_interval(entry: Entry) -> str:
    _, unclear = read_interval(entry)
    return unclear


def _is_whole(expression: str) -> bool:
    """Return whether an expression of whole numbers, + - * / and brackets is a whole number; False for a division by
    zero."""

    # Of the tree, with fractions: `eval` would round, and run what stands there.
    def value(node: Any) -> Fraction:
        match node:
            case ast.BinOp(left, op, right):
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op, operand):
                return -value(operand) if isinstance(op, ast.USub) else value(operand)
        return Fraction(node.value)

    try:
        return value(ast.parse(expression, mode="eval").body).denominator == 1
    except ZeroDivisionError:
        return False


def _hidden_wall(entry: Entry) -> str:
    """knight_swap: it makes a puzzle impossible by taking away a move that the drawn board allows."""
    board = entry["metadata"]["board"]
    # Every two squares of the board that are a knight's move apart must be neighbors in it.
    for start, end in permutations(board, 2):
        columns = abs(ord(start[0]) - ord(end[0]))
        rows = abs(int(start[1:]) - int(end[1:]))
        if {columns, rows} == {1, 2} and end not in board[start]:
            return "a move that the drawn board allows is not allowed"
    return ""


def _second_solution(entry: Entry) -> str:
    """survo: it does not check that there is one solution only."""
    numbers = Counter(entry["metadata"]["candidate_numbers"])
    puzzle = [list(row) for row in entry["metadata"]["puzzle"]]  # a copy, which the search fills
    # Two are enough to know: the search ends there.
    solutions = list(islice(_survo(puzzle, numbers), 2))
    if len(solutions) == 2:
        return "it has several solutions"
    return ""


def _survo(grid: list[list[int]], numbers: Counter[int]) -> Iterator[None]:
    """Yield once for each way to fill the zeros: every row and column must add up as soon as it is full."""
    columns = [list(column) for column in zip(*grid, strict=True)]
    for line in (*grid, *columns):
        if 0 not in line and sum(line[:-1]) != line[-1]:
            return
    empty = _first_zero(grid)
    if empty is None:  # full, and every line adds up
        yield
        return
    y, x = empty
    # Each different number once: equal ones would give the same solution twice.
    for number in [number for number, left in numbers.items() if left]:
        grid[y][x] = number
        yield from _survo(grid, numbers - Counter([number]))
    grid[y][x] = 0  # empty again: the caller goes on with another number in an earlier square


def _first_zero(grid: list[list[int]]) -> Square | None:
    for y, row in enumerate(grid):
        if 0 in row:
            return y, row.index(0)
    return None


def _other_capture(entry: Entry) -> str:
    """tsumego: random stones and decoys make the stored move capture nothing, or another move capture as many."""
    board = entry["metadata"]["board"]
    captures: dict[str, int] = {}  # move → stones; columns have letters, and rows are counted from the bottom
    for y, row in enumerate(board):
        for x, cell in enumerate(row):
            captured = _count_captured(board, (y, x)) if cell == "." else 0
            if captured:
                captures[f"{chr(ord('A') + x)}{len(board) - y}"] = captured
    # The question asks for the move that captures as many as possible, or only for one that captures.
    most = max(captures.values(), default=0)
    any_capture = "as many" not in entry["question"]
    right = [move for move, captured in captures.items() if any_capture or captured == most]
    if right == [entry["answer"]]:
        return ""
    return "the stored move is not the only one that captures"


def _count_captured(board: list[list[str]], move: Square) -> int:
    """White stones that a black stone on this empty square captures."""
    dead: set[Square] = set()
    for start in _near(board, move):
        if board[start[0]][start[1]] != "O":
            continue
        # The group of this stone, until it has a free neighbor other than the move.
        group, border = {start}, [start]
        free = False
        while border and not free:
            for y, x in _near(board, border.pop()):
                free = free or (board[y][x] == "." and (y, x) != move)
                if board[y][x] == "O" and (y, x) not in group:
                    group.add((y, x))
                    border.append((y, x))
        if not free:
            dead |= group
    return len(dead)


def _near(board: list[list[str]], square: Square) -> Iterator[Square]:
    for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        y, x = square[0] + dy, square[1] + dx
        if 0 <= y < len(board) and 0 <= x < len(board[y]):
            yield y, x


_UNCLEAR: dict[str, Callable[[Entry], str]] = {
    "aiw": _colleagues,
    "basic_arithmetic": _whole,
    "calendar_arithmetic": _business_days,
    "color_cube_rotation": _bottom,
    "game_of_life_halting": _abbreviated,
    "jugs": _gave_up,
    "knight_swap": _hidden_wall,
    "letter_counting": _letter_case,
    "power_function": _sign,
    "puzzle24": _other_operator,
    "simple_equations": _lost_variable,
    "survo": _second_solution,
    "syllogism": _unclear_syllogism,
    "time_intervals": _unclear_interval,
    "tsumego": _other_capture,
}
"""Task → why a question has no clear answer; '' for one that has."""
