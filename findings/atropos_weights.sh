#!/usr/bin/env bash
# atroposlib 0.4.0: `CombinedReward` takes no notice of the weights of its rewards, and divides by their sum.
#
# The usual guess: accuracy with a weight of 1 and format with one of 0.1 make 1.1 at most, and a weight of 0 turns one off.
# What happens: a reward that is called by itself is weighted, in `__call__`; `CombinedReward` calls `compute`, which is not.
#   All count once: a wrong answer in the right format has as much as a right answer without it, a weight of 0 counts in
#   full, and one of -1 is added. `normalization="sum"` divides the unweighted sum by the weights: 1.82 of 1.
#   `accuracy` beside it reads no sign and no comma after `####`: `#### -5` is wrong for -5, `#### 1,234` right for 1.
# Met by: environments of Atropos whose rewards come from a list with weights in the configuration.
# The cure here: rg_env adds up its own rewards, and the weights are in its records; there, give the weight to each reward
#   through a subclass whose `compute` multiplies, or call the rewards one by one.
source "$(dirname "$0")/environment.sh"
environment math-verify==0.9.0 latex2sympy2-extended==1.11.0
"$uv" pip install --quiet --python "$python" --no-deps atroposlib==0.4.0 # its reward functions need nothing else
cd "$work"
cat >run.py <<'PY'
import sys
from importlib.metadata import version

from atroposlib.envs.reward_fns import CombinedReward, registry

print("atroposlib", version("atroposlib"))
RESPONSES = {
    "right, with tags": r"<think>6 * 7</think> \boxed{42}",
    "right, without": r"\boxed{42}",
    "wrong, with tags": r"<think>6 * 7</think> \boxed{41}",
}
EXPECTED = [
    ({"accuracy": 1.0, "format": 0.1}, "none", [2.0, 1.0, 1.0]),
    ({"accuracy": 1.0, "format": 0.0}, "none", [2.0, 1.0, 1.0]),
    ({"accuracy": 1.0, "format": -1.0}, "none", [2.0, 1.0, 1.0]),
    ({"accuracy": 1.0, "format": 0.1}, "sum", [1.818, 0.909, 0.909]),
]
changed = False
for weights, normalization, expected in EXPECTED:
    rewards = [{"type": kind, "weight": weight} for kind, weight in weights.items()]
    combined = CombinedReward(rewards=rewards, normalization=normalization)
    seen = [round(reward, 3) for reward in combined(list(RESPONSES.values()), solution="42")]
    changed |= seen != expected
    print(f"weights {weights}, normalization {normalization!r}: {dict(zip(RESPONSES, seen))}")
for weight in (1.0, 0.1, 0.0):
    seen = registry.create({"type": "format", "weight": weight})([RESPONSES["right, with tags"]])
    changed |= seen != [weight]
    print(f"format by itself with a weight of {weight}: {seen[0]}")
for solution, response, expected in [("-5", "#### -5", 0.0), ("1234", "#### 1,234", 0.0), ("1", "#### 1,234", 1.0)]:
    (seen,) = registry.create("accuracy")([response], solution=solution)
    changed |= seen != expected
    print(f"accuracy, solution {solution!r}, response {response!r}: {seen}")
sys.exit(changed)
PY
"$python" run.py 2>log || { tail -20 log; exit 1; }
