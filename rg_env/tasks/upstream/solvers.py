"""Solves questions from their text, to find stored answers that are wrong."""

from __future__ import annotations

import re
from collections.abc import Container

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
MEN = tuple(name for name, is_man in _IS_MAN.items() if is_man)
_COUPLE = re.compile(r"\b(\w+) is married to (\w+)\.(?: They have (?:a child|children) called ([^.]*)\.)?")
_STATEMENT = re.compile(r"(All|No|Some) (\w+) are (not )?(\w+)")


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
        for_woman, for_man = "niece", "nephew"
    elif to in parents.get(spouse.get(who, ""), ()):
        for_woman, for_man = "daughter-in-law", "son-in-law"
    else:
        return None
    if men is None:
        is_man = _IS_MAN[who]
    else:
        is_man = who in men
    return for_man if is_man else for_woman


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
