"""Arithmetic expressions: read by Python's own parser, measured, and written anew. Nothing is evaluated.

Invariant: if `read` returns, the text is an expression of the grammar, no intermediate result has more digits than the
grammar allows, even if terms cancel, and `Expression.text` means the same to Python and was built from the tree: from
numbers, allowed names and operators. `read` raises only `Refusal`. Takes time linear in the length of the text.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
import sys
from dataclasses import dataclass, replace
from fractions import Fraction

CONSTANTS = {"E": 0.5, "pi": 0.5}
"""Named numbers in sympy, each with an upper bound of its decimal logarithm."""

CONSTRUCTORS = frozenset({"Rational", "Integer", "S"})
"""Functions that make numbers in sympy: `Rational(1, 3)` is 1/3."""

MOST_DIGITS = sys.int_info.default_max_str_digits
"""No number can be longer: Python refuses to read it."""
_MOST_LEVELS = 80
"""Sums, products, signs, powers and calls within each other."""
_EXPONENTIALS = frozenset({"exp", "sinh", "cosh", "tanh", "coth", "sech", "csch"})
_WITH_TWO_ARGUMENTS = frozenset({"log", "Rational"})
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.UAdd: "+", ast.USub: "-"}
_SUM, _PRODUCT = (ast.Add, ast.Sub), (ast.Mult, ast.Div)

_FOREIGN = re.compile(r"[^A-Za-z0-9_ \t\r\n.+*/(),-]")
TOKEN = re.compile(r"[0-9.]+|[A-Za-z_][A-Za-z0-9_]*|\*\*|[-+*/(),]")
_NUMBER = re.compile(r"(0|[1-9][0-9]*)?(\.[0-9]*)?(?:[eE]([+-]?[0-9]+))?")
_UNREADABLE_NUMBER = re.compile(
    r"(?<![\w.])(?:[0-9.]++(?:[eE][+-]?[0-9]++)?+[A-Za-z_]|0[0-9]|[A-Za-z_]\w*+\.[0-9])", re.ASCII
)
"""All texts with a number of which Python's parser would also warn."""
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


