#!/usr/bin/env bash
# verifiers 0.4.0: the last "yes" or "no" of a judge's reply is its verdict, also inside of its reason.
#
# The usual guess: "Yes. There is no difference." is a yes; what is not a bare verdict is an error, as its comments say.
# What happens: if no line begins with a label such as "Verdict:", the last of the words counts, wherever it stands. A yes
#   with a reason against errors ("no step is missing") is a reward of 0, and a no that cites a "yes" is a reward of 1. After
#   a label, the first of the words counts: "Verdict: no errors, so yes" is a no. With letters, the article counts:
#   "B. It gives a different number" is A. An error is raised only if none of the words is there.
# Met by: `ReferenceJudge` with small judges, which add a sentence to the word that its prompt asks for, and tasks whose
#   answers are yes, no or letters.
# The cure here: none, rg_env has no judge; in verifiers, choose labels that no sentence has (`choices=["CORRECT-1", …]`).
source "$(dirname "$0")/environment.sh"
environment verifiers==0.4.0
cd "$work"
cat >run.py <<'PY'
import sys
from importlib.metadata import version

from verifiers.v1.judge import JudgeResponse
from verifiers.v1.judges import ReferenceJudge, ReferenceJudgeConfig

print("verifiers", version("verifiers"))
WORDS, LETTERS = ("yes", "no"), ("A", "B")
EXPECTED = [
    (WORDS, "yes", 1.0), (WORDS, "no", 0.0),
    (WORDS, "Yes. There is no difference between the two.", 0.0),
    (WORDS, "Yes, no step is missing.", 0.0),
    (WORDS, "No. The reference says that the answer is yes.", 1.0),
    (WORDS, "Verdict: no errors, so yes", 0.0),
    (WORDS, "Correct.", "ValueError"),
    (LETTERS, "B", 0.0), (LETTERS, "B. It gives a different number.", 1.0),
    (("CORRECT", "WRONG"), "CORRECT. There is no difference between the two.", 1.0),
]


def reward(choices, reply):
    judge = ReferenceJudge(ReferenceJudgeConfig(choices=choices))
    try:
        return judge.parse(JudgeResponse[float](text=reply))
    except ValueError:
        return "ValueError"


changed = False
for choices, reply, expected in EXPECTED:
    seen = reward(choices, reply)
    changed |= seen != expected
    print(f"right is {choices[0]!r}, wrong is {choices[1]!r}: reply {reply!r:52} reward {seen}")
sys.exit(changed)
PY
"$python" run.py 2>log || { tail -20 log; exit 1; }
