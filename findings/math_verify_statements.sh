#!/usr/bin/env bash
# math-verify 0.9.0 pays any true statement for a gold that is a true statement, and takes the last symbol of an
# expression for a unit.
#
# The usual guess: a gold that is an equation asks for that equation, and `2-2m` is a term in m.
# What happens: both sides of a numeric equation are evaluated, and True equals True, so `x=x` is right for `2+2=4`;
# behind a number, a symbol such as m, g or t is dropped as a unit, so `0` is right for `2-2m`.
# Met by: public sets whose golds are equations or linear terms (college_math, olympiadbench, minerva_math).
# The cure here: such an answer is right only if it is written as the gold is, and symbols are no units.
source "$(dirname "$0")/environment.sh"
environment math-verify==0.9.0 latex2sympy2-extended==1.11.0
"$python" - <<'PY'
import sys
from importlib.metadata import version

from math_verify import parse, verify


def right(gold, answer):
    return verify(parse(f"${gold}$"), parse(f"${answer}$"))


print("math-verify", version("math-verify"), "latex2sympy2-extended", version("latex2sympy2-extended"))
EXPECTED = {
    (r"2+2=4", "x=x"): True,
    (r"2+2=4", "1=1"): True,
    (r"\log_6(216)=3", "x=x"): True,
    ("2-2m", "0"): True,
    ("2-4t", "-2"): True,
    ("9.8", "9.8t"): True,
    ("2-2q", "0"): False,
}
seen = {pair: right(*pair) for pair in EXPECTED}
for (gold, answer), verdict in seen.items():
    print(f"gold {gold:16} answer {answer:8} {'right' if verdict else 'wrong'}")
sys.exit(seen != EXPECTED)
PY
