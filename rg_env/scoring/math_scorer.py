r"""The scorer `math` of a file of questions: the same text, number, point, set or ratio, or what math-verify finds
equal.

Invariants:
- The form of the right answer decides: `(3,7)` is a point or an open interval, `[3,7)` an interval, `\{3,7\}` a set,
  `3, 7` a list in any order, `1010_2` a number with its base.
- math-verify gets whole answers that its LaTeX parser reads as one expression, set or statement; it looks for none in a
  text, and no text is evaluated as Python.
- What is always true or false, such as `x=x`, is worth something only if the right answer is written so.
- Numbers are compared relative to their size, also inside an expression. Symbols in upper and lower case differ.

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
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from latex2sympy2_extended.logic import And
from math_verify.grader import is_equation, is_relation, verify
from sympy.core.function import AppliedUndef

from rg_env.scoring.file_scorers import UNREAD, Score
from rg_env.scoring.formatting import canonical, short_answer, unquoted
from rg_env.scoring.math_forms import based_number, is_empty_set, is_time, parts_agree, parts_of, ratio_of
from rg_env.scoring.numbers import ROUNDING, Quantity, Value, ascii_signs, read_quantity, same_quantity
from rg_env.scoring.units import Unit, read_unit, units_agree

_NORMALIZATION = NormalizationConfig(malformed_operators=True, nits=True, boxed="none")
"""Without its units: it takes the last variable of `2-2m` for one."""
_CONVERSION = ConversionConfig(lowercase_symbols=False)
_DIGITS = 30
_EXACT_ROUNDING = 1e-25
"""How far the values of two exact expressions may differ, relative to the larger one: not more than by rounding."""
_DECIMALS = 6
_PLACES = (sympy.Rational(37, 100), sympy.Rational(171, 100))
_IMAGINARY = {sympy.Symbol("i", real=True): sympy.I, sympy.I: sympy.Symbol("I", real=True)}
"""latex2sympy has these the other way round."""
_COMMANDS = {
    "√": "sqrt",
    "∞": "infty",
    "≤": "le",
    "≥": "ge",
    "≠": "ne",
    "≡": "equiv",
    "∪": "cup",
    "∩": "cap",
    "∈": "in",
    "∅": "emptyset",
    "Ø": "emptyset",
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
    "⟨": "langle",
    "⟩": "rangle",
}
_SIGNS = str.maketrans({sign: rf"\{command} " for sign, command in _COMMANDS.items()})
_FUNCTIONS = "arc(?:sin|cos|tan)|(?:sin|cos|tan)h?|cot|csc|ln|log|exp"
_CLOCK = r"(?<![0-9:])([0-9]{1,2}:[0-9]{2}) ?(?:\\(?:text|textrm|mathrm) ?\{ ?)?"
_OF_DAY = r"\.?[Mm](?![A-Za-z])\.? ?\}?"
_CYCLIC = {
    r"\\pmod ?([0-9]+|[A-Za-z])": r"\\pmod{\1}",
    r"\( ?\\?b?mod ?\{?([0-9]+|[A-Za-z])\}? ?\)": r"\\pmod{\1}",
    rf"{_CLOCK}[Aa]{_OF_DAY}": r"\1 am",
    rf"{_CLOCK}[Pp]{_OF_DAY}": r"\1 pm",
}
"""Congruences, and times of a day."""
_ROWS = {r"\\\\ ?\[[0-9.]+ ?[a-z]{2}\]": r"\\\\ ", r"\\\\ ?(?=\\end\b)": ""}
"""The distance to the next row of a matrix, and a row without anything."""
_REPLACED = {
    **_CYCLIC,
    **_ROWS,
    r"\*\*": "^",
    "<=": r"\\le ",
    ">=": r"\\ge ",
    r"(?<![A-Za-z\\])(?i:oo|inf|infinity)(?![A-Za-z])": r"\\infty ",
    r"(?<=[)\]]) ?U ?(?=[(\[])": r"\\cup ",
    r"\\log ?_ ?(?:e|\{e\})": r"\\ln ",
    r"\\(?:mathrm|text|operatorname) ?\{ ?([ei]) ?\}": r" \1 ",
    rf"(?<![A-Za-z\\])({_FUNCTIONS}|pi|sqrt|sec(?= ?[({{]))(?![A-Za-z])": r"\\\1 ",
    r"\\?sqrt ?(\[[0-9a-z]{1,9}\])? ?(?:\(([^()]*)\)|([0-9a-zA-Z]))": r"\\sqrt\1{\2\3}",
    # Only there: 45 degrees are 45 elsewhere.
    r"(\\(?:sin|cos|tan|cot|sec|csc) ?[({]? ?)([0-9.]{1,20}) ?(?:°|\^ ?\{? ?\\circ ?\}?)": r"\1\\frac{\2\\pi}{180}",
}
"""What people write, and how LaTeX has it."""
_ENVIRONMENT = re.compile(r"\\begin\{(\w+)\}.*?\\end\{\1\}", re.DOTALL)
_NEGATION = re.compile(r"\b(?:not|never|no|cannot)\b|n't\b|\\neg", re.IGNORECASE)
_TWO_NUMBERS = re.compile(r"(?<![_^.0-9])[0-9.]+\s+[0-9]")
_BASE_INSIDE = re.compile(r"(?<![\^_{.\w])[0-9]+ ?_")
_OR = re.compile(r"\\text ?\{ ?or ?\}|\bor\b|\\lor\b|\\vee\b")
_COMPARISON = re.compile(r"[<>]|\\(?:le|ge|lt|gt)(?:q|qslant)?(?![A-Za-z])")
_LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")
_LONG_WORD = re.compile(r"(?<!\S)(?:[A-Za-z]{4,}|(?i:yes|no|odd))(?![^\s,.;])")
_UNIT_AT_END = re.compile(r"(?:\\(?:text|textrm|mathrm|mbox) ?\{[^{}]*\}(?:\^\{?-?[0-9]\}?)?[ /]*)+$")
_LONGEST_UNIT = 200
_NUMBER_OR_COMMAND = re.compile(r"[0-9\\]")
_PLAIN_UNIT_AT_END = re.compile(r" [A-Za-z]+(?: [A-Za-z]+)*(?:/[A-Za-z]+)?(?:\^\{?-?[0-9]\}?)?$")
_SPACE = re.compile(r"(?<![0-9.]) | (?![0-9.])")


def math(answer: str, row: Mapping[str, Any]) -> Score:
    """Return whether an answer is the same text, number, set, expression or statement as the right one."""
    right_text, given_text = unquoted(row["answer"]), unquoted(answer)
    # Not `1 8` and `18`.
    if _without_spaces(right_text) == _without_spaces(given_text):
        return 1.0
    right, given = _in_latex(short_answer(right_text)), _in_latex(short_answer(given_text))
    # What nobody reads, such as a congruence, may be the same.
    if _without_spaces(right) == _without_spaces(given):
        return 1.0
    if is_empty_set(right) or is_empty_set(given):
        return float(is_empty_set(right) and is_empty_set(given))
    # Words are not products of their letters.
    if read_quantity(right) is None and _LONG_WORD.search(_split_unit(right)[0]):
        return float(canonical(right_text) == canonical(given_text))
    agree = _agree(right, given)
    if agree is None:
        return dict(UNREAD)
    return float(agree)


def _without_spaces(text: str) -> str:
    """Return a text without spaces, but for one between two digits."""
    return _SPACE.sub("", " ".join(text.split()))


def _in_latex(text: str) -> str:
    """Return an answer as LaTeX has it, with single spaces."""
    text = ascii_signs(text.translate(_SIGNS))
    text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    for pattern, latex in _REPLACED.items():
        text = re.sub(pattern, latex, text)
    return text.strip()


def _agree(right: str, given: str) -> bool | None:
    """Return whether two answers in LaTeX mean the same; None if the given one cannot be read."""
    right_quantity, given_quantity = read_quantity(right), read_quantity(given)
    if right_quantity and given_quantity and _are_numbers(right_quantity, given_quantity):
        return same_quantity(given_quantity, right_quantity, ROUNDING)
    right_based, given_based = based_number(right), based_number(given)
    if right_based:
        return right_based == given_based
    if given_based:
        # The question may name the base, and the right answer then has digits alone: 1010_2 is right for 1010.
        given = given_based.digits
    right_ratio, given_ratio = ratio_of(right), ratio_of(given)
    if right_ratio or given_ratio:
        return _ratios_agree(right, given, right_ratio, given_ratio)
    right_parts, given_parts = parts_of(right), parts_of(given)
    if right_parts and given_parts:
        return parts_agree(right_parts, given_parts, _agree)
    if _LONG_WORD.search(_split_unit(given)[0]):
        return None
    # `x<3` is not `y<3`, also if a set is made of it.
    are_comparisons = _COMPARISON.search(right) and _COMPARISON.search(given)
    if are_comparisons and set(_LETTER.findall(right)) != set(_LETTER.findall(given)):
        return False
    given_read = _read(given)
    if given_read is None:
        return None
    right_read = _read(right)
    if right_read is None:
        return False
    (right_value, right_unit), (given_value, given_unit) = right_read, given_read
    return units_agree(given_unit, right_unit) and _is_same(right_value, given_value)


def _are_numbers(one: Quantity, other: Quantity) -> bool:
    """Return whether the units are units; False if all are letters that may be variables, as in `6m`: a unit that is
    marked, on either side, settles it."""
    marked = {quantity.unit.is_symbol for quantity in (one, other) if quantity.unit}
    return marked != {True}


def _ratios_agree(right: str, given: str, right_ratio: list[str], given_ratio: list[str]) -> bool | None:
    """Return whether two ratios have the same value. One of two numbers is a fraction, too."""
    if is_time(right_ratio):
        return canonical(right) == canonical(given)
    rights, givens = right_ratio or [right, "1"], given_ratio or [given, "1"]
    if len(rights) != len(givens):
        return False
    for right_part, given_part in zip(rights[:-1], givens[:-1], strict=True):
        agree = _agree(rf"\frac{{{right_part}}}{{{rights[-1]}}}", rf"\frac{{{given_part}}}{{{givens[-1]}}}")
        if not agree:
            return agree
    return True


# The right answer is read for every answer to its question.
@functools.lru_cache(maxsize=256)
def _read(text: str) -> tuple[Any, Unit | None] | None:
    """Return what SymPy has for a text in LaTeX, and its unit; None if it is not one expression, set or statement."""
    quantity = read_quantity(text)
    if quantity and not (quantity.unit and quantity.unit.is_symbol):
        return _as_sympy(quantity.value), quantity.unit
    outside = _ENVIRONMENT.sub("", text)
    # Two answers, or none.
    if "\n" in outside or _NEGATION.search(outside) or _TWO_NUMBERS.search(outside) or _BASE_INSIDE.search(outside):
        return None
    if outside == text:
        text = text.replace("&", "")
    text, unit = _split_unit(text)
    # The parser raises whatever comes, also RecursionError.
    try:
        comparisons = _OR.split(text)
        if len(comparisons) > 1 and all(map(_COMPARISON.search, comparisons)):
            return sympy.Union(*map(_as_set_of_numbers, comparisons)), unit
        return _as_value(text), unit
    except Exception:
        return None


def _as_value(text: str) -> Any:
    """Return what SymPy has for a text in LaTeX. Raises whatever comes."""
    normal = normalize_latex(text, _NORMALIZATION)
    value = latex2sympy(
        normal, is_real=True, convert_degrees=False, normalization_config=None, conversion_config=_CONVERSION
    )
    # An equation would be False at once if its other side is real.
    if isinstance(value, sympy.Eq):
        return sympy.Eq(value.lhs.xreplace(_IMAGINARY), value.rhs.xreplace(_IMAGINARY), evaluate=False)
    return value.xreplace(_IMAGINARY)


def _as_set_of_numbers(comparison: str) -> Any:
    return _as_value(comparison).as_set()


def _as_sympy(value: Value) -> Any:
    number = sympy.Rational(value.number.numerator, value.number.denominator)
    if value.is_exact:
        return number
    # A decimal is one for SymPy, too, so that it is compared as one.
    return sympy.Float(number, _DIGITS)


def _split_unit(text: str) -> tuple[str, Unit | None]:
    """Return a text without the unit at its end, which is marked as text or no product of letters, and the unit."""
    # Only there, since the search takes time by the square of the length.
    start = max(0, len(text) - _LONGEST_UNIT)
    end = _UNIT_AT_END.search(text, start) or _PLAIN_UNIT_AT_END.search(text, start)
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
    if isinstance(right, sympy.Set) and _is_settled(given):
        return False
    # `x = 5` and `2+3 = 5` are answers to 5, and `3 = 5` is none.
    if is_equation(given) and not is_equation(right) and not _is_honest(given):
        return False
    agree = _values_agree(right, given)
    # Values of numbers tell all; those of expressions with symbols may agree in these places alone. They are asked
    # first since math-verify takes what is small for 0.
    if agree is False or (agree and not _symbols(right) | _symbols(given)):
        return agree
    decimals = _decimals(right, given)
    if verify(right, given, decimals, allow_set_relation_comp=True, timeout_seconds=None):
        return True
    # Chains are compared part by part: `5 > x > 3` and `3 < x < 5` are equal as sets.
    return isinstance(right, And) and isinstance(given, And) and _as_set(right) == _as_set(given) != sympy.S.EmptySet


def _as_set(chain: Any) -> Any:
    """Return the set of numbers for which all of a chain of inequalities is true; the empty one if SymPy has none."""
    numbers = sympy.S.Reals
    try:
        for part in chain._unsorted_args:
            numbers &= part.as_set()
    # Whatever SymPy raises for what it cannot solve.
    except Exception:
        return sympy.S.EmptySet
    return numbers


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
    """Return whether two values are close. An infinite one is close only to itself, which 1/0 is not.

    Raises:
        TypeError: one has no number.
    """
    if one.is_infinite or other.is_infinite:
        return bool(one == other)
    # Rational numbers are exact, however large: 2^100 - 1 is not 2^100.
    if tolerance == _EXACT_ROUNDING and one.is_Rational and other.is_Rational:
        return bool(one == other)
    # The difference has its own 30 digits, so that two large numbers are told apart.
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
