r"""The scorer `math` of a file of questions: the same text, the same number, or what math-verify finds equal.

Invariants:
- math-verify gets whole answers that its LaTeX parser reads as one expression, set or statement; it looks for none in a
  text, and no text is evaluated as Python.
- What is always true or false, such as `x=x`, is worth something only if the right answer is written so.
- Numbers are compared relative to their size, also inside an expression.

A module of its own: math-verify is optional, and scorer processes import it before they get an answer. Not covered:
statements about the domain (`\forall x > 0`), and equations without solutions, which are equal for math-verify.
"""

from __future__ import annotations

import functools
import math as python_math
import re
from collections.abc import Mapping
from typing import Any

import sympy
from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
from math_verify.grader import is_equation, is_relation, should_treat_as_complex, verify
from sympy.core.function import AppliedUndef

from rg_env.scoring.file_scorers import UNREAD, Score
from rg_env.scoring.formatting import canonical, unwrapped
from rg_env.scoring.numbers import ROUNDING, Quantity, Value, ascii_signs, read_quantity, same_quantity
from rg_env.scoring.units import Unit, read_unit, units_agree

_NORMALIZATION = NormalizationConfig(malformed_operators=True, nits=True, boxed="none")
"""Without its units: it takes the last variable of `2-2m` for one."""
_DIGITS = 30
_EXACT_ROUNDING = 1e-25
"""How far the values of two exact expressions may differ, relative to the larger one: not more than by rounding."""
_DECIMALS = 6
_PLACES = (sympy.Rational(37, 100), sympy.Rational(171, 100))
_COMMANDS = {
    "√": "sqrt",
    "∞": "infty",
    "≤": "le",
    "≥": "ge",
    "≠": "ne",
    "∪": "cup",
    "∩": "cap",
    "∈": "in",
    "∅": "emptyset",
    "±": "pm",
    "÷": "div",
    "π": "pi",
    "θ": "theta",
    "α": "alpha",
    "β": "beta",
    "λ": "lambda",
    "μ": "mu",
    "ω": "omega",
    "φ": "phi",
}
_SIGNS = str.maketrans({sign: rf"\{command} " for sign, command in _COMMANDS.items()})
_ENVIRONMENT = re.compile(r"\\begin\{(\w+)\}.*?\\end\{\1\}", re.DOTALL)
_ROOT = re.compile(r"\\?sqrt ?(?:\(([^()]*)\)|([0-9a-zA-Z]))")
_NEGATION = re.compile(r"\b(?:not|never|no|cannot)\b|n't\b|\\neg", re.IGNORECASE)
_PI = re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])")
_TWO_NUMBERS = re.compile(r"(?<![_^.0-9])[0-9.]+\s+[0-9]")
_LONG_WORD = re.compile(r"(?<!\S)[A-Za-z]{4,}(?![^\s,.;])")
_UNIT_AT_END = re.compile(r"(?:\\(?:text|textrm|mathrm|mbox) ?\{[^{}]*\}(?:\^\{?-?[0-9]\}?)?[ /]*)+$")
_NUMBER_OR_COMMAND = re.compile(r"[0-9\\]")
_PLAIN_UNIT_AT_END = re.compile(r" [A-Za-z]+(?: [A-Za-z]+)*(?:/[A-Za-z]+)?(?:\^\{?-?[0-9]\}?)?$")


def math(answer: str, row: Mapping[str, Any]) -> Score:
    """Return whether an answer is the same text, number, set, expression or statement as the right one."""
    right_text, given_text = unwrapped(row["answer"]), unwrapped(answer)
    if "".join(right_text.split()) == "".join(given_text.split()):
        return 1.0
    right_number, given_number = _number(right_text), _number(given_text)
    if right_number and given_number:
        return float(same_quantity(given_number, right_number, ROUNDING))
    # Words are not products of their letters.
    if _LONG_WORD.search(_split_unit(right_text)[0]):
        return float(canonical(right_text) == canonical(given_text))
    given = _read(given_text)
    if given is None:
        return dict(UNREAD)
    right = _read(right_text)
    if right is None:
        return 0.0
    (right_value, right_unit), (given_value, given_unit) = right, given
    return float(units_agree(given_unit, right_unit) and _is_same(right_value, given_value))


def _number(text: str) -> Quantity | None:
    """Return the quantity that a text is; None for `6m`, which is a product here."""
    quantity = read_quantity(text)
    if quantity and quantity.unit and quantity.unit.is_symbol:
        return None
    return quantity


# The right answer is read for every answer to its question.
@functools.lru_cache(maxsize=256)
def _read(text: str) -> tuple[Any, Unit | None] | None:
    """Return what SymPy has for a text, and its unit; None if it is not one expression, set or statement."""
    if quantity := _number(text):
        return _as_sympy(quantity.value), quantity.unit
    text = ascii_signs(text.translate(_SIGNS))
    outside = _ENVIRONMENT.sub("", text)
    # Two answers, or none.
    if "\n" in outside or _TWO_NUMBERS.search(outside) or _NEGATION.search(outside):
        return None
    if outside == text:
        text = text.replace("&", "")
    text, unit = _split_unit(text)
    text = _PI.sub(r"\\pi ", _ROOT.sub(_as_root, text.replace("**", "^")))
    try:
        normal = normalize_latex(text, _NORMALIZATION)
        is_real = not should_treat_as_complex(normal)
        value = latex2sympy(normal, is_real=is_real, convert_degrees=False, normalization_config=None)
    # The parser raises whatever comes, also RecursionError.
    except Exception:
        return None
    return value, unit


