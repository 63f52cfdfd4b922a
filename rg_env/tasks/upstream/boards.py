"""Solves board puzzles: to find those with several correct answers, of which upstream accepts only the stored one, and
in an order that does not depend on the hash seed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from itertools import islice, permutations
from typing import Any

Entry = Mapping[str, Any]
Square = tuple[int, int]


def hidden_wall(entry: Entry) -> str:
    """knight_swap: it makes a puzzle impossible by taking away a move that the drawn board allows."""
    board = entry["metadata"]["board"]
    for one, other in permutations(board, 2):
        steps = {abs(ord(one[0]) - ord(other[0])), abs(int(one[1:]) - int(other[1:]))}
        if steps == {1, 2} and other not in board[one]:
            return "a move that the drawn board allows is not allowed"
    return ""


def solve_swap(
    board: Mapping[str, list[str]], pieces: Mapping[str, str], start_turn: str = "w"
) -> list[tuple[str, str, str]] | None:
    """knight_swap: the first of the shortest solutions, in the order of squares: upstream's search, with bits.

    Returns:
        (`w` or `B`, from, to) of each move; None if there is no solution.
    """
    squares = sorted(board)
    bit_of = {square: 1 << number for number, square in enumerate(squares)}
    jumps = {bit_of[square]: [bit_of[other] for other in board[square]] for square in squares}
    white, black = (sum(bit_of[square] for square, piece in pieces.items() if piece == color) for color in "wB")
    start = (white, black, start_turn == "w")
    came_from: dict[tuple[int, int, bool], tuple[tuple[int, int, bool], int, int] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        whites, blacks, is_whites_turn = state
        if (whites, blacks) == (black, white):
            return _moves_to(state, came_from, squares)
        mine, taken = whites if is_whites_turn else blacks, whites | blacks
        left = mine
        while left:
            here = left & -left
            left ^= here
            for there in jumps[here]:
                if there & taken:
                    continue
                moved = mine ^ here ^ there
                after = (moved, blacks, False) if is_whites_turn else (whites, moved, True)
                if after not in came_from:
                    came_from[after] = (state, here, there)
                    queue.append(after)
    return None


def _moves_to(state: Any, came_from: Mapping[Any, Any], squares: list[str]) -> list[tuple[str, str, str]]:
    moves = []
    while (step := came_from[state]) is not None:
        state, here, there = step
        moves.append(("w" if state[2] else "B", squares[here.bit_length() - 1], squares[there.bit_length() - 1]))
    return moves[::-1]


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
