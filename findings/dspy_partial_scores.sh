#!/usr/bin/env bash
# DSPy 3.4.1 learns from every response whose score is not exactly 0: from wrong ones at 0.01, and at -1.
#
# The usual guess: optimizers that bootstrap keep the responses that the metric calls right, the best ones at least.
# What happens: without `metric_threshold`, a response is kept if its score is true in Python's sense. A wrong answer at 0.01
#   or at -1 becomes a demonstration in the prompt as a right one does, and the first ones are used, not the best.
#   `metric_threshold=0` is the same as none: -1 passes it. `BootstrapFinetune` has no threshold, and trains on all of them.
# Met by: Reasoning Gym's scores, where a wrong answer has 0.01 in many tasks, and rewards of -1 and 1, as DAPO's.
#   `BootstrapFewShot` is also inside `BootstrapFewShotWithRandomSearch`, MIPROv2 and BetterTogether.
# The cure here: a response is solved or not by one threshold wherever examples are chosen; in DSPy, give a metric that
#   returns `score >= threshold` if `trace` is not None.
source "$(dirname "$0")/environment.sh"
environment dspy==3.4.1
cd "$work"
export DSPY_CACHEDIR="$work/cache"
cat >run.py <<'PY'
import sys
from contextlib import redirect_stdout
from importlib.metadata import version

import dspy
from dspy.teleprompt.bootstrap_trace import bootstrap_trace_data
from dspy.utils import DummyLM

print("dspy", version("dspy"))
questions = [dspy.Example(question=f"{n} + {n}", answer=str(2 * n)).with_inputs("question") for n in range(1, 5)]


def metric_of(wrong):
    return lambda example, prediction, trace=None: 1.0 if prediction.answer == example.answer else wrong


def model():
    """Three wrong answers, then the right one to the last question."""
    return DummyLM([{"answer": answer} for answer in ("0", "0", "0", "8")])


def demonstrations(wrong, **threshold):
    dspy.configure(lm=model())
    few_shot = dspy.BootstrapFewShot(metric=metric_of(wrong), max_bootstrapped_demos=2, max_labeled_demos=0, **threshold)
    return [demo.answer for demo in few_shot.compile(dspy.Predict("question -> answer"), trainset=questions).demos]


def fine_tuning_rows(wrong):
    lm = model()
    dspy.configure(lm=lm)
    metric = metric_of(wrong)
    traces = bootstrap_trace_data(dspy.Predict("question -> answer"), questions, metric=metric, num_threads=1)
    return len(dspy.BootstrapFinetune(metric=metric)._prepare_finetune_data(traces, lm)[0])


EXPECTED = [
    (0.0, {}, ["8"]), (0.01, {}, ["0", "0"]), (-1.0, {}, ["0", "0"]), (-1.0, {"metric_threshold": 0}, ["0", "0"]),
    (-1.0, {"metric_threshold": 0.5}, ["8"]),
]
changed = False
for wrong, threshold, expected in EXPECTED:
    with redirect_stdout(sys.stderr):
        seen = demonstrations(wrong, **threshold)
    changed |= seen != expected
    print(f"three wrong answers at {wrong}, one right at 1.0, {threshold or 'no threshold'}: demonstrations {seen}")
for wrong, expected in [(0.0, 1), (0.01, 4), (-1.0, 4)]:
    with redirect_stdout(sys.stderr):
        seen = fine_tuning_rows(wrong)
    changed |= seen != expected
    print(f"three wrong answers at {wrong}, one right at 1.0: BootstrapFinetune keeps {seen} of 4 rows")
sys.exit(changed)
PY
"$python" run.py 2>log || { tail -20 log; exit 1; }
