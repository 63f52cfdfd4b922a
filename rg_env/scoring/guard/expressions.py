"""Arithmetic expressions, parsed and measured, never evaluated.

Invariant: if `read` returns, the text consists of ASCII numbers, allowed names and operators, and Python parses it the
same way, so that evaluating it can only do arithmetic; and no intermediate result has more digits than the grammar
allows, even if terms cancel. `read` raises only `Refusal`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

CONSTANTS = {"E": 0.5, "pi": 0.5}
"""Named numbers in sympy, each with an upper bound of its decimal logarithm."""

CONSTRUCTORS = frozenset({"Rational", "Integer", "S"})
"""Functions that make numbers in sympy: `Rational(1, 3)` is 1/3."""

_TOKEN = re.compile(
    r"(?P<number>(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])"
    r"|(?P<name>[A-Za-z][A-Za-z0-9_]*)(?!\w)"
    r"|(?P<operator>\*\*|//|[-+*/(),])"
)
_EXPONENTIALS = frozenset({"exp", "sinh", "cosh", "tanh", "coth", "sech", "csch"})
_WITH_TWO_ARGUMENTS = frozenset({"log", "Rational"})
_END: tuple[str | None, str] = (None, "")
_ADVICE = {
    "×": "write * for multiplication",
    "·": "write * for multiplication",
    "÷": "write / for division",
    "−": "write - with the ordinary minus sign",
    "^": "write ** for powers",
    "=": "give an expression, not an equation",
    "\\": "write a plain expression, no LaTeX",
    "$": "write a plain expression, no LaTeX",
    "!": "factorials are not allowed",
}


class Refusal(Exception):  # noqa: N818 (not an error of the program)
    """The reason why an answer is rejected, as a sentence to display."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an expression may contain.

    Attributes:
        names: variables and named constants.
        functions: names that may be called; `log` takes one or two arguments, the others one.
        operators: of + - * / and **; + and - also as signs.
        decimals: whether numbers may have a point or an exponent.
        max_tokens: numbers, names, operators and brackets together.
        max_depth: of brackets, signs and powers in powers.
        max_exponent: bound of the magnitude of an exponent.
        max_digits: of the numerator and denominator of every intermediate result.
    """

    names: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    operators: frozenset[str] = frozenset({"+", "-", "*", "/", "**"})
    decimals: bool = False
    max_tokens: int = 1000
    max_depth: int = 40
    max_exponent: int = 100
    max_digits: int = 2000


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression.

    Attributes:
        integers: every whole number in the text, in order.
        value: the exact value if the expression contains only rational numbers, else None.
    """

    integers: tuple[int, ...]
    value: Fraction | None


@dataclass(frozen=True, slots=True)
class _Bound:
    """A subexpression: its value if known and rational, and upper bounds of its size.

    `top` and `bottom` bound the decimal logarithms of the numerator and denominator from above; both are at least 0.
    Every variable counts as 1 and every sign as plus, so that the bounds also hold for coefficients and for what
    remains when variables cancel (`9**(9**(x - x + 9))`).
    """

    top: float
    bottom: float
    value: Fraction | None = None


def read(text: str, grammar: Grammar) -> Expression:
    """Check an expression.

    Raises:
        Refusal: the text is not an expression of this grammar, or evaluating it would produce too large numbers.
    """
    return _Reader(text, grammar).read()


