"""Logic, graphs, families and planning."""

from __future__ import annotations

import ast
import json
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from itertools import combinations, product
from typing import Any

from scripts.oracles import Solver, verified


def search(
    start: Hashable, goal: Callable[[Any], bool], moves: Callable[[Any], Iterable[tuple[Any, Any]]]
) -> list[Any] | None:
    """The moves of a shortest way from the start to a goal."""
    ways: dict[Any, Any] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if goal(state):
            path = []
            while ways[state] is not None:
                move, state = ways[state]
                path.append(move)
            return path[::-1]
        for move, following in moves(state):
            if following not in ways:
                ways[following] = move, state
                queue.append(following)
    return None


def _circle(question: str, *_: Any) -> str | None:
    """Colleagues: Matilda belongs to one circle or to both. Siblings: `William` may be nobody's brother."""
    if "Matilda" in question:
        return None
    counts = {kind: int(n) for n, kind in re.findall(r"(\d+) (female friends|sisters)", question)}
    woman, asked = question.split()[0], re.search(r"does (\w+)", question).group(1)
    if "sisters" in counts and woman != asked:
        return None
    return str(next(iter(counts.values())) + 1)


def _circuit(_: str, metadata: dict[str, Any], *__: Any) -> str:
    """From the expression in the metadata: the drawing is not parsed."""
    values = metadata["assignments"]
    gates: dict[str, Callable[[list[bool]], bool]] = {
        "&": all,
        "+": any,
        "↑": lambda inputs: not all(inputs),
        "↓": lambda inputs: not any(inputs),
        "⊕": lambda inputs: sum(inputs) % 2 == 1,
    }

    def term(text: str) -> bool:
        gate = next((sign for sign in gates if sign in text), "&")
        return gates[gate]([bool(values[name.rstrip("'")]) != name.endswith("'") for name in text.split(gate)])

    parts = re.findall(r"\(([^)]*)\)", metadata["expression"]) or [metadata["expression"]]
    final = {"AND": "&", "OR": "+", "NAND": "↑", "NOR": "↓", "XOR": "⊕"}[metadata["final_gate"]]
    return str(int(gates[final]([term(part) for part in parts])))


_SIDES = ("top", "right", "front", "left", "back", "bottom")
_CYCLES = {
    "front": "front top back bottom",
    "back": "back top front bottom",
    "right": "right top left bottom",
    "left": "left top right bottom",
}


def _cube(question: str, *_: Any) -> str | None:
    """The side named comes to the top; for the bottom there are two ways, which may end alike."""
    colors = [{side: re.search(rf"a (\w+) {side} side", question).group(1) for side in _SIDES}]
    for line in question.splitlines()[8:]:
        found = re.search(
            r"before at the (\w+)|bring the (\w+)|make the (\w+)|place its (\w+)|the (\w+) side is rotated", line
        )
        side = next(filter(None, found.groups())) if found else "top"
        ways = ["front front", "right right"] if side == "bottom" else [side]
        if side != "top":
            colors = [turned for cube in colors for way in ways for turned in [_turned(cube, way)]]
    asked = re.search(r"color of the (\w+) side", question).group(1)
    answers = {cube[asked] for cube in colors}
    return answers.pop() if len(answers) == 1 else None


def _turned(cube: dict[str, str], sides: str) -> dict[str, str]:
    for side in sides.split():
        cycle = _CYCLES[side].split()
        cube = cube | {cycle[(place + 1) % 4]: cube[cycle[place]] for place in range(4)}
    return cube


def _courses(question: str, *_: Any) -> str:
    left = set(ast.literal_eval(re.search(r"\[\(.*\)\]|\[\]", question).group()))
    while True:
        waiting = {course for course, _ in left}
        rest = {(course, before) for course, before in left if before in waiting}
        if rest == left:
            return str(not left)
        left = rest


