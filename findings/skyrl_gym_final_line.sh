#!/usr/bin/env bash
# skyrl-gym 0.4.0: a full stop, bold type or `$$` around a right final answer makes it a wrong one, in `aime` and in `gsm8k`.
#
# The usual guess: the parsers of the two environments allow for the punctuation and Markdown that chat models write, as
#   their normalization of `$…$`, `\boxed{}`, commas and units suggests.
# What happens: for the answer 42, `Answer: 42.`, `**Answer:** 42`, `Answer: **42**` and `Answer: $$42$$` have a reward of -1,
#   `#### 42.` and `#### $42` of 0; `$` is removed from the answer later, but the pattern has to match first. In `gsm8k` the
#   first match counts, so that a heading "#### 1. Set up" is the answer 1. In `aime` the text after the last `=` counts:
#   `Answer: x = 7 or x = 42` has a reward of 1, as every list of guesses that ends with the right one.
# Met by: chat models, which write bold labels and full sentences: a part of a low score, and of what training teaches at
#   first, is this. AIME's answers with leading zeros (`042`) are compared as text, too.
# The cure here: rg_env reads its answers in tags; `scorer.normalize` scores them without the formatting around them, too.
source "$(dirname "$0")/environment.sh"
environment skyrl-gym==0.4.0
cd "$work"
"$python" - <<'PY'
import sys
from importlib.metadata import version

from skyrl_gym.envs.aime.env import AIMEEnv
from skyrl_gym.envs.gsm8k.env import GSM8kEnv

print("skyrl-gym", version("skyrl-gym"))
EXPECTED = {
    "aime": {
        "Answer: 42": 1.0, "Answer: $42$": 1.0, "Answer: 42.": -1.0, "**Answer:** 42": -1.0, "Answer: **42**": -1.0,
        "Answer: $$42$$": -1.0, r"Answer: \(42\)": -1.0, "Answer: 042": -1.0, "Answer: x = 7 or x = 42": 1.0,
    },
    "gsm8k": {
        "#### 42": 1.0, "#### 42.": 0.0, "#### $42": 0, "#### **42**": 0, "####42": 0, "#### 42.00": 0.0,
        "#### 1. Set up\n6 times 7 is 42.\n#### 42": 0.0, "#### 4,2": 1.0,
    },
}


def reward(kind, response):
    gold = {"ground_truth": "42"}
    env = AIMEEnv(extras={"reward_model": gold}) if kind == "aime" else GSM8kEnv(extras={"reward_spec": gold})
    return env.step(response)["reward"]


changed = False
for kind, rows in EXPECTED.items():
    for response, expected in rows.items():
        seen = reward(kind, response)
        changed |= seen != expected
        print(f"{kind:5} answer 42, response {response!r}: {seen}")
sys.exit(changed)
PY
