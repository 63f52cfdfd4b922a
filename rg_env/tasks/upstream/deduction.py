"""Derives answers from the text of a question: family relations, syllogisms, exact values."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Container
from fractions import Fraction
from typing import Any

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
_COUPLE = re.compile(r"(\w+) is married to (\w+)\.(?: They have (?:a child|children) called ([^.]*)\.)?")
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
    for one, other, children in _COUPLE.findall(story):
        spouse |= {one: other, other: one}
        parents |= {child: {one, other} for child in re.split(", | and ", children) if child}
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
    kinds = sorted({word for _, one, _, other in statements for word in (one, other)})
    if len(statements) != 3 or len(kinds) != 3:
        raise ValueError("not three statements about three kinds of things")
    of_kind = [sum(1 << member for member in range(8) if member >> kind & 1) for kind in range(3)]

    def true_in(statement: tuple[str, ...], world: int) -> bool:
        one, other = (of_kind[kinds.index(statement[place])] & world for place in (1, 3))
        both = bool(one & ~other if statement[2] else one & other)
        return {"All": not one & ~other, "No": not both, "Some": both}[statement[0]]

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