def _cryptarithm(question: str, *_: Any) -> list[str]:
    lines = question.split(":\n\n")[1].split("\n\n")[0].replace("+", " ").split()
    words, total = [line for line in lines if line.isalpha()][:-1], [line for line in lines if line.isalpha()][-1]
    weights: dict[str, int] = {}
    for sign, group in ((1, words), (-1, [total])):
        for word in group:
            for power, letter in enumerate(reversed(word)):
                weights[letter] = weights.get(letter, 0) + sign * 10**power
    leading = {word[0] for word in (*words, total)}
    order = sorted(weights, key=lambda letter: -abs(weights[letter]))
    found: list[str] = []

    def fill(place: int, value: int, used: dict[str, int]) -> None:
        if len(found) == 2:
            return
        rest = sum(9 * abs(weights[letter]) for letter in order[place:])
        if abs(value) > rest:
            return
        if place == len(order):
            found.append(",".join(f"{letter}={digit}" for letter, digit in sorted(used.items())))
            return
        letter = order[place]
        for digit in range(letter in leading, 10):
            if digit not in used.values():
                fill(place + 1, value + weights[letter] * digit, {**used, letter: digit})

    fill(0, 0, {})
    return found


_RELATIONS = {
    "parent": ("mother", "father"),
    "child": ("daughter", "son"),
    "spouse": ("wife", "husband"),
    "sibling": ("sister", "brother"),
    "grandparent": ("grandmother", "grandfather"),
    "grandchild": ("granddaughter", "grandson"),
    "parent's sibling": ("aunt", "uncle"),
    "sibling's child": ("niece", "nephew"),
    "spouse's parent": ("mother-in-law", "father-in-law"),
    "child's spouse": ("daughter-in-law", "son-in-law"),
}


def _family(question: str, _: Any, answer: str) -> str:
    """What the first is to the second; whether a name is a woman's is read off upstream's lists of names."""
    from reasoning_gym.graphs.family_relationships import FamilyRelationshipsConfig

    story, asked = question.split("\n\n")
    spouse: dict[str, str] = {}
    parents: dict[str, set[str]] = {}
    for one, other, children in re.findall(
        r"(\w+) is married to (\w+)\.(?: They have (?:a child|children) called ([^.]*)\.)?", story
    ):
        spouse |= {one: other, other: one}
        for child in re.findall(r"\b(?!and\b)\w+", children):
            parents[child] = {one, other}
    who, to = re.search(r"(?:What is|How is|What relation is) (\w+) (?:related )?to (\w+)", asked).groups()

    def up(names: Iterable[str]) -> set[str]:
        return {parent for name in names for parent in parents.get(name, ())}

    mine, theirs = up([who]), up([to])
    tests = {
        "parent": who in theirs,
        "child": to in mine,
        "spouse": spouse.get(who) == to,
        "sibling": bool(mine & theirs),
        "grandparent": who in up(theirs),
        "grandchild": to in up(mine),
        "parent's sibling": bool(mine & up(theirs)) or bool(up([spouse.get(who, "")]) & up(theirs)),
        "sibling's child": bool(theirs & up(mine)) or bool(up([spouse.get(to, "")]) & up(mine)),
        "spouse's parent": who in up([spouse.get(to, "")]),
        "child's spouse": to in up([spouse.get(who, "")]),
    }
    relation = next(name for name, holds in tests.items() if holds)
    return _RELATIONS[relation][who in FamilyRelationshipsConfig().male_names]


def _coloring(question: str, metadata: dict[str, Any], *_: Any) -> str:
    edges = ast.literal_eval(re.search(r"Edges: (.*)", question).group(1))
    vertices, colors = (
        ast.literal_eval(re.search(rf"{name}: (.*)", question).group(1)) for name in ("Vertices", "colors")
    )
    near: dict[int, set[int]] = {vertex: set() for vertex in vertices}
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)

    def fill(chosen: dict[int, int]) -> dict[int, int] | None:
        if len(chosen) == len(vertices):
            return chosen
        vertex = next(v for v in vertices if v not in chosen)
        for color in colors:
            if all(chosen.get(other) != color for other in near[vertex]) and (done := fill({**chosen, vertex: color})):
                return done
        return None

    return json.dumps(fill({}))


def _jugs(question: str, *_: Any) -> str:
    sizes = {name: int(size) for name, size in re.findall(r"\b([A-Z]):(\d+)", question)}
    target, names = int(re.search(r"target is: (\d+)", question).group(1)), list(sizes)

    def moves(state: tuple[int, ...]) -> Iterable[tuple[str, tuple[int, ...]]]:
        for i, a in enumerate(names):
            yield f"fill {a}", (*state[:i], sizes[a], *state[i + 1 :])
            yield f"empty {a}", (*state[:i], 0, *state[i + 1 :])
            for j, b in enumerate(names):
                if i != j:
                    poured = min(state[i], sizes[b] - state[j])
                    yield (
                        f"pour {a}->{b}",
                        tuple(n - poured * (k == i) + poured * (k == j) for k, n in enumerate(state)),
                    )

    return json.dumps(search((0,) * len(names), lambda state: target in state, moves))


