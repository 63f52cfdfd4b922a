#!/usr/bin/env bash
# tinker-cookbook 0.6.1 with its grader "math_verify": every answer is wrong.
#
# The usual guess: `MathEnv(…, grader="math_verify")` judges as `math_verify.parse` and `verify` do, with a timeout.
# What happens: the grader runs in a thread, for the timeout; there Math-Verify cannot set its own alarm and raises, and the
#   error counts as a timeout and as a wrong answer, 3 for 3 as well. The log has a warning for each answer, and an accuracy
#   and rewards of 0 look like those of a model that cannot do the task. The other grader of the recipe, "sympy", works.
# Met by: recipes that switch to Math-Verify for its notations; own rewards that call it in `asyncio.to_thread` and catch
#   its errors.
# The cure here: answers are judged in processes with limits of their own, and Math-Verify is called without its timeout.
source "$(dirname "$0")/environment.sh"
echo tml-renderers >"$work/overrides.txt" # any version: the newest one is not in every registry
environment --overrides "$work/overrides.txt" tinker-cookbook==0.6.1 math-verify==0.9.0 sympy pylatexenc torch==2.13.0 \
  transformers==5.16.1
cd "$work"
cat >run.py <<'PY'
import sys
from importlib.metadata import version

from tinker_cookbook.recipes.math_rl.math_env import MathEnv
from tinker_cookbook.recipes.math_rl.math_grading import grade_answer_math_verify

print("tinker-cookbook", version("tinker-cookbook"), "math-verify", version("math-verify"))
PAIRS = [("3", "3"), ("0.5", r"\frac{1}{2}"), ("x+1", "1+x"), ("3", "4")]
seen = {}
for gold, answer in PAIRS:
    verdicts = [
        MathEnv("a question", gold, None, grader=grader).check_answer(rf"So it is \boxed{{{answer}}}.")
        for grader in ("math_verify", "sympy")
    ]
    seen[gold, answer] = (*verdicts, grade_answer_math_verify(answer, gold))
    print(f"gold {gold:4} answer {answer:12} math_verify {verdicts[0]!s:6} sympy {verdicts[1]!s:6}", end=" ")
    print("the function behind math_verify, without the thread:", seen[gold, answer][2])
sys.exit(seen != {pair: (False, pair != ("3", "4"), pair != ("3", "4")) for pair in PAIRS})
PY
"$python" run.py 2>log || { tail -20 log; exit 1; }