class _Reader:
    """Recursive descent with Python's precedence. Brackets, signs and powers recurse, at most `max_depth` levels."""

    def __init__(self, text: str, grammar: Grammar) -> None:
        self.grammar = grammar
        self._text = text.strip()  # as sympy does
        self._integers: list[int] = []
        self._tokens = self._tokenize()
        self._kind, self._token = _END
        self._depth = 0

    def read(self) -> Expression:
        self._next()
        whole = self._sum()
        if self._kind is not None:
            raise self._unexpected()
        return Expression(tuple(self._integers), whole.value)

    # -- tokens

    def _tokenize(self) -> Iterator[tuple[str | None, str]]:
        place, count, brackets = 0, 0, 0
        text = self._text
        while place < len(text):
            character = text[place]
            if character in " \t" or (character in "\r\n" and brackets):
                place += 1
                continue
            match = _TOKEN.match(text, place)
            if match is None:
                raise Refusal(_what_is_wrong(text, place))
            token = match.group()
            brackets += (token == "(") - (token == ")")
            count += 1
            if count > self.grammar.max_tokens:
                raise Refusal(f"the expression has more than {self.grammar.max_tokens} numbers, names and signs")
            yield match.lastgroup, token
            place = match.end()

    def _next(self) -> None:
        self._kind, self._token = next(self._tokens, _END)

    def _accept(self, *operators: str) -> str | None:
        """Consume and return the next token if it is one of these operators."""
        if self._kind != "operator" or self._token not in operators:
            return None
        operator = self._token
        if operator not in "()," and operator not in self.grammar.operators:
            raise Refusal(f"the operator {operator} is not allowed here")
        self._next()
        return operator

    # -- grammar

    def _sum(self) -> _Bound:
        left = self._product()
        while operator := self._accept("+", "-"):
            right = self._product()
            value = None
            if left.value is not None and right.value is not None:
                value = left.value + right.value if operator == "+" else left.value - right.value
            top = _log_of_sum(left.top + right.bottom, right.top + left.bottom)
            left = self._bounded(top, left.bottom + right.bottom, value)
        return left

    def _product(self) -> _Bound:
        left = self._sign()
        while operator := self._accept("*", "/"):
            right = self._sign()
            left = self._times(left, _inverse(right) if operator == "/" else right)
        return left

    def _sign(self) -> _Bound:
        if operator := self._accept("+", "-"):
            with _Deeper(self):
                part = self._sign()
            if operator == "-" and part.value is not None:
                return _Bound(part.top, part.bottom, -part.value)
            return part
        return self._power()

    def _power(self) -> _Bound:
        base = self._atom()
        if not self._accept("**"):
            return base
        with _Deeper(self):
            exponent = self._sign()
        return self._raise(base, exponent)

    def _atom(self) -> _Bound:
        kind, token = self._kind, self._token
        if kind == "number":
            self._next()
            return self._number(token)
        if kind == "name":
            self._next()
            if self._kind == "operator" and self._token == "(":
                return self._call(token)
            return self._name(token)
        if self._accept("("):
            with _Deeper(self):
                inner = self._sum()
            self._close()
            return inner
        raise self._unexpected()

    def _close(self) -> None:
        if not self._accept(")"):
            raise Refusal("a bracket is not closed") if self._kind is None else self._unexpected()

    def _unexpected(self) -> Refusal:
        return Refusal(
            "the expression is not complete" if self._kind is None else f"`{self._token}` is not expected here"
        )

    def _call(self, name: str) -> _Bound:
        if name not in self.grammar.functions:
            if name in self.grammar.names:
                raise Refusal(f"write * between {name} and the bracket")
            raise Refusal(f"the function {_quoted(name)} is not allowed here")
        self._accept("(")
        with _Deeper(self):
            arguments = [self._sum()]
            while self._accept(","):
                arguments.append(self._sum())
        self._close()
        most = 2 if name in _WITH_TWO_ARGUMENTS else 1
        if len(arguments) > most:
            raise Refusal(f"{name} takes {'two arguments at most' if most == 2 else 'one argument'}")
        argument = arguments[0]
        if name in CONSTRUCTORS:
            return argument if len(arguments) == 1 else self._times(argument, _inverse(arguments[1]))
        if name in _EXPONENTIALS:
            return self._raise(_Bound(max(1.0, argument.top), max(1.0, argument.bottom)), argument, 10)
        top = sum(part.top for part in arguments)
        bottom = sum(part.bottom for part in arguments)
        return self._bounded(top + 1, bottom + 1, None)

    def _name(self, name: str) -> _Bound:
        if name not in self.grammar.names:
            if name in self.grammar.functions:
                raise Refusal(f"the function {name} needs its argument in brackets")
            raise Refusal(f"the name {_quoted(name)} is not allowed here")
        return _Bound(CONSTANTS.get(name, 0.0), 0.0)

    def _number(self, token: str) -> _Bound:
        if token.removesuffix(".").isdigit():  # a period may follow the last number
            token = token.removesuffix(".")
            if len(token) > self.grammar.max_digits:
                raise Refusal(f"a number has more than {self.grammar.max_digits} digits")
            integer = int(token)
            self._integers.append(integer)
            return _Bound(_log(integer), 0.0, Fraction(integer))
        if not self.grammar.decimals:
            raise Refusal(f"{_quoted(token)} is not a whole number")
        mantissa, _, exponent = token.lower().partition("e")
        if len(exponent) > 4 or len(mantissa) + abs(int(exponent or 0)) > self.grammar.max_digits:
            raise Refusal(f"a number has more than {self.grammar.max_digits} digits")
        value = Fraction(token)
        return _Bound(_log(value.numerator), _log(value.denominator), value)

    # -- bounds

    def _times(self, left: _Bound, right: _Bound) -> _Bound:
        value = left.value * right.value if left.value is not None and right.value is not None else None
        return self._bounded(left.top + right.top, left.bottom + right.bottom, value)

    def _bounded(self, top: float, bottom: float, value: Fraction | None) -> _Bound:
        if max(top, bottom) > self.grammar.max_digits:
            raise Refusal(f"it would compute numbers of more than {self.grammar.max_digits} digits")
        return _Bound(top, bottom, value)

    def _raise(self, base: _Bound, exponent: _Bound, times: int = 1) -> _Bound:
        """A power. If the exponent is a fraction, the value is unknown, because it may be irrational."""
        limit = self.grammar.max_exponent * times
        if exponent.value is not None:
            magnitude = float(min(abs(exponent.value), Fraction(limit + 1)))
        else:
            magnitude = 10**exponent.top if exponent.top <= _log(limit) + 1 else math.inf
        if magnitude > limit:
            raise Refusal(f"an exponent is larger than {limit}")
        size = max(base.top, base.bottom) * magnitude
        bound = self._bounded(size, size, None)
        if base.value is None or exponent.value is None or exponent.value.denominator != 1:
            return bound
        if exponent.value < 0:
            base = _inverse(base)
        return _Bound(size, size, (base.value or Fraction(0)) ** abs(exponent.value.numerator))


