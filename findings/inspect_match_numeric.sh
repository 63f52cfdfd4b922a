#!/usr/bin/env bash
# Inspect 0.3.285: `match(numeric=True)` compares five digits, and passes over numbers that touch LaTeX.
#
# The usual guess: the last number of the response is compared with the target, as numbers.
# What happens: both are printed with five significant digits first. Of 1234567, 1234599 is right; of 100001, 100002 is.
#   And a "number" stands alone between spaces: `\boxed{42}`, `x=42` and `<answer>42</answer>` do not, and the last one before
#   them counts. "We have 12 apples. The answer is \boxed{42}." is wrong for 42 and right for 12.
# Met by: arithmetic with products, powers and large counts; models that were trained to write `\boxed{}`, also on GSM8K and
#   MGSM in inspect_evals, which use this scorer.
# The cure here: none, rg_env scores its answers itself; in Inspect, `match()` without `numeric` compares text, and `math()`
#   reads the box.
source "$(dirname "$0")/environment.sh"
environment inspect-ai==0.3.285
cd "$work"
"$python" - <<'PY'
import asyncio
import sys
from importlib.metadata import version
from types import SimpleNamespace

from inspect_ai.scorer import Target, match

print("inspect_ai", version("inspect-ai"))
BOXED = r"We have 12 apples. The answer is \boxed{42}."
EXPECTED = {
    ("1234567", "The answer is 1234599"): "C",
    ("100001", "100002"): "C",
    ("15241578750190521", "15241600000000000"): "C",
    ("12345", "12346"): "I",
    ("42", r"\boxed{42}"): "I",
    ("42", BOXED): "I",
    ("12", BOXED): "C",
    ("42", "So x=42"): "I",
    ("42", "The answer is $42$."): "C",
}


async def judge(target, response):
    state = SimpleNamespace(output=SimpleNamespace(completion=response))
    return (await match(numeric=True)(state, Target(target))).value


seen = {pair: asyncio.run(judge(*pair)) for pair in EXPECTED}
for (target, response), value in seen.items():
    print(f"target {target:17} response {response!r:47} {'right' if value == 'C' else 'wrong'}")
sys.exit(seen != EXPECTED)
PY
