#!/usr/bin/env bash
# pydantic-evals 2.62.0: cases that failed are not in the averages, so that one right answer of ten can be 100%.
#
# The usual guess: a case without a result counts as 0, as with DSPy's `Evaluate`; or the number of cases stands beside it.
# What happens: the averages are taken over the cases that have a score. A task that raises because the response has no
#   answer is listed under failures, and left out; so is a score whose evaluator raises on a response that it cannot read,
#   though that case is among the cases. With `repeat`, a case is averaged over the repetitions that worked.
#   A model that answers only what it knows is better than one that tries.
# Met by: parsers of answers in the task, which raise (`int()`, `json.loads`), and evaluators that do; CI with a threshold.
# The cure here: a response without an answer has its reward and counts; rows that are left out are counted beside each mean.
source "$(dirname "$0")/environment.sh"
environment pydantic-evals==2.62.0
cd "$work"
cat >run.py <<'PY'
import sys
from dataclasses import dataclass
from importlib.metadata import version

from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Evaluator

print("pydantic-evals", version("pydantic-evals"))
RESPONSES = ["4"] + ["I am not sure."] * 9


@dataclass
class Right(Evaluator):
    def evaluate(self, context):
        return float(int(context.output) == context.expected_output)


def summary(task, repeat=1):
    cases = [Case(name=str(number), inputs=number, expected_output=4) for number in range(10)]
    report = Dataset(name="sums", cases=cases, evaluators=[Right()]).evaluate_sync(task, progress=False, repeat=repeat)
    failed = sum(len(case.evaluator_failures) for case in report.cases)
    return report.averages().scores, len(report.cases), len(report.failures), failed


attempts = {}


def sometimes(number):
    """The first question is right four times of four, every other one once in four: three have no answer."""
    attempts[number] = attempts.get(number, 0) + 1
    return 4 if number == 0 or attempts[number] == 1 else int(RESPONSES[1])


EXPECTED = [
    ("the task parses the responses", lambda number: int(RESPONSES[number]), 1, ({"Right": 1.0}, 1, 9, 0)),
    ("the evaluator parses them", lambda number: RESPONSES[number], 1, ({"Right": 1.0}, 10, 0, 9)),
    ("nothing fails", lambda number: 4 if number == 0 else 0, 1, ({"Right": 0.1}, 10, 0, 0)),
    ("four repetitions, 13 right of 40", sometimes, 4, ({"Right": 1.0}, 13, 27, 0)),
]
changed = False
for name, task, repeat, expected in EXPECTED:
    seen = summary(task, repeat)
    changed |= seen != expected
    print(f"{name}: averages {seen[0]} over {seen[1]} cases, {seen[2]} failures of the task, {seen[3]} of the evaluator")
sys.exit(changed)
PY
"$python" run.py 2>log || { tail -20 log; exit 1; }