def _knights(question: str, *_: Any) -> str:
    rows = re.findall(r"^(\d) \|(.*)\|$", question, re.MULTILINE)
    board = {
        f"{'ABCDEFGH'[x]}{y}": cell.strip() for y, row in rows for x, cell in enumerate(row.split("|")) if cell.strip()
    }
    jumps = {a: [b for b in board if {abs(ord(a[0]) - ord(b[0])), abs(int(a[1]) - int(b[1]))} == {1, 2}] for a in board}
    white, black = (frozenset(square for square, cell in board.items() if cell == kind) for kind in "wB")
    turn = re.search(r"(w|B) moves first", question).group(1)

    def moves(state: tuple[frozenset[str], frozenset[str], str]) -> Iterable[tuple[str, Any]]:
        whites, blacks, mover = state
        for a in whites if mover == "w" else blacks:
            for b in jumps[a]:
                if b not in whites | blacks:
                    if mover == "w":
                        yield f"w,{a},{b}", (whites - {a} | {b}, blacks, "B")
                    else:
                        yield f"B,{a},{b}", (whites, blacks - {a} | {b}, "w")

    found = search((white, black, turn), lambda state: state[:2] == (black, white), moves)
    return "No" if found is None else json.dumps(found)


def _islanders(_: str, metadata: dict[str, Any], *__: Any) -> str | None:
    """From the statements in the metadata; None unless exactly one world fits."""

    def holds(statement: Any, world: tuple[bool, ...]) -> bool:
        match statement:
            case ("telling-truth", who):
                return world[who]
            case ("lying", who):
                return not world[who]
            case ("not", part):
                return not holds(part, world)
            case ("and", *parts):
                return all(holds(part, world) for part in parts)
            case ("or", *parts):
                return any(holds(part, world) for part in parts)
            case ("->", a, b):
                return not holds(a, world) or holds(b, world)
            case ("<=>", a, b):
                return holds(a, world) == holds(b, world)
        raise ValueError(statement)

    statements, names, roles = metadata["statements"], metadata["names"], metadata["knight_knave_terms"]
    worlds = [
        world
        for world in product((True, False), repeat=len(names))
        if all(holds(statement, world) == world[who] for who, statement in enumerate(statements))
    ]
    if len(worlds) != 1:
        return None
    said = [
        f"{name} is {roles['a_knight' if knight else 'a_knave']}" for name, knight in zip(names, worlds[0], strict=True)
    ]
    return ", ".join(said[:-1]) + f", and {said[-1]}."


def _star(question: str, *_: Any) -> str:
    edges, ends = question.strip().splitlines()[-1].rstrip("= ").lstrip("|").split("/")
    start, goal = ends.split()
    pairs = [edge.split() for edge in edges.split("|")]
    found = search(start, lambda node: node == goal, lambda node: ((b, b) for a, b in pairs if a == node))
    return " ".join([start, *(found or [])])


def _conclusion(question: str, metadata: dict[str, Any], *_: Any) -> str:
    """The example in the metadata follows from the premises in the question."""
    premises = [
        line.lstrip(".").split(". ", 1)[1]
        for line in question.split("Given:\n")[1].splitlines()
        if re.match(r"\.?\d", line)
    ]
    return verified(_follows(premises, metadata["example_answer"]), metadata["example_answer"])


def _follows(premises: list[str], conclusion: str) -> bool:
    names = sorted(set(re.findall(r"[A-Z]", "".join(premises) + conclusion)))
    signs = {"∨": "or", "∧": "and", "¬": " not ", "→": "<=", "↔": "=="}

    def value(text: str, world: dict[str, bool]) -> bool:
        for sign, python in signs.items():
            text = text.replace(sign, python)
        text = re.sub(r" not (\w)", r"(not \1)", re.sub(r" not \(", "(not (", text))
        text += ")" * (text.count("(") - text.count(")"))
        return bool(eval(text, {}, world))

    worlds = [dict(zip(names, values, strict=True)) for values in product((True, False), repeat=len(names))]
    return all(value(conclusion, world) for world in worlds if all(value(premise, world) for premise in premises))


