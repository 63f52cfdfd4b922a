"""Plans that solve items of boxnet and rush_hour, found by search on the question's own terms, in the forms in which
people write them."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Any

Move = tuple[str, int]


def rush_hour(entry: Mapping[str, Any]) -> list[Move]:
    """The fewest moves, by breadth-first search over boards, starting from the one that the question shows."""
    board = entry["question"].split("Board:")[1].replace("\n", "").replace(".", "o").strip()
    names = sorted(set(board) - set("ox"))
    before: dict[str, tuple[str, Move] | None] = {board: None}
    waiting = deque([board])
    while waiting:
        board = waiting.popleft()
        if board[16:18] == "AA":
            break
        for name in names:
            for cells in (1, -1, 2, -2, 3, -3, 4, -4):
                after = _moved(board, name, cells)
                if after is not None and after not in before:
                    before[after] = (board, (name, cells))
                    waiting.append(after)
    moves: list[Move] = []
    while (step := before[board]) is not None:
        board = step[0]
        moves.append(step[1])
    return moves[::-1]


def _moved(board: str, name: str, cells: int) -> str | None:
    places = [place for place, sign in enumerate(board) if sign == name]
    stride = places[1] - places[0]
    for step in range(1, abs(cells) + 1):
        sign = 1 if cells > 0 else -1
        for place in (places[0], places[-1]):
            to = place + sign * step * stride
            if not 0 <= to < 36 or (stride == 1 and to // 6 != place // 6) or board[to] not in ("o", name):
                return None
    signs = ["o" if sign == name else sign for sign in board]
    for place in places:
        signs[place + cells * stride] = name
    return "".join(signs)


def rush_hour_forms(moves: list[Move]) -> list[str]:
    words = [f"{name}{cells:+d}" for name, cells in moves]
    single = [f"{name}{'+' if cells > 0 else '-'}1" for name, cells in moves for _ in range(abs(cells))]
    back = [word for word in single for word in (word, word.translate(str.maketrans("+-", "-+")), word)]
    return [
        " ".join(words),
        ", ".join(words),
        "\n".join(words),
        " ".join(words) + ".",
        " ".join(name * 2 + rest for name, rest in ((word[0], word[1:]) for word in words)),
        " ".join(single),
        " ".join(back),
        " ".join([*words[:-1], f"A+{moves[-1][1] + 2}"]),  # out of the exit
    ]


def boxnet(entry: Mapping[str, Any]) -> list[list[tuple[str, str]]]:
    """Every box on its own, first along the rows."""
    squares = {tuple(map(float, name.split("_"))): list(things) for name, things in _state(entry).items()}
    plan = []
    for (x, y), things in squares.items():
        for box in [thing for thing in things if thing.startswith("box_")]:
            color = box.removeprefix("box_")
            goal = next(square for square, found in squares.items() if f"target_{color}" in found)
            squares[goal].remove(f"target_{color}")
            here = (x, y)
            while here != goal:
                to = (here[0] + _sign(goal[0] - here[0]), here[1])
                if here[0] == goal[0]:
                    to = (here[0], here[1] + _sign(goal[1] - here[1]))
                plan.append([(_agent(here), f"move({box}, square[{to[0]}, {to[1]}])")])
                here = to
            plan.append([(_agent(here), f"move({box}, target_{color})")])
    return plan


def boxnet_forms(plan: list[list[tuple[str, str]]]) -> list[str]:
    steps = [dict(step) for step in plan]
    turned = [{"Agent[" + re.sub(r".*\[|\].*", "", agent) + "]": act for agent, act in step.items()} for step in steps]
    return [
        json.dumps(steps),
        json.dumps(steps, indent=2),
        json.dumps(steps, separators=(",", ":")),
        json.dumps([step for one in steps for step in (one, {})]),
        json.dumps([{agent.replace(", ", ","): act for agent, act in step.items()} for step in turned]),
        json.dumps([{agent.lower(): act for agent, act in step.items()} for step in steps]),
    ]


def _state(entry: Mapping[str, Any]) -> dict[str, list[str]]:
    state: dict[str, list[str]] = entry["metadata"]["initial_state"]
    return state


def _agent(square: tuple[float, ...]) -> str:
    return f"Agent[{square[0]}, {square[1]}]"


def _sign(number: float) -> float:
    return float((number > 0) - (number < 0))