def _as_sympy(value: Value) -> Any:
    number = sympy.Rational(value.number.numerator, value.number.denominator)
    if value.is_exact:
        return number
    # A decimal is one for SymPy, too, so that it is compared as one.
    return sympy.Float(number, _DIGITS)


def _as_root(match: re.Match[str]) -> str:
    return rf"\sqrt{{{match[1] or match[2]}}}"


def _split_unit(text: str) -> tuple[str, Unit | None]:
    """Return a text without the unit at its end, which is marked as text or no product of letters, and the unit."""
    end = _UNIT_AT_END.search(text) or _PLAIN_UNIT_AT_END.search(text)
    # It follows a number or a command, such as \pi.
    if end is None or not _NUMBER_OR_COMMAND.search(text[: end.start()]):
        return text, None
    unit = read_unit(end[0])
    if unit is None or unit.is_symbol:
        return text, None
    return text[: end.start()], unit


# -- comparing


def _is_same(right: Any, given: Any) -> bool:
    """Return whether two values of SymPy mean the same."""
    if (right == sympy.S.EmptySet) != (given == sympy.S.EmptySet):
        return False
    if is_relation(right) and (_is_settled(right) or _is_settled(given)):
        return _is_written_the_same(right, given)
    # `x = 5` and `2+3 = 5` are answers to 5, and `3 = 5` is none.
    if is_equation(given) and not is_equation(right) and not _is_honest(given):
        return False
    agree = _values_agree(right, given)
    # Values of numbers tell all; those of expressions with symbols may agree in these places alone. They are asked
    # first since math-verify takes what is small for 0.
    if agree is False or (agree and not _symbols(right) | _symbols(given)):
        return agree
    return bool(verify(right, given, float_rounding=_decimals(right, given), timeout_seconds=None))


def _is_settled(value: Any) -> bool:
    """Return whether a statement is true, or false, whatever its symbols are."""
    if not is_relation(value):
        return False
    if not _symbols(value):
        return True
    if not isinstance(value, sympy.Eq):
        return False
    return bool(_values_agree(value.lhs, value.rhs))


def _is_written_the_same(right: Any, given: Any) -> bool:
    if right == given:
        return True
    return isinstance(right, sympy.Eq) and isinstance(given, sympy.Eq) and right.reversed == given


def _is_honest(equation: Any) -> bool:
    """Return whether the numbers in an equation, or in a chain of them, are one number in different forms, unlike in
    `3=5` and `5=5`."""
    if isinstance(equation, sympy.Eq):
        equations = [equation]
    else:
        equations = list(equation._unsorted_args)
    # For math-verify the last side is the answer.
    last = equations[-1].rhs
    numbers = [part.lhs for part in equations if not _symbols(part.lhs)]
    return all(number != last and _is_same(last, number) for number in numbers)


def _symbols(value: Any) -> set[Any]:
    """Return the symbols of a value, and its functions that are only named, such as f(x)."""
    return {*value.free_symbols, *value.atoms(AppliedUndef)}


def _values_agree(one: Any, other: Any) -> bool | None:
    """Return whether two expressions have the same values where their symbols are certain numbers; None if one has no
    value there."""
    if not isinstance(one, sympy.Expr) or not isinstance(other, sympy.Expr):
        return None
    tolerance = _EXACT_ROUNDING
    if one.has(sympy.Float) or other.has(sympy.Float):
        tolerance = ROUNDING
    # By name, since assumptions about a symbol may differ on the two sides.
    names = sorted({str(symbol) for symbol in one.free_symbols | other.free_symbols})
    for place in _PLACES:
        numbers = {name: place + sympy.Rational(number, 7) for number, name in enumerate(names)}
        try:
            if not _is_close(_with_numbers(one, numbers), _with_numbers(other, numbers), tolerance):
                return False
        # Whatever SymPy raises for what has no value.
        except Exception:
            return None
    return True


def _with_numbers(value: Any, numbers: Mapping[str, Any]) -> Any:
    return value.subs({symbol: numbers[str(symbol)] for symbol in value.free_symbols}).doit()


def _is_close(one: Any, other: Any, tolerance: float) -> bool:
    # The difference has its own 30 digits, so that two large numbers are told apart. Raises TypeError for no number.
    difference = abs((one - other).evalf(_DIGITS))
    size = max(abs(one.evalf(_DIGITS)), abs(other.evalf(_DIGITS)))
    if size == 0:
        return True
    return bool(difference <= tolerance * size)


def _decimals(right: Any, given: Any) -> int:
    """Return to how many decimals math-verify rounds the decimals of two sets or matrices: 6 significant ones."""
    sizes = [abs(float(number)) for value in (right, given) for number in value.atoms(sympy.Float) if number != 0]
    if not sizes or min(sizes) == 0:
        return _DECIMALS
    return max(_DECIMALS, _DECIMALS - 1 - python_math.floor(python_math.log10(min(sizes))))
