#!/usr/bin/env bash
# TextArena 0.7.4: half of the fifteen puzzles cannot be solved, and a reward can be a sentence.
#
# The usual guess: every puzzle has a solution, and a reward is a number: 0 where nothing was done.
# What happens: `FifteenPuzzle` shuffles its tiles, which leaves the wrong parity in every second board; at most part of the
#   reward can be had there. After a second invalid move, `Countdown`, `Cryptarithm` and `Slitherlink` end with the reason as
#   the reward, a text, and the progress as the reason: the two are passed in the wrong order. `RushHour` and `PegJump` pay
#   for invalid moves what the first position is worth: up to 0.25 for a player who made no move.
# Met by: training and evaluation on single-player games, also with verifiers' `textarena` task set, where `float()` of such
#   a reward raises; success rates of the puzzle stop at one half for every model.
# The cure here: none, rg_env has Reasoning Gym's puzzles; there, choose the seeds whose boards have the right parity.
source "$(dirname "$0")/environment.sh"
environment textarena==0.7.4
cd "$work"
cat >run.py <<'PY'
import sys
from contextlib import redirect_stdout
from importlib.metadata import version

import textarena

print("textarena", version("textarena"))


def solvable(board):
    """Every move exchanges the gap with a neighbor: the parity of the tiles has to be that of the gap's way home."""
    tiles = [16 if tile is None else tile for row in board for tile in row]
    inversions = sum(tiles[i] > tiles[j] for i in range(16) for j in range(i + 1, 16))
    row, column = divmod(tiles.index(16), 4)
    return inversions % 2 == (3 - row + 3 - column) % 2


def start(game, seed):
    env = textarena.make(game)
    env.reset(num_players=1, seed=seed)
    return env


def inner(env):
    while hasattr(env, "env"):
        env = env.env
    return env


def reward_without_a_move(game, seed):
    env, done = start(game, seed), False
    while not done:
        done, _ = env.step("I do not know.")
    return env.close()[0][0]


assert solvable([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, None, 15]])
assert not solvable([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 15, 14, None]])
boards = sum(solvable(inner(start("FifteenPuzzle-v0", seed)).board) for seed in range(400))
print(f"FifteenPuzzle-v0: {boards} of 400 boards can be solved")
changed = not 150 < boards < 250
for game in ("Countdown-v0", "Cryptarithm-v0", "Slitherlink-v0"):
    seen = reward_without_a_move(game, 0)
    changed |= not isinstance(seen, str)
    print(f"{game}, two invalid moves: reward {seen!r}")
for game in ("RushHour-v0", "PegJump-v0", "LightsOut-v0"):
    with redirect_stdout(sys.stderr):
        seen = [round(reward_without_a_move(game, seed), 3) for seed in range(8)]
    changed |= (max(seen) > 0) != (game != "LightsOut-v0")
    print(f"{game}, two invalid moves, eight seeds: rewards {seen}")
sys.exit(changed)
PY
"$python" run.py 2>log || { tail -20 log; exit 1; }
