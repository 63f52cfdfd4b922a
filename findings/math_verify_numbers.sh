#!/usr/bin/env bash
# math-verify 0.9.0 compares decimal numbers after rounding both to six digits behind the point, not by their relative
# difference, and reads scientific notation as a product with Euler's number.
#
# The usual guess: two numbers that differ by orders of magnitude are different, and 1e3 is a thousand.
# What happens: for a gold of 1.602 times ten to the power of -19, `0.0` and every other small number is right; and of
# a stored 3e8, neither `300000000` nor `3 \times 10^8` is.
# Met by: data sets of physics (minerva_math has such golds), and golds that JSON stored as floats (`1e-05`).
# The cure here: numbers are compared as numbers first, by their relative difference.
source "$(dirname "$0")/environment.sh"
environment math-verify==0.9.0 latex2sympy2-extended==1.11.0
"$python" - <<'PY'
import sys
from importlib.metadata import version

from math_verify import parse, verify


def right(gold, answer):
    return verify(parse(f"${gold}$"), parse(f"${answer}$"))


print("math-verify", version("math-verify"), "latex2sympy2-extended", version("latex2sympy2-extended"))
TINY = r"1.602\times 10^{-19}"
EXPECTED = {
    (TINY, "0.0"): True,
    (TINY, r"9.11\times 10^{-31}"): True,
    (TINY, "0.0000003"): True,
    ("0.1", "0.1000004"): True,
    ("3e8", "300000000"): False,
    ("3e8", r"3 \times 10^8"): False,
    ("1500000", "1.5e6"): False,
}
seen = {pair: right(*pair) for pair in EXPECTED}
for (gold, answer), verdict in seen.items():
    print(f"gold {gold:22} answer {answer:22} {'right' if verdict else 'wrong'}")
sys.exit(seen != EXPECTED)
PY
