#!/usr/bin/env bash
# tinker-cookbook 0.6.1 ("sympy", its default) and Inspect 0.3.285 (`math()`): dates, moves and codes are formulas.
#
# The usual guess: an answer that is not a formula is compared as text; letters in another order are another answer.
# What happens: `10/12/2020` is a quotient and equal to `5/6/2020`; `2024-01-05` is 2018 in Inspect. Two letters beside each
#   other are a product, so that `B A` is right for `A B` in both, and `RL` for `LR` in tinker-cookbook, up to two different
#   letters. `0110` is `110`. And units are removed: `year` is right for `day`, `Sun` for `Sunday`. Of whole numbers above
#   2^53, tinker-cookbook compares the nearest float: 9007199254740992 is right for 9007199254740993.
# Met by: a math grader as the one scorer for mixed data: calendars, binary codes, moves in a maze, words, long arithmetic.
# The cure here: a task is judged by its own scorer; `scorer: math` is for questions that ask for a formula.
source "$(dirname "$0")/environment.sh"
environment inspect-ai==0.3.285 math-verify==0.9.0 latex2sympy2-extended==1.11.0 sympy pylatexenc datasets
"$uv" pip install --quiet --python "$python" --no-deps tinker-cookbook==0.6.1 # its grader alone, without torch
cd "$work"
"$python" - <<'PY'
import asyncio
import sys
from importlib.metadata import version
from types import SimpleNamespace

from inspect_ai.scorer import Target, math
from tinker_cookbook.recipes.math_rl.math_grading import grade_answer

print("tinker-cookbook", version("tinker-cookbook"), "inspect_ai", version("inspect-ai"))
EXPECTED = {
    ("10/12/2020", "5/6/2020"): (True, True),
    ("2024-01-05", "2018"): (False, True),
    ("A B", "B A"): (True, True),
    ("X X O", "O X X"): (True, True),
    ("LR", "RL"): (True, False),
    ("abba", "baab"): (True, False),
    ("0110", "110"): (True, True),
    ("day", "year"): (True, False),
    ("Sunday", "Sun"): (True, False),
    ("9007199254740993", "9007199254740992"): (True, False),
}


async def judge(gold, answer):
    state = SimpleNamespace(output=SimpleNamespace(completion=rf"\boxed{{{answer}}}"))
    return (await math()(state, Target(gold))).value == "C"


async def everything():
    return {pair: (grade_answer(pair[1], pair[0]), await judge(*pair)) for pair in EXPECTED}


seen = asyncio.run(everything())
for (gold, answer), (tinker, inspect) in seen.items():
    print(f"gold {gold:17} answer {answer:17} tinker-cookbook {'right' if tinker else 'wrong'}", end="  ")
    print("Inspect", "right" if inspect else "wrong")
sys.exit(seen != EXPECTED)
PY
