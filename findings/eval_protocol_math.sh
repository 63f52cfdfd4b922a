#!/usr/bin/env bash
# eval-protocol 0.3.33: `math_reward` reads `#### 1234` as 123, and one number of the right ones is enough.
#
# The usual guess: a final line as GSM8K writes it is read to its end, and a list of numbers asks for all of them.
# What happens: after `####`, a number without commas ends with its third digit: `#### 1234` is wrong for 1234, and
#   `#### 1239` is right for `#### 1234`. If the answer has several numbers, a response is right with one of them, in any
#   order: `1` for `1, 2, 3`. Numbers may differ by a thousandth, 12355 is right for 12345; `\boxed{1,234}` is not read.
#   In `accuracy_reward` of the same package, 41 has 0.8 of the reward for 42, the first equation of a response is its
#   answer, `north` holds the answer "no", and words are compared as a set: a knight and a knave may change places.
# Met by: GSM8K's own answers from 1000 on, written without commas as models do; lists; knights and knaves.
# The cure here: none, rg_env scores its answers itself; there, pass the answer in `<answer>` tags, or a `compare_fn` to it.
source "$(dirname "$0")/environment.sh"
environment eval-protocol==0.3.33
cd "$work"
export LITELLM_LOCAL_MODEL_COST_MAP=True
cat >run.py <<'PY'
import sys
from importlib.metadata import version

from eval_protocol.models import Message
from eval_protocol.rewards.accuracy import accuracy_reward
from eval_protocol.rewards.math import math_reward

print("eval-protocol", version("eval-protocol"))
KNIGHTS = "Zoey is a knight, and Riley is a knave"
EXPECTED = {
    "math_reward": [
        ("1234", "#### 1234", 0.0), ("#### 1234", "#### 1239", 1.0), ("#### 1234", "#### 1234", 1.0),
        ("999", "#### 999", 1.0), ("1234", "<answer>1234</answer>", 1.0), ("1234", r"\boxed{1234}", 1.0),
        ("1234", r"\boxed{1,234}", 0.0),
        ("1, 2, 3", "3, 2, 1", 1.0), ("1, 2, 3", "1", 1.0), ("12345", "12355", 1.0),
    ],
    "accuracy_reward": [
        ("42", "The answer is 42", 1.0), ("42", "The answer is 41", 0.8),
        ("42", r"3 + 4 = 7, and 7 * 6 = 42. \boxed{42}", 0.0),
        ("east, north", "The path is north, then east", 1.0), ("east, north", "The path is north", 1.0),
        (KNIGHTS, "Zoey is a knave, and Riley is a knight", 1.0), ("1, 2, 3", "The answer is 1, 5, 7", 1.0),
    ],
}


def score(kind, answer, response):
    messages = [Message(role="user", content="A question"), Message(role="assistant", content=response)]
    if kind == "math_reward":
        return math_reward(messages=messages, ground_truth=answer).score
    return accuracy_reward(messages=messages, ground_truth=[Message(role="assistant", content=answer)]).score


changed = False
for kind, cases in EXPECTED.items():
    for answer, response, expected in cases:
        seen = score(kind, answer, response)
        changed |= seen != expected
        print(f"{kind}: answer {answer!r}, response {response!r}: {seen}")
sys.exit(changed)
PY
"$python" -W ignore run.py 2>log || { tail -20 log; exit 1; }
