"""Solves questions from their text or board, to find stored answers that are wrong or not the only right ones."""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from fractions import Fraction
from itertools import islice, permutations
from typing import Any

Entry = Mapping[str, Any]
Square = tuple[int, int]
_MEN = (
    "James John Robert Michael William David Richard Joseph Thomas Charles Peter Daniel Matthew Christopher Andrew "
    "George Edward Benjamin Henry Samuel Alexander Oliver Jack Harry Jacob Noah Ethan Lucas Mason Logan Sebastian "
    "Theodore Owen Liam Aiden Kai Jayden Zion Phoenix Atlas Axel Ryder Finn"
)
_WOMEN = (
    "Mary Patricia Jennifer Linda Elizabeth Barbara Susan Jessica Sarah Karen Emma Lisa Anna Margaret Victoria "
    "Charlotte Sophia Isabella Olivia Ava Mia Emily Abigail Amelia Eleanor Grace Alice Lucy Chloe Sophie Lily Hannah "
    "Zoe Luna Nova Aria Willow Aurora Sage River Winter Sky Rain"
)
_IS_MAN = {name: names is _MEN for names in (_MEN, _WOMEN) for name in names.split()}
"""Upstream's default names."""
_COUPLE = re.compile(r"\b(\w+) is married to (\w+)\.(?: They have (?:a child|children) called ([^.]*)\.)?")
_STATEMENT = re.compile(r"(All|No|Some) (\w+) are (not )?(\w+)")
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def relation_in(story: str, who: str, to: str, men: Container[str] | None = None) -> str | None:
    """What `who` is to `to`: niece, nephew, daughter-in-law or son-in-law; None for any other relation.

    Args:
        men: the names of men; None: upstream's default names.

    Raises:
        KeyError: without `men`, `who` is not one of upstream's default names, so that the gender is unknown.
    """
    spouse: dict[str, str] = {}
    parents: dict[str, set[str]] = {}
    for first, second, children in _COUPLE.findall(story):
        spouse |= {first: second, second: first}
        parents |= {child: {first, second} for child in re.split(", | and ", children) if child}
    mine, theirs = parents.get(who, set()), parents.get(to, set())
    if to not in mine and mine != theirs and theirs & {elder for parent in mine for elder in parents.get(parent, ())}:
        words = ("niece", "nephew")
    elif to in parents.get(spouse.get(who, ""), ()):
        words = ("daughter-in-law", "son-in-law")
    else:
        return None
    return words[_IS_MAN[who] if men is None else who in men]


def validity(question: str) -> tuple[bool, str]:
    """Whether the last of three statements about three kinds of things follows from the first two.

    Every world is tried: a world is the set of those combinations of kinds that occur.

    Returns:
        Whether it follows if things of each kind exist, and why that is unclear; "" if it follows anyway.
    """
    statements = _STATEMENT.findall(question)[:3]
    kinds = sorted({word for _, subject, _, predicate in statements for word in (subject, predicate)})
    if len(statements) != 3 or len(kinds) != 3:
        raise ValueError("not three statements about three kinds of things")
    of_kind = [sum(1 << member for member in range(8) if member >> kind & 1) for kind in range(3)]

    def true_in(statement: tuple[str, ...], world: int) -> bool:
        subject, predicate = (of_kind[kinds.index(statement[place])] & world for place in (1, 3))
        both = bool(subject & ~predicate if statement[2] else subject & predicate)
        return {"All": not subject & ~predicate, "No": not both, "Some": both}[statement[0]]

    *premises, conclusion = statements
    worlds = [world for world in range(256) if all(true_in(premise, world) for premise in premises)]
    inhabited = [world for world in worlds if all(world & kind for kind in of_kind)]
    follows = all(true_in(conclusion, world) for world in inhabited)
    unclear = follows and not all(true_in(conclusion, world) for world in worlds)
    return follows, "it follows only if things of each kind exist" if unclear else ""


def is_whole(expression: str) -> bool:
    """Whether an expression of whole numbers, + - * / and brackets is a whole number; False for a division by zero."""

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


def hidden_wall(entry: Entry) -> str:
    """knight_swap: it makes a puzzle impossible by taking away a move that the drawn board allows."""
    board = entry["metadata"]["board"]
    for start, end in permutations(board, 2):
        steps = {abs(ord(start[0]) - ord(end[0])), abs(int(start[1:]) - int(end[1:]))}
        if steps == {1, 2} and end not in board[start]:
            return "a move that the drawn board allows is not allowed"
    return ""


def second_solution(entry: Entry) -> str:
    """survo: it does not check that there is one solution only."""
    numbers = Counter(entry["metadata"]["candidate_numbers"])
    solutions = _survo([list(row) for row in entry["metadata"]["puzzle"]], numbers)
    return "it has several solutions" if len(list(islice(solutions, 2))) == 2 else ""


def _survo(grid: list[list[int]], numbers: Counter[int]) -> Iterator[None]:
    """One step for each way to fill the zeros: every row and column must add up as soon as it is full."""
    for line in (*grid, *map(list, zip(*grid, strict=True))):
        if 0 not in line and sum(line[:-1]) != line[-1]:
            return
    empty = next(((y, x) for y, row in enumerate(grid) for x, cell in enumerate(row) if cell == 0), None)
    if empty is None:
        yield
        return
    y, x = empty
    for number in [number for number, left in numbers.items() if left]:
        grid[y][x] = number
        yield from _survo(grid, numbers - Counter([number]))
    grid[y][x] = 0


def other_capture(entry: Entry) -> str:
    """tsumego: random stones and decoys make the stored move capture nothing, or another move capture as many."""
    board = entry["metadata"]["board"]
    captures = {
        f"{chr(ord('A') + x)}{len(board) - y}": captured
        for y, row in enumerate(board)
        for x, cell in enumerate(row)
        if cell == "." and (captured := _captured(board, (y, x)))
    }
    most = max(captures.values(), default=0)
    any_capture = "as many" not in entry["question"]
    right = [move for move, captured in captures.items() if any_capture or captured == most]
    return "" if right == [entry["answer"]] else "the stored move is not the only one that captures"


def _captured(board: list[list[str]], move: Square) -> int:
    """White stones that a black stone on this empty square captures."""
    dead: set[Square] = set()
    for start in _near(board, move):
        if board[start[0]][start[1]] != "O":
            continue
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
