"""Tasks whose answer is a plan, and whose upstream scorer skips impossible moves.

Skipping pays plans that nobody planned: every box through every square of `boxnet`, thousands of random moves of
`rush_hour`. Invariant: a plan passes only if each of its moves is possible when its turn comes and it has no more moves
than the stated bound. Whether it reaches the goal, and how much of it, is for the scorer to say. Linear in the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rg_env.scoring.guard.eval_tasks import Rule

_FACTOR = 10
"""rush_hour: a plan may have so many times the fewest moves that solve the item; a move of 4 cells may be written as
four moves."""
_SLACK = 4
"""boxnet: a plan may have so many times the moves that carry every box once along both sides of the field."""
_WIDTH = 6
_MOVE = re.compile(r"([A-Z])([+-])(\d+)")
_ACTION = re.compile(r"move\((.*?),\s(.*?)\)")
_COORDINATE = re.compile(r"\d+\.?\d*")
Square = tuple[float, ...]


def _rush_hour(entry: Mapping[str, Any], answer: str) -> str | None:
    """Moves as upstream finds them in the text: a letter, a sign, a number of cells."""
    moves = _MOVE.findall(answer)
    longest = _FACTOR * entry["metadata"]["min_moves"]
    if len(moves) > longest:
        return f"the plan has {len(moves)} moves, more than {longest}"
    vehicles = _vehicles(entry["metadata"]["board_config"])
    taken = {place for vehicle in vehicles.values() for place in vehicle}
    for name, sign, digits in moves:
        if len(digits) > 2:
            return "a vehicle moves farther than the board is wide"
        if len(vehicles.get(name, ())) < 2:
            return f"there is no vehicle {name}"
        if not _drive(vehicles[name], 1 if sign == "+" else -1, int(digits), taken, may_leave=name == "A"):
            return f"impossible move: {name}{sign}{digits}"
    return None


def _vehicles(board: str) -> dict[str, list[int]]:
    """The cells of each vehicle, row by row, under the names that the question shows: A, B, C … without gaps.

    Walls are the vehicle `x`.
    """
    vehicles: dict[str, list[int]] = {}
    for place, name in enumerate(board):
        if name != "o":
            vehicles.setdefault(name, []).append(place)
    walls = {"x": vehicles.pop("x", [])}
    return {chr(ord("A") + rank): vehicles[name] for rank, name in enumerate(sorted(vehicles))} | walls


def _drive(cells: list[int], direction: int, distance: int, taken: set[int], may_leave: bool) -> bool:
    """Move a vehicle, changing `cells` and `taken`. Returns whether the way is free.

    A vehicle that `may_leave` may go on to the right past the edge, by its own length: out of the exit.
    """
    stride = cells[1] - cells[0]
    for step in range(distance):
        front = cells[-1] if direction > 0 else cells[0]
        following = front + direction * stride
        beyond = not 0 <= following < _WIDTH**2 or (stride == 1 and following // _WIDTH != front // _WIDTH)
        if beyond and may_leave and stride == 1 and direction > 0:
            return distance - step <= len(cells)
        if beyond or following in taken:
            return False
        taken.add(following)
        if direction > 0:
            taken.remove(cells.pop(0))
            cells.append(following)
        else:
            taken.remove(cells.pop())
            cells.insert(0, following)
    return True


def _boxnet(entry: Mapping[str, Any], answer: str) -> str | None:
    metadata = entry["metadata"]
    try:
        steps = json.loads(answer)
    except (ValueError, RecursionError):
        return None  # which upstream scores 0
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        return "the plan is not a list of steps, each a mapping of agents to actions"
    field = {square: list(things) for square, things in metadata["initial_state"].items()}
    boxes = sum(thing.startswith("box_") for things in field.values() for thing in things)
    longest = _SLACK * boxes * (metadata["row_num"] + metadata["column_num"])
    if (length := max(len(steps), sum(map(len, steps)))) > longest:
        return f"the plan has {length} moves, more than {longest}"
    for step in steps:
        agents = set()
        for agent, action in step.items():
            square = _square(agent)
            if square in agents:
                return f"two actions for one agent in one step: {agent[:40]!r}"
            agents.add(square)
            if not _act(field, square, action):
                return f"impossible move: {agent[:40]!r}: {str(action)[:80]!r}"
    return None


def _act(field: dict[str, list[str]], square: Square, action: object) -> bool:
    """Carry out one action, changing `field`. Returns whether it is possible."""
    found = _ACTION.match(action) if isinstance(action, str) else None
    things = field.get(_key(square))
    if found is None or things is None:
        return False
    box, goal = found.groups()
    if not box.startswith("box_") or box not in things:
        return False
    if goal == f"target_{box.removeprefix('box_')}" and goal in things:
        things.remove(goal)
    else:
        to = _square(goal) if goal.startswith("square") else ()
        if _key(to) not in field or sorted(abs(a - b) for a, b in zip(square, to, strict=True)) != [0, 1]:
            return False
        field[_key(to)].append(box)
    things.remove(box)
    return True


def _square(text: str) -> Square:
    return tuple(float(number) for number in _COORDINATE.findall(text)[:3])


def _key(square: Sequence[float]) -> str:
    return "_".join(map(str, square))


RULES: dict[str, Rule] = {"boxnet": _boxnet, "rush_hour": _rush_hour}
