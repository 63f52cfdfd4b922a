"""Matrices, boards and mazes."""

from __future__ import annotations

import ast
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

from scripts.oracles import Solver, verified

Grid = list[list[Any]]
_AROUND = ((0, 1), (1, 0), (0, -1), (-1, 0))


def grid_in(text: str, cell: Callable[[str], Any] = int) -> Grid:
    """The last block of lines that are nothing but numbers or single characters with spaces between."""
    blocks: list[Grid] = [[]]
    for line in text.splitlines():
        row = line.split()
        if row and all(re.fullmatch(r"-?\d+|[A-Z*#_@%$+.-]", word) for word in row):
            blocks[-1].append([cell(word) for word in row])
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block][-1]


def written(grid: Iterable[Iterable[Any]]) -> str:
    return "\n".join(" ".join(map(str, row)) for row in grid)


def distances(starts: Iterable[tuple[int, int]], free: Callable[[int, int], bool]) -> dict[tuple[int, int], int]:
    """Steps from the nearest start to every square that can be reached."""
    found = dict.fromkeys(starts, 0)
    queue = deque(found)
    while queue:
        y, x = queue.popleft()
        for dy, dx in _AROUND:
            if (y + dy, x + dx) not in found and free(y + dy, x + dx):
                found[y + dy, x + dx] = found[y, x] + 1
                queue.append((y + dy, x + dx))
    return found


def inside(grid: Grid) -> Callable[[int, int], bool]:
    return lambda y, x: 0 <= y < len(grid) and 0 <= x < len(grid[y])


def squares(grid: Grid, *values: Any) -> list[tuple[int, int]]:
    return [(y, x) for y, row in enumerate(grid) for x, cell in enumerate(row) if cell in values]


def _nearest_zero(question: str, *_: Any) -> str:
    grid = grid_in(question)
    steps = distances(squares(grid, 0), inside(grid))
    return written([steps[y, x] for x in range(len(grid[y]))] for y in range(len(grid)))


def _island(question: str, *_: Any) -> str:
    grid, best = grid_in(question), 0
    land = set(squares(grid, 1))
    for square in squares(grid, 1):
        best = max(best, len(distances([square], lambda y, x: (y, x) in land)))
    return str(best)


def _oranges(question: str, *_: Any) -> str:
    grid = grid_in(question)
    fresh = set(squares(grid, 1))
    steps = distances(squares(grid, 2), lambda y, x: (y, x) in fresh)
    return str(max([steps[square] for square in fresh], default=0)) if fresh <= steps.keys() else "-1"


def _maze(question: str, *_: Any) -> str:
    start, goal, wall = re.search(r"from '(.)' \(start\) to '(.)'.*'(.)' = Wall", question, re.DOTALL).groups()
    grid = [list(line) for line in question.split("\n```")[1].strip("\n").splitlines()]
    here = inside(grid)
    steps = distances(squares(grid, start), lambda y, x: here(y, x) and grid[y][x] != wall)
    return str(steps.get(squares(grid, goal)[0], "infeasible"))


def _path(question: str, _: Any, answer: str) -> str:
    grid = grid_in(question, str)
    here = inside(grid)
    steps = distances(squares(grid, "*"), lambda y, x: here(y, x) and grid[y][x] != "X")
    (goal,), (place,) = squares(grid, "#"), squares(grid, "*")
    if goal not in steps:
        return "infeasible"
    for word in answer.split():
        dy, dx = {"right": (0, 1), "down": (1, 0), "left": (0, -1), "up": (-1, 0)}[word]
        place = place[0] + dy, place[1] + dx
        if place not in steps:
            return verified(False, answer)
    return verified(place == goal and len(answer.split()) == steps[goal], answer)


def turned(grid: Grid, quarters: int) -> Grid:
    """Clockwise."""
    for _ in range(quarters % 4):
        grid = [list(row) for row in zip(*reversed(grid), strict=True)]
    return grid


