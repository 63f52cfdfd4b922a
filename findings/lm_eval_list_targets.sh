#!/usr/bin/env bash
# lm_eval 0.4.13 takes a target in square brackets for a list of right answers, and the first row says so for all rows.
#
# The usual guess: with `doc_to_target: "{{answer}}"` and `exact_match`, a response that is the stored answer is right.
# What happens: a rendered target that reads `[…]` is read as a literal of Python. If that of the first row is, every row has
#   several right answers: the elements of its list, or the letters of its text. `['a', 'b']` is wrong where it is the
#   answer, `b` is right; in another row `42` is wrong where it is the answer, and `4` is right. A list of numbers cannot be
#   answered at all. If the first row has another answer, a list is printed again: `[4,5]` is wrong where it is the answer,
#   `[4, 5]` is right. With `doc_to_target: answer`, the name of the column alone, the answers stay what they are.
# Met by: tasks whose answers are lists or grids (sorting, matrices, sudoku), written as YAML with `{{answer}}`.
# The cure here: none, rg_env scores its answers itself; in lm_eval, write the name of the column without braces.
source "$(dirname "$0")/environment.sh"
environment lm-eval==0.4.13 datasets==5.2.0
cd "$work"
export HF_HUB_OFFLINE=1 HF_HOME="$work/hf"
cat >run.py <<'PY'
import json
import os
import sys
from importlib.metadata import version

from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager


class Scripted(LM):
    """A model that gives prepared responses."""

    def __init__(self, responses):
        super().__init__()
        self.responses = responses

    def generate_until(self, requests, **_):
        return [self.responses[request.args[0]] for request in requests]

    def loglikelihood(self, requests):
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


tasks = TaskManager(include_defaults=False)


def scores(answers, responses, target="{{answer}}"):
    file = f"rows{len(os.listdir())}.jsonl"
    with open(file, "w") as rows:
        for number, answer in enumerate(answers):
            rows.write(json.dumps({"question": f"question {number}", "answer": answer}) + "\n")
    task = {
        "task": "lists", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": file}}, "test_split": "test",
        "output_type": "generate_until", "doc_to_text": "{{question}}", "doc_to_target": target,
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    model = Scripted({f"question {number}": response for number, response in enumerate(responses)})
    seen = simple_evaluate(model=model, tasks=[task], task_manager=tasks, bootstrap_iters=0, log_samples=True)
    return [float(sample["exact_match"]) for sample in seen["samples"]["lists"]]


print("lm_eval", version("lm-eval"))
letters, numbers, last = ["['a', 'b']", "42", "no"], ["[1, 2, 3]", "[4, 5]"], ["42", "[4,5]"]
EXPECTED = [
    ((letters, letters), [0.0, 0.0, 0.0]),
    ((letters, ["b", "4", "n"]), [1.0, 1.0, 1.0]),
    ((numbers, numbers), [0.0, 0.0]),
    ((numbers, ["1", "5"]), [0.0, 0.0]),
    ((last, last), [1.0, 0.0]),
    ((last, ["42", "[4, 5]"]), [1.0, 1.0]),
    ((letters, letters, "answer"), [1.0, 1.0, 1.0]),
]
changed = False
for case, expected in EXPECTED:
    seen = scores(*case)
    changed |= seen != expected
    print(f"answers {case[0]}, responses {case[1]}{', by the name of the column' if len(case) > 2 else ''}: {seen}")
sys.exit(changed)
PY
"$python" run.py 2>log || { tail -20 log; exit 1; }