@dataclass(frozen=True)
class Grammar:
    """The rules of an expression: its names, functions, operators and limits.

    Attributes:
        names: variables and named constants.
        functions: names that may be called; `log` and `Rational` take one or two arguments, the others one.
        operators: of + - * / and **; + and - also as signs.
        decimals: whether numbers may have digits after the point, or an exponent.
        max_tokens: numbers, names, operators and brackets together.
        max_exponent: bound of the magnitude of an exponent.
        max_digits: of the numerator and denominator of every intermediate result; at most `MOST_DIGITS`.
    """

    names: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    operators: frozenset[str] = frozenset({"+", "-", "*", "/", "**"})
    decimals: bool = False
    max_tokens: int = 1000
    max_exponent: int = 100
    max_digits: int = 2000


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression, and every part of one: its new text, an atom or in brackets, and what is known of its size.

    Attributes:
        top: at least the decimal logarithm of the numerator, and at least 0. Every variable counts as 1 and every sign
            as plus, so that this also holds for coefficients, and for what remains when variables cancel in an
            exponent.
        bottom: the same for the denominator.
        value: the exact value if the expression contains only rational numbers and no power, else None.
    """

    text: str
    top: float
    bottom: float
    value: Fraction | None = None


def read(text: str, grammar: Grammar) -> Expression:
    """Check an expression and write it anew.

    Raises:
        Refusal: the text is not an expression of this grammar, or evaluating it would produce too large numbers.
    """
    text = text.strip().replace("\r\n", "\n").replace("\r", "\n")  # as sympy and Python do
    _check_text(text, grammar)
    try:
        tree = ast.parse(text, mode="eval")
    # MemoryError is how CPython's parser reports nesting that is too deep.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Refusal(_reason_unreadable(text)) from None
    return _TreeReader(text, grammar).read(tree.body)


def _check_text(text: str, grammar: Grammar) -> None:
    """Refuse what can be refused without parsing, so that the parser only sees texts of bounded size."""
    if match := _FOREIGN.search(text):
        raise Refusal(_ADVICE.get(match[0], f"the character {_quote(match[0])} is not allowed in an expression"))
    # Before Python's parser sees it, which warns of `1if` on the terminal.
    if match := _UNREADABLE_NUMBER.search(text):
        shown = _quote(match[0])
        raise Refusal(f"{shown} is not a number that can be read; write * for multiplication, and no leading zeros")
    # The parser takes time and stack by the number of tokens, so it gets no more than an answer may need. No more are
    # looked for, either: a long text would take milliseconds.
    found = itertools.islice(TOKEN.finditer(text), grammar.max_tokens + 1)
    tokens = [match[0] for match in found]
    if max(map(len, tokens), default=0) > grammar.max_digits:
        raise Refusal(f"a number has more than {grammar.max_digits} digits")
    if len(tokens) > grammar.max_tokens:
        raise Refusal(f"the expression has more than {grammar.max_tokens} numbers, names and signs")


class _TreeReader:
    """Reads a tree. Recurses `_MOST_LEVELS` at most, of which a sum of many terms is one."""

    def __init__(self, text: str, grammar: Grammar) -> None:
        self._lines = text.split("\n")
        self._grammar = grammar

    def read(self, node: ast.expr, depth: int = 0) -> Expression:
        if depth > _MOST_LEVELS:
            raise Refusal(f"operations are nested more than {_MOST_LEVELS} deep")
        match node:
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                return self._chain(node, _SUM, depth + 1)
            case ast.BinOp(op=ast.Mult() | ast.Div()):
                return self._chain(node, _PRODUCT, depth + 1)
            case ast.BinOp(op=ast.Pow()):
                return self._read_power(node, depth + 1)
            case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
                return self._read_signed(node, depth + 1)
            case ast.Call(func=ast.Name(name), args=[_, *_], keywords=[]):
                return self._call(name, node.args, depth + 1)
            case ast.Name(name):
                return self._name(name)
            # By exact type: True is an int, too.
            case ast.Constant() if type(node.value) in (int, float):
                return self._number(self._source(node))
        # Anything else that Python has, such as attributes, subscripts and comparisons.
        raise Refusal(f"{_quote(self._source(node))} is not arithmetic")

    def _read_power(self, node: ast.BinOp, depth: int) -> Expression:
        sign = self._sign(node.op)
        base = self.read(node.left, depth)
        exponent = self.read(node.right, depth)
        return self._raise(base, exponent, f"({base.text}{sign}{exponent.text})")

    def _read_signed(self, node: ast.UnaryOp, depth: int) -> Expression:
        sign = self._sign(node.op)
        operand = self.read(node.operand, depth)
        value = operand.value
        if sign == "-" and value is not None:
            value = -value
        return replace(operand, text=f"({sign}{operand.text})", value=value)

    def _chain(self, node: ast.expr, kinds: tuple[type[ast.operator], ...], depth: int) -> Expression:
        """Read a sum or a product, which Python nests to the left."""
        # Unrolled, so that a sum of a thousand terms takes one level and not a thousand.
        rest: list[tuple[ast.operator, ast.expr]] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, kinds):
            rest.append((node.op, node.right))
            node = node.left
        whole = self.read(node, depth)
        texts = [whole.text]
        for operator, operand in reversed(rest):
            sign, right = self._sign(operator), self.read(operand, depth)
            texts += [sign, right.text]
            if kinds == _SUM:
                whole = self._sum(sign, whole, right)
            else:
                whole = self._product(sign, whole, right)
        return replace(whole, text=f"({''.join(texts)})")

    def _call(self, name: str, nodes: list[ast.expr], depth: int) -> Expression:
        if name not in self._grammar.functions:
            if name in self._grammar.names:
                raise Refusal(f"write * between {name} and the bracket")
            raise Refusal(f"the function {_quote(name)} is not allowed here")
        arguments = [self.read(node, depth) for node in nodes]
        most = 2 if name in _WITH_TWO_ARGUMENTS else 1
        if len(arguments) > most:
            raise Refusal(f"{name} takes {'two arguments at most' if most == 2 else 'one argument'}")
        argument = arguments[0]
        text = f"{name}({', '.join(argument.text for argument in arguments)})"
        if name in CONSTRUCTORS:
            number = argument if len(arguments) == 1 else self._product("/", argument, arguments[1])
            return replace(number, text=text)
        if name in _EXPONENTIALS:
            base = Expression(
                "", max(1.0, argument.top), max(1.0, argument.bottom)
            )  # e is below 10, whose logarithm is 1
            return self._raise(base, argument, text, times=10)
        # Other functions give numbers of about as many digits as their arguments have.
        top = sum(argument.top for argument in arguments)
        bottom = sum(argument.bottom for argument in arguments)
        return self._bound(top + 1, bottom + 1, None, text)

    def _name(self, name: str) -> Expression:
        if name not in self._grammar.names:
            if name in self._grammar.functions:
                raise Refusal(f"the function {name} needs its argument in brackets")
            raise Refusal(f"the name {_quote(name)} is not allowed here")
        return Expression(name, CONSTANTS.get(name, 0.0), 0.0)

    def _number(self, source: str) -> Expression:
        """A number's text is its digits as they are written: sympy counts them, and 2. is not 2 there."""
        match = _NUMBER.fullmatch(source)
        if match is None:
            raise Refusal(f"{_quote(source)} is not a number that can be read")
        whole, decimals, exponent = match.groups()
        if len(source) + abs(int(exponent or 0)) > self._grammar.max_digits:
            raise Refusal(f"a number has more than {self._grammar.max_digits} digits")
        if exponent is None and decimals in (None, "."):  # a point may follow, as at the end of a sentence
            value = Fraction(int(whole))
        elif self._grammar.decimals:
            value = Fraction(source)
        else:
            raise Refusal(f"{_quote(source)} is not a whole number")
        return Expression(source, _log(value.numerator), _log(value.denominator), value)

    def _source(self, node: ast.expr) -> str:
        """Return the text of a node that stands in one line."""
        return self._lines[node.lineno - 1][node.col_offset : node.end_col_offset]

    def _sign(self, operator: ast.operator | ast.unaryop) -> str:
        sign = _OPERATORS[type(operator)]
        if sign not in self._grammar.operators:
            raise Refusal(f"the operator {sign} is not allowed here")
        return sign

    # -- bounds

    def _sum(self, sign: str, left: Expression, right: Expression) -> Expression:
        # Over the common denominator: a/b + c/d = (ad + cb) / bd. In logarithms, as the numbers may not fit a float.
        value = None
        if left.value is not None and right.value is not None:
            if sign == "+":
                value = left.value + right.value
            else:
                value = left.value - right.value
        low, high = sorted((left.top + right.bottom, right.top + left.bottom))
        top = high + math.log10(1 + 10 ** (low - high))  # log10(10**low + 10**high)
        return self._bound(top, left.bottom + right.bottom, value)

    def _product(self, sign: str, left: Expression, right: Expression) -> Expression:
        if sign == "/":
            if right.value == 0:
                raise Refusal("it divides by zero")
            # A quotient is a product with numerator and denominator of the divisor exchanged.
            inverse = None if right.value is None else 1 / right.value
            right = Expression("", right.bottom, right.top, inverse)
        value = None
        if left.value is not None and right.value is not None:
            value = left.value * right.value
        return self._bound(left.top + right.top, left.bottom + right.bottom, value)

    def _raise(self, base: Expression, exponent: Expression, text: str, times: int = 1) -> Expression:
        """Bound a power. Its value, which may be irrational, is not needed: the tasks with exact values allow none."""
        limit = self._grammar.max_exponent * times
        # 10**top is computed only if it can be below the limit, since it overflows above 308.
        magnitude = 10**exponent.top if exponent.top <= _log(limit) + 1 else math.inf
        if exponent.value is not None:
            magnitude = float(min(abs(exponent.value), Fraction(limit + 1)))
        if magnitude > limit:
            raise Refusal(f"an exponent is larger than {limit}")
        # The exponent may be negative, which exchanges numerator and denominator: both get the larger bound.
        size = max(base.top, base.bottom) * magnitude
        return self._bound(size, size, None, text)

    def _bound(self, top: float, bottom: float, value: Fraction | None, text: str = "") -> Expression:
        if max(top, bottom) > self._grammar.max_digits:
            raise Refusal(f"it would compute numbers of more than {self._grammar.max_digits} digits")
        return Expression(text, top, bottom, value)


def _log(number: int) -> float:
    return math.log10(number) if number > 1 else 0.0


def _reason_unreadable(text: str) -> str:
    if text.count("(") > text.count(")"):
        return "a bracket is not closed"
    if not text or text[-1] in "+-*/(,":
        return "the expression is not complete"
    return "the text cannot be read as one expression; write * for multiplication, and all of it in one line"


def _quote(text: str) -> str:
    shown = text if len(text) <= 20 else text[:20] + "…"
    return f"`{shown}`" if shown.isprintable() else ascii(shown)