def _lock(question: str, *_: Any) -> str:
    start, color = re.search(r"Start: (-?\d+) \((\w+)\)", question).groups()
    target = int(re.search(r"Target: (-?\d+)", question).group(1))
    buttons = re.findall(r"([A-Z]): (\w+) (\d+) \(when (\w+)\)", question)

    def moves(state: tuple[int, str]) -> Iterable[tuple[str, tuple[int, str]]]:
        for name, verb, number, when in buttons:
            if when in ("any", state[1]) and abs(state[0]) < 10**5:
                n = int(number)
                value = {"Add": state[0] + n, "Subtract": state[0] - n, "Multiply": state[0] * n}[verb]
                yield name, (value, "green" if state[1] == "red" else "red")

    return " → ".join(search((int(start), color), lambda state: state[0] == target, moves) or [])


def _self_reference(question: str, *_: Any) -> str:
    lines, count = re.findall(r"Statement \d: '(.*)'", question), 0
    size = len(lines)
    primes = {n for n in range(2, 30) if all(n % d for d in range(2, n))}
    composite = set(range(4, 30)) - primes
    for world in product((True, False), repeat=size):
        true, false = sum(world), size - sum(world)
        said = []
        for line in lines:
            numbers = [int(n) for n in re.findall(r"\d+", line)]
            kind = true if "true" in line and "false" not in line else false
            if line.startswith("Either"):
                said.append(world[numbers[0] - 1] != world[numbers[1] - 1])
            elif "prime" in line:
                said.append(kind in primes)
            elif "composite" in line:
                said.append(kind in composite)
            else:
                said.append(
                    {"At least": kind >= numbers[0], "At most": kind <= numbers[0], "Exactly": kind == numbers[0]}[
                        " ".join(line.split()[:2]) if line.startswith("At") else "Exactly"
                    ]
                )
        count += tuple(said) == world
    return str(count)


def _syllogism(question: str, *_: Any) -> str | None:
    """By trying all worlds in which each of the three kinds has members; None if it depends on that they have."""
    lines = re.findall(r"(All|No|Some) (\w+) are (not )?(\w+)", question)
    kinds = sorted({word for _, a, _, b in lines for word in (a, b)})
    members = list(product((False, True), repeat=len(kinds)))

    def holds(line: tuple[str, str, str, str], world: tuple[Any, ...]) -> bool:
        quantifier, a, negated, b = line[0], kinds.index(line[1]), bool(line[2]), kinds.index(line[3])
        both = [member[b] != negated for member in world if member[a]]
        return {"All": all(both), "No": not any(both), "Some": any(both)}[quantifier]

    def valid(existing: bool) -> bool:
        for size in range(len(members) + 1):
            for world in combinations(members, size):
                if existing and not all(any(member[k] for member in world) for k in range(len(kinds))):
                    continue
                if holds(lines[0], world) and holds(lines[1], world) and not holds(lines[2], world):
                    return False
        return True

    classical, modern = valid(existing=True), valid(existing=False)
    return None if classical != modern else "Yes" if classical else "No"


def _hanoi(question: str, _: Any, answer: str) -> str:
    disks, pegs = (int(n) for n in re.search(r"with (\d+) disks and (\d+) pegs", question).groups())
    start, target = (int(n) for n in re.search(r"from Peg (\d+) to Peg (\d+)", question).groups())
    stacks: dict[int, list[int]] = {peg: [] for peg in range(1, pegs + 1)}
    stacks[start] = list(range(disks, 0, -1))
    for disk, a, b in re.findall(r"Move disk (\d+) from Peg (\d+) to Peg (\d+)", answer):
        if stacks[int(a)][-1:] != [int(disk)] or (stacks[int(b)] and stacks[int(b)][-1] < int(disk)):
            return verified(False, answer)
        stacks[int(b)].append(stacks[int(a)].pop())
    return verified(len(stacks[target]) == disks, answer)


SOLVERS: dict[str, Solver] = {
    "aiw": _circle,
    "circuit_logic": _circuit,
    "color_cube_rotation": _cube,
    "course_schedule": _courses,
    "cryptarithm": _cryptarithm,
    "family_relationships": _family,
    "graph_color": _coloring,
    "jugs": _jugs,
    "knight_swap": _knights,
    "knights_knaves": _islanders,
    "path_star": _star,
    "propositional_logic": _conclusion,
    "quantum_lock": _lock,
    "self_reference": _self_reference,
    "syllogism": _syllogism,
    "tower_of_hanoi": _hanoi,
}