class _Deeper:
    """Counts one level of nesting inside the `with` block."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    def __enter__(self) -> None:
        self._reader._depth += 1
        if self._reader._depth > self._reader.grammar.max_depth:
            raise Refusal(f"brackets, signs or powers are nested more than {self._reader.grammar.max_depth} deep")

    def __exit__(self, *_: object) -> None:
        self._reader._depth -= 1


def _inverse(part: _Bound) -> _Bound:
    if part.value == 0:
        raise Refusal("it divides by zero")
    return _Bound(part.bottom, part.top, None if part.value is None else 1 / part.value)


def _log(number: int) -> float:
    return math.log10(number) if number > 1 else 0.0


def _log_of_sum(a: float, b: float) -> float:
    """log10(10**a + 10**b)."""
    high, low = max(a, b), min(a, b)
    return high + math.log10(1 + 10 ** (low - high))


def _what_is_wrong(text: str, place: int) -> str:
    character = text[place]
    if advice := _ADVICE.get(character):
        return advice
    if character.isdigit() and character.isascii():
        rest = re.match(r"[0-9.]*\w*", text[place:])
        shown = _quoted(rest.group() if rest else character)
        return f"{shown} is not a number that can be read; write * for multiplication, and no leading zeros"
    if character == "\n":
        return "an expression has one line"
    return f"the character {_quoted(character)} is not allowed in an expression"


def _quoted(text: str) -> str:
    shown = text if len(text) <= 20 else text[:20] + "…"
    return f"`{shown}`" if shown.isprintable() else ascii(shown)
