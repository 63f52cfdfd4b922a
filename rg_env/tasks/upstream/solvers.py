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
_IS_MAN = dict.fromkeys(_MEN.split(), True) | dict.fromkeys(_WOMEN.split(), False)
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
    """Return the relation of `who` to `to`: niece, nephew, daughter-in-law or son-in-law; None for any other.

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
    my_parents = parents.get(who, set())
    their_parents = parents.get(to, set())
    grandparents: set[str] = set()
    for parent in my_parents:
        grandparents |= parents.get(parent, set())

    # `to` is an aunt or uncle: a child of grandparents of mine, and neither my parent nor, with my parents, my sibling.
    is_parent_or_sibling = to in my_parents or my_parents == their_parents
    if not is_parent_or_sibling and their_parents & grandparents:
        words = ("niece", "nephew")
    elif to in parents.get(spouse.get(who, ""), ()):
        words = ("daughter-in-law", "son-in-law")
    else:
        return None
    return words[_IS_MAN[who] if men is None else who in men]


def validity(question: str) -> tuple[bool, str]:
    """Return whether the last of three statements about three kinds of things follows from the first two.

    Every world is tried: a world is the set of those combinations of kinds that occur.

    Returns:
        Whether it follows if things of each kind exist, and why that is unclear; "" if it follows anyway.
    """
    statements = _STATEMENT.findall(question)[:3]
    subjects = {subject for _, subject, _, _ in statements}
    predicates = {predicate for _, _, _, predicate in statements}
    kinds = sorted(subjects | predicates)
    if len(statements) != 3 or len(kinds) != 3:
        raise ValueError("not three statements about three kinds of things")
    # A combination of kinds is a number below 8 with a bit for each kind; a set of combinations, such as a world or all
    # those with a kind, is a number below 256 with a bit for each combination.
    of_kind: list[int] = []
    for kind in range(3):
        of_kind.append(sum(1 << combination for combination in range(8) if combination >> kind & 1))

    def true_in(statement: tuple[str, ...], world: int) -> bool:
        quantifier, subject, negation, predicate = statement
        subjects = of_kind[kinds.index(subject)] & world
        predicates = of_kind[kinds.index(predicate)] & world
        if quantifier == "All":
            return not subjects & ~predicates
        common = subjects & ~predicates if negation else subjects & predicates
        return bool(common) if quantifier == "Some" else not common

    def has_all_kinds(world: int) -> bool:
        return all(world & combinations for combinations in of_kind)

    *premises, conclusion = statements
    worlds = list(range(256))
    for premise in premises:
        worlds = [world for world in worlds if true_in(premise, world)]
    # Traditional logic lets "all" imply "some", modern logic does not: only what holds in both is clear.
    inhabited = [world for world in worlds if has_all_kinds(world)]
    if not all(true_in(conclusion, world) for world in inhabited):
        return False, ""
    if all(true_in(conclusion, world) for world in worlds):
        return True, ""
    return True, "it follows only if things of each kind exist"


def is_whole(expression: str) -> bool:
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


def hidden_wall(entry: Entry) -> str:
    """knight_swap: it makes a puzzle impossible by taking away a move that the drawn board allows."""
    board = entry["metadata"]["board"]
    # Every two squares of the board that are a knight's move apart must be neighbors in it.
    for start, end in permutations(board, 2):
        columns = abs(ord(start[0]) - ord(end[0]))
        rows = abs(int(start[1:]) - int(end[1:]))
        if {columns, rows} == {1, 2} and end not in board[start]:
            return "a move that the drawn board allows is not allowed"
    return ""


def second_solution(entry: Entry) -> str:
    """survo: it does not check that there is one solution only."""
    numbers = Counter(entry["metadata"]["candidate_numbers"])
    puzzle = [list(row) for row in entry["metadata"]["puzzle"]]  # a copy, which the search fills
    # Two are enough to know: the search ends there.
    solutions = list(islice(_survo(puzzle, numbers), 2))
    return "it has several solutions" if len(solutions) == 2 else ""


def _survo(grid: list[list[int]], numbers: Counter[int]) -> Iterator[None]:
    """One step for each way to fill the zeros: every row and column must add up as soon as it is full."""
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


def other_capture(entry: Entry) -> str:
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
    return "" if right == [entry["answer"]] else "the stored move is not the only one that captures"


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