def _rotate(question: str, *_: Any) -> str:
    degrees = int(re.search(r"by (\d+) degrees", question).group(1))
    return written(turned(grid_in(question), degrees // 90))


def _spiral(question: str, *_: Any) -> str:
    grid, found = grid_in(question), []
    while grid:
        found += grid.pop(0)
        grid = turned(grid, 3) if grid else grid
    return " ".join(map(str, found))


def _pooled(question: str, *_: Any) -> str:
    grid, size = grid_in(question), int(re.search(r"kernel size of (\d+)", question).group(1))
    rows = []
    for top in range(0, len(grid), size):
        row = []
        for left in range(0, len(grid[0]), size):
            block = [cell for line in grid[top : top + size] for cell in line[left : left + size]]
            row.append(max(block) if "Perform max" in question else round(sum(block) / len(block), 2))
        rows.append(row)
    return written(rows)


def _manipulated(question: str, *_: Any) -> str:
    grid = grid_in(question.split("Perform the following")[0])
    for line in re.findall(r"^- (.*)", question, re.MULTILINE):
        numbers = [int(digits) for digits in re.findall(r"\d+", line)]
        match line.split()[0], line.split()[1]:
            case "Rotate", _:
                grid = turned(grid, numbers[0] // 90)
            case "Horizontally", _:
                grid = grid[::-1]
            case "Vertically", _:
                grid = [row[::-1] for row in grid]
            case "Mirror", _ if "counterdiagonal" in line:
                grid = turned([list(row) for row in zip(*grid, strict=True)], 2)
            case "Mirror", _:
                grid = [list(row) for row in zip(*grid, strict=True)]
            case "Map", _:
                grid = [[numbers[1] if cell == numbers[0] else cell for cell in row] for row in grid]
            case "Set", _:
                grid = [[0 if cell % numbers[0] == 0 else cell for cell in row] for row in grid]
            case "Crop", _:
                grid = [row[numbers[2] - 1 : numbers[3]] for row in grid[numbers[0] - 1 : numbers[1]]]
            case "Remove", _:
                kept = lambda place, n=numbers[0]: (place + 1) % n  # noqa: E731
                if "row" in line:
                    grid = [row for y, row in enumerate(grid) if kept(y)]
                else:
                    grid = [[cell for x, cell in enumerate(row) if kept(x)] for row in grid]
            case "Identity", _:
                pass
            case other:
                raise ValueError(other)
    return written(grid)


def generations(alive: set[tuple[int, int]], height: int, width: int) -> Iterator[set[tuple[int, int]]]:
    """Conway's game of life on a torus, from the given board on."""
    while True:
        yield alive
        near: dict[tuple[int, int], int] = {}
        for y, x in alive:
            for dy, dx in product((-1, 0, 1), repeat=2):
                if dy or dx:
                    square = (y + dy) % height, (x + dx) % width
                    near[square] = near.get(square, 0) + 1
        alive = {square for square, count in near.items() if count == 3 or (count == 2 and square in alive)}


def _board(question: str) -> Grid:
    text = question[question.rindex("[[") :].rstrip(". \n")
    return ast.literal_eval(re.sub(r"(?<=\d)\s+(?=\d)", ", ", re.sub(r"\]\s+\[", "], [", text)))


def _life(question: str, *_: Any) -> str:
    board, steps = _board(question), int(re.search(r"after (\d+) steps", question).group(1))
    run = generations(set(squares(board, 1)), len(board), len(board[0]))
    last = [next(run) for _ in range(steps + 1)][-1]
    return json.dumps([[int((y, x) in last) for x in range(len(row))] for y, row in enumerate(board)])


def _halting(question: str, _: Any, answer: str) -> str:
    """Upstream's scorer pays any text: ours is compared with the stored answer here."""
    board, steps = _board(question), int(re.search(r"before (\d+) steps", question).group(1))
    run = generations(set(squares(board, 1)), len(board), len(board[0]))
    return verified(str(any(not next(run) for _ in range(steps + 1))) == answer, answer)


def latin(size: int, given: Grid, box: tuple[int, int], fits: Callable[[Grid, int, int], bool]) -> Iterator[str]:
    """Every way to fill the zeros so that rows, columns and boxes hold each number once, and `fits` holds."""
    best = None
    for y, x in squares(given, 0):
        used = set(given[y]) | {row[x] for row in given}
        top, left = y // box[0] * box[0], x // box[1] * box[1]
        used |= {cell for row in given[top : top + box[0]] for cell in row[left : left + box[1]]}
        options = []
        for number in set(range(1, size + 1)) - used:
            given[y][x] = number
            if fits(given, y, x):
                options.append(number)
        given[y][x] = 0
        if best is None or len(options) < len(best[2]):
            best = y, x, options
    if best is None:
        yield written(given)
        return
    y, x, options = best
    for number in options:
        given[y][x] = number
        yield from latin(size, given, box, fits)
    given[y][x] = 0


def first(found: Iterator[str], most: int = 3) -> list[str]:
    return [answer for answer, _ in zip(found, range(most), strict=False)]


def _sudoku(question: str, *_: Any) -> list[str]:
    grid = [[0 if cell == "_" else int(cell) for cell in row] for row in grid_in(question, str)]
    size = len(grid)
    return first(latin(size, grid, (int(size**0.5),) * 2, lambda *_: True))


def _futoshiki(question: str, *_: Any) -> list[str]:
    lines = re.search(r"puzzle:\n\n(.*?)\n\nEnsure", question, re.DOTALL).group(1).split("\n")
    grid = [[0 if cell == "_" else int(cell) for cell in re.findall(r"[_\d]", line)] for line in lines[::2]]
    less = set()
    for y, line in enumerate(lines[::2]):
        less |= {(y, place // 4, y, place // 4 + 1) for place, sign in enumerate(line) if sign == "<"}
        less |= {(y, place // 4 + 1, y, place // 4) for place, sign in enumerate(line) if sign == ">"}
    for y, line in enumerate(lines[1::2]):
        less |= {(y, place // 4, y + 1, place // 4) for place, sign in enumerate(line) if sign == "∧"}
        less |= {(y + 1, place // 4, y, place // 4) for place, sign in enumerate(line) if sign == "∨"}

    def fits(given: Grid, y: int, x: int) -> bool:
        pairs = ((given[a][b], given[c][d]) for a, b, c, d in less if (y, x) in ((a, b), (c, d)))
        return all(not small or not large or small < large for small, large in pairs)

    def laid_out(solution: str) -> str:
        rows = iter(solution.splitlines())
        filled = []
        for number, line in enumerate(lines):
            cells = iter(next(rows).split()) if number % 2 == 0 else iter(())
            filled.append(re.sub(r"[_\d]", lambda _, cells=cells: next(cells), line))
        return "\n".join(filled)

    return [laid_out(solution) for solution in first(latin(len(grid), grid, (1, 1), fits))]


def _survo(question: str, *_: Any) -> list[str]:
    grid = grid_in(question)
    numbers = ast.literal_eval(re.search(r"(?:numbers|set):? (\[.*?\])", question).group(1))
    size, found = len(grid) - 1, set()

    def fill(empty: list[tuple[int, int]], left: list[int]) -> None:
        for y, row in enumerate(grid):
            if 0 not in row and sum(row[:size]) != row[size]:
                return
            column = [line[y] for line in grid]
            if 0 not in column and sum(column[:size]) != column[size]:
                return
        if not empty:
            found.add(written(grid))
            return
        (y, x), *others = empty
        for number in set(left):
            grid[y][x] = number
            rest = list(left)
            rest.remove(number)
            fill(others, rest)
            grid[y][x] = 0

    fill(squares(grid, 0), numbers)
    return sorted(found)[:3]


def _kakurasu(question: str, *_: Any) -> list[str]:
    rows, columns = (ast.literal_eval(text) for text in re.findall(r"\[[0-9, ]+\]", question)[:2])
    options = [
        [
            bits
            for bits in product((0, 1), repeat=len(columns))
            if sum(x + 1 for x, bit in enumerate(bits) if bit) == total
        ]
        for total in rows
    ]

    def fill(y: int, left: tuple[int, ...]) -> Iterator[str]:
        if y == len(rows):
            if not any(left):
                yield ""
            return
        for bits in options[y]:
            rest = tuple(total - (y + 1) * bit for total, bit in zip(left, bits, strict=True))
            if min(rest) >= 0:
                yield from (written([bits]) + "\n" + below for below in fill(y + 1, rest))

    return [answer.strip() for answer in first(fill(0, tuple(columns)))]


def _queens(question: str, *_: Any) -> list[str]:
    board = grid_in(question, str)
    size = len(board)

    def place(y: int, taken: list[int]) -> Iterator[list[int]]:
        if y == size:
            yield taken
            return
        fixed = [x for x in range(size) if board[y][x] == "Q"]
        for x in fixed or range(size):
            if all(x != other and abs(x - other) != y - row for row, other in enumerate(taken)):
                yield from place(y + 1, [*taken, x])

    solutions = (written(["Q" if x == queen else "_" for x in range(size)] for queen in row) for row in place(0, []))
    return first(solutions, 5)


def _sokoban(question: str, _: Any, answer: str) -> str:
    grid = grid_in(question, str)
    (player,) = squares(grid, "*", "%")
    boxes, goals = set(squares(grid, "@", "$")), set(squares(grid, "X", "$", "%"))
    for move in answer:
        dy, dx = {"L": (0, -1), "R": (0, 1), "U": (-1, 0), "D": (1, 0)}[move.upper()]
        ahead, beyond = (player[0] + dy, player[1] + dx), (player[0] + 2 * dy, player[1] + 2 * dx)
        if ahead in boxes:
            if grid[beyond[0]][beyond[1]] == "+" or beyond in boxes:
                return verified(False, answer)
            boxes = boxes - {ahead} | {beyond}
        if grid[ahead[0]][ahead[1]] == "+":
            return verified(False, answer)
        player = ahead
    return verified(boxes == goals, answer)


def _go(question: str, *_: Any) -> str | None:
    """The move of Black's that captures most stones; None if two capture as many."""
    lines = question.split("```")[1].strip("\n").splitlines()[1:]
    board = [line.split()[1:] for line in lines]
    names = question.split("```")[1].split("\n")[1].split()
    here, captures = inside(board), {}
    for y, x in squares(board, "."):
        board[y][x] = "X"
        dead: set[tuple[int, int]] = set()
        for dy, dx in _AROUND:
            if here(y + dy, x + dx) and board[y + dy][x + dx] == "O":
                group = distances([(y + dy, x + dx)], lambda a, b: here(a, b) and board[a][b] == "O")
                if not any(here(a + c, b + d) and board[a + c][b + d] == "." for a, b in group for c, d in _AROUND):
                    dead |= group.keys()
        board[y][x] = "."
        captures[f"{names[x]}{len(board) - y}"] = len(dead)
    best = [move for move, count in captures.items() if count == max(captures.values())]
    return best[0] if len(best) == 1 and captures[best[0]] else None


SOLVERS: dict[str, Solver] = {
    "binary_matrix": _nearest_zero,
    "futoshiki": _futoshiki,
    "game_of_life": _life,
    "game_of_life_halting": _halting,
    "kakurasu": _kakurasu,
    "largest_island": _island,
    "manipulate_matrix": _manipulated,
    "maze": _maze,
    "mini_sudoku": _sudoku,
    "n_queens": _queens,
    "pool_matrix": _pooled,
    "rotate_matrix": _rotate,
    "rotten_oranges": _oranges,
    "shortest_path": _path,
    "sokoban": _sokoban,
    "spiral_matrix": _spiral,
    "sudoku": _sudoku,
    "survo": _survo,
    "tsumego": _go,
}
