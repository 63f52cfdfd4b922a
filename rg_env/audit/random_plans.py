"""Answers without planning, for tasks whose answer is a list of moves: random moves, or every move in turn.

Invariant: a plan depends only on the names of the moves and on the question, whose text seeds the random numbers.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Entry = Mapping[str, Any]
Answer = Callable[[Entry], str | None]

_DRIVES = [f"{letter}{sign}{cells}" for letter in "ABCDEFGHIJKL" for sign in "+-" for cells in (1, 2, 3, 4)]
_TURNS = [face + turn for face in "RLUDFB" for turn in ("", "'")]


def random_moves(moves: Sequence[str], count: int, separator: str = " ", end: str = "") -> Answer:
    """`count` of the moves, drawn at random, then `end`."""
    return lambda entry: separator.join(random.Random(entry["question"]).choices(moves, k=count)) + end


def sweep(entry: Entry) -> str:
    """boxnet: move every box through every square, along a snake path backward and then forward, trying each target."""
    squares = [tuple(map(float, name.split("_"))) for name in entry["metadata"]["initial_state"]]
    snake = sorted(squares, key=lambda square: (square[0], square[1] if square[0] % 2 == 0.5 else -square[1]))
    steps = []
    for path in (snake[::-1], snake):
        for here, there in zip(path, [*path[1:], None], strict=True):
            for color in ("red", "blue", "green"):
                if path is snake:
                    steps.append((here, f"move(box_{color}, target_{color})"))
                if there is not None:
                    steps.append((here, f"move(box_{color}, square[{there[0]}, {there[1]}])"))
    plan = [{f"Agent[{x}, {y}]": action} for (x, y), action in steps]
    return json.dumps(plan, separators=(",", ":"))


def _jugs(count: int) -> Answer:
    def answer(entry: Entry) -> str:
        jugs = re.findall(r"([A-Z]):\d+", entry["question"])
        moves = [f"{verb} {jug}" for verb in ("fill", "empty") for jug in jugs]
        moves += [f"pour {a}->{b}" for a in jugs for b in jugs if a != b]
        return json.dumps(random.Random(entry["question"]).choices(moves, k=count))

    return answer


def _straight(entry: Entry) -> str | None:
    """tower_of_hanoi: move every disk directly to its goal."""
    disks = re.search(r"with (\d+) disks", entry["question"])
    pegs = re.search(r"from Peg (\d+) to Peg (\d+)", entry["question"])
    if disks is None or pegs is None:
        return None
    return "\n".join(f"Move disk {n} from Peg {pegs[1]} to Peg {pegs[2]}" for n in range(1, int(disks[1]) + 1))


def constant(text: str) -> Answer:
    """The same answer to every question."""
    return lambda _: text


PLANS: dict[str, dict[str, Answer]] = {
    "boxnet": {"every box through every square": sweep},
    "jugs": {f"{count} random moves": _jugs(count) for count in (4, 30, 300)},
    "quantum_lock": {
        **{f"{count} random buttons": random_moves("ABC", count, " → ") for count in (2, 4, 8, 60)},
        **{f"{letter} × {n}": constant(" → ".join(letter * n)) for letter in "ABC" for n in (1, 3, 5)},
    },
    "rubiks_cube": {f"{count} random turns": random_moves(_TURNS, count) for count in (3, 300)},
    "rush_hour": {
        "straight to the exit": constant("A+4"),
        **{f"{count} random moves": random_moves(_DRIVES, count, end=" A+4") for count in (20, 200, 2000)},
    },
    "shortest_path": {f"{n} random steps": random_moves(("up", "down", "left", "right"), n) for n in (1, 2, 4)},
    "sokoban": {f"{count} random moves": random_moves("UDLR", count, "") for count in (10, 100, 4000)},
    "tower_of_hanoi": {"every disk straight": _straight},
    "knight_swap": {"one move": constant('["w,A1,B3"]')},
}
"""Task → name of the plan → answer."""
