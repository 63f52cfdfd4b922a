#!/usr/bin/env bash
# math-verify 0.9.0 reads a point, a set and a list as the same, drops the base of a number, reads `1:2:3` as a quotient
# of three, and takes letters in upper and lower case for one.
#
# The usual guess: the form of the gold counts, such as the order in a pair of coordinates, or the base of `1010_2`.
# What happens: `3,7` is right for `(3,7)`, `1010` and `1010_3` for `1010_2`, `1:6` for `1:2:3`, and `A+B` for `a+b`;
# `\varnothing` is wrong for `\emptyset`, since it is read as a symbol.
# Met by: golds of MATH with coordinates, bases, ratios, and symbols such as R and r in one formula.
# The cure here: points, sets, lists, ratios and bases are told apart before math-verify compares their parts.
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
    ("(3,7)", "3,7"): True,
    ("(3,7)", r"\{3,7\}"): True,
    (r"\{1,2\}", "(1,2)"): True,
    ("1010_2", "1010"): True,
    ("1010_2", "1010_3"): True,
    ("1:2:3", "1:6"): True,
    ("a+b", "A+B"): True,
    (r"\emptyset", r"\varnothing"): False,
    (r"i", r"\sqrt{-1}"): False,
}
seen = {pair: right(*pair) for pair in EXPECTED}
for (gold, answer), verdict in seen.items():
    print(f"gold {gold:12} answer {answer:12} {'right' if verdict else 'wrong'}")
sys.exit(seen != EXPECTED)
PY
