#!/usr/bin/env bash
# DSPy 3.4.1 and skyrl-gym 0.4.0: "exact match" leaves out signs and points, so that -5 is right for 5 and 1.5 for 15.
#
# The usual guess: exact match is strict, or forgiving about case and a final full stop at most; numbers stay what they are.
# What happens: all punctuation is removed before the comparison, and `a`, `an`, `the`. `-5` is `5`, `1.5` is `15`, `1/2` is
#   `12`, `x < 3` is `x > 3`, and choice `A` is the empty text. DSPy's `majority` counts votes in the same way: two votes for
#   -3 and one for 3 before them elect 3, and three votes for `A` are left out, so that one for `B` wins.
# Met by: `dspy.evaluate.answer_exact_match` and `dspy.majority` (self-consistency) on arithmetic, fractions and multiple
#   choice; the `search` environment of skyrl-gym with answers that are numbers.
# The cure here: none, rg_env scores its answers with the scorer of each task; in DSPy, pass `normalize=str.strip`.
source "$(dirname "$0")/environment.sh"
environment dspy==3.4.1 skyrl-gym==0.4.0
cd "$work"
export DSPY_CACHEDIR="$work/cache"
cat >run.py <<'PY'
import sys
from importlib.metadata import version

import dspy
from dspy.evaluate import answer_exact_match
from skyrl_gym.envs.search.utils import compute_score

print("dspy", version("dspy"), "skyrl-gym", version("skyrl-gym"))
EXPECTED = {
    ("5", "-5"): True, ("15", "1.5"): True, ("12", "1/2"): True, ("12", "1,2"): True, ("31", "3-1"): True,
    ("x > 3", "x < 3"): True, ("B", "A, B"): True, ("5", "6"): False, ("15", "1 5"): False, ("A", "B"): False,
}
changed = False
for (answer, response), expected in EXPECTED.items():
    by_dspy = bool(answer_exact_match(dspy.Example(answer=answer), dspy.Prediction(answer=response)))
    by_skyrl = compute_score(f"<answer>{response}</answer>", {"target": [answer]}) == 1
    changed |= (by_dspy, by_skyrl) != (expected, expected)
    print(f"answer {answer!r:8} response {response!r:8} right: DSPy {by_dspy}, skyrl-gym {by_skyrl}")
VOTES = [(["3", "-3", "-3"], "3"), (["15", "1.5", "1.5", "2"], "15"), (["A", "A", "A", "B"], "B"), (["C", "C", "B"], "C")]
for votes, expected in VOTES:
    seen = dspy.majority([{"answer": vote} for vote in votes]).answer
    changed |= seen != expected
    print(f"votes {votes}: majority {seen!r}")
sys.exit(changed)
PY
"$python" run.py 2>log || { tail -20 log; exit 1; }
