#!/usr/bin/env bash
# NeMo Gym 0.4.0: pass@1 of a question with one partial reward is the reward of its first rollout alone.
#
# The usual guess: pass@1 of eight rollouts is the mean of their eight rewards, in whatever order they came.
# What happens: so it is where all rewards of a question are 0 or 1. One reward between them, and the question has the
#   maximum of its first k instead: at k=1 that of the first rollout. Eight right of eight but for a 0.01 are 100% or 1%,
#   by which came first; with a 0 in its place they are 87.5% at any order. Each question is counted in its own way, in one
#   mean. `pass@1[avg-of-8]` beside it is the mean. At larger k, questions with fewer than k rollouts are left out, so that
#   pass@k can fall where k rises.
# Met by: `compute_pass_majority_metrics` with Reasoning Gym's partial rewards (0.01 for a wrong answer, in many tasks).
# The cure here: a response is solved or not by one threshold, pass@k is estimated from these counts, and the groups that
#   are too small for a k are counted beside it (`pass_at_K_left_out`).
# Python 3.12 gets 0.4.0; 0.7.0, which asks for 3.13.14, has the same lines.
source "$(dirname "$0")/environment.sh"
environment pandas orjson wandb pydantic omegaconf hydra-core rich ray 'openai<=2.7.2'
"$uv" pip install --quiet --python "$python" --no-deps nemo-gym==0.4.0 # one of its modules, without MLflow and others
cd "$work"
cat >run.py <<'PY'
import sys
from importlib.metadata import version

from nemo_gym.reward_profile import compute_pass_majority_metrics


def metrics(*questions):
    return compute_pass_majority_metrics([[{"reward": reward} for reward in rewards] for rewards in questions])[0]


def at(k, seen):
    return seen[f"pass@{k}/accuracy"]


print("nemo-gym", version("nemo-gym"))
CASES = [([1.0] * 7 + [0.0], 87.5), ([0.0] + [1.0] * 7, 87.5), ([1.0] * 7 + [0.01], 100.0), ([0.01] + [1.0] * 7, 1.0)]
changed = False
for rewards, expected in CASES:
    seen = metrics(rewards)
    changed |= at(1, seen) != expected
    print(f"rewards {rewards}: pass@1 {at(1, seen)}, pass@1[avg-of-8] {seen['pass@1[avg-of-8]/accuracy']:.3f}")
seen = metrics([1.0, 1.0], [0.0, 0.0, 0.0, 0.0])
falls = [at(k, seen) for k in (1, 2, 3, 4)]
changed |= falls != [50.0, 50.0, 0.0, 0.0]
print("two rollouts that are right, four of another question that are wrong: pass@1 to pass@4", falls)
sys.exit(changed)
PY
"$python" run.py 2>log || { tail -20 log; exit 1; }
