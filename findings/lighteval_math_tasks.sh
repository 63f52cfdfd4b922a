#!/usr/bin/env bash
# LightEval 0.13.0 compares whole responses with whole solutions in its tasks `math:…`, so no right answer is right.
#
# The usual guess: `maj_at_n` in `math:algebra` and its siblings takes the answer out of each response and out of the
#   solution (`normalize_pred` and `normalize_gold` are set to do so), and compares the most frequent one.
# What happens: the metric has no such settings, they are stored and never read. The vote is between whole texts, and the
#   winner is right only if it is the stored solution, word for word. Every model has a score of 0, with a standard error
#   of 0. And the name of the metric has the address of a function, another one in each run, so runs do not match by name.
# Met by: MATH in LightEval, and own tasks that copy its `sample_params`: names that the metric does not know pass silently.
# The cure here: none, rg_env has no part in it; the setting of `maj_at_n` is called `normalize`.
source "$(dirname "$0")/environment.sh"
environment lighteval==0.13.0 torch==2.13.0 transformers==5.16.1
cd "$work"
cat >run.py <<'PY'
import sys
from importlib.metadata import version

from lighteval.metrics.metrics import Metrics
from lighteval.metrics.normalizations import math_normalizer
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.tasks import math as tasks

print("lighteval", version("lighteval"))
solution = r"We multiply: $6\cdot 7=\boxed{42}$."
doc = tasks.math_prompt({"problem": "What is six times seven?", "solution": solution})
(of_task,) = tasks.math_algebra.metrics
with_normalize = Metrics.maj_at_n(sample_params={"n": 4, "strip_strings": True, "normalize": math_normalizer})


def score(metric, text):
    (value,) = metric.compute_sample(doc=doc, model_response=ModelResponse(text=[text] * 4)).values()
    return value


print("the name of the metric:", of_task.metric_name.split(" at 0x")[0] + " at 0x…")
RESPONSES = {r"\boxed{42}": (0, 1), r"The product is $\boxed{42}$.": (0, 1), "42": (0, 0), solution: (1, 1)}
seen = {}
for response in RESPONSES:
    seen[response] = score(of_task, response), score(with_normalize, response)
    print(f"four times {response!r}: math:algebra {seen[response][0]}, with `normalize` {seen[response][1]}")
sys.exit(seen != RESPONSES or " at 0x" not in of_task.metric_name)
PY
"$python" run.py 2>log || { tail -20 log; exit 1; }
