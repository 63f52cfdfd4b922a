"""The nine tasks whose scorers run a text as Python: what the scorer gets instead of the answer.

Invariant: no character of an answer reaches these scorers. A rule reads the answer without evaluating it and returns a
text for the scorer that was made from what was read: the item's own answer if they are equal, a literal from its value,
arithmetic from its tree (`expressions`), or `UNREADABLE`. Upstream scores that text as it would score the answer; where
it does not, the rule refuses the answer.
"""

from __future__ import annotations

import ast
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from rg_env.scoring.guard.expressions import CONSTANTS, CONSTRUCTORS, MOST_DIGITS, Grammar, Refusal, read

Entry = Mapping[str, Any]
Rewrite = Callable[[Entry, str], str]
"""(entry, answer) → the text for the scorer. Raises Refusal."""

UNREADABLE = "<answer>"
"""A text that Python cannot parse, like every answer in `<answer>…</answer>`: scorers give it their score for those."""

_FUNCTIONS = frozenset({"exp", "log", "ln", "sqrt", "cbrt", "abs", "Abs"}) | {
    before + function + after
    for before in ("", "a")
    for function in ("sin", "cos", "tan", "cot", "sec", "csc")
    for after in ("", "h")
}
_FREE_NAMES = (
    frozenset(string.ascii_letters) - frozenset("EINOQS")  # which are not variables in sympy
    | {letter + mark + digit for letter in "CcKk" for mark in ("", "_") for digit in string.digits}
    | {"const", "Const", "constant", "Constant"}
)
"""Names of the constant of integration, and variables, which are correct with the factor 0."""
_POWER = re.compile(r"\*\*\s*\(?-?(\d+)")
_NAME = re.compile(r"[A-Za-z]\w*")
_QUOTED = re.compile(r"""(['"])(.*)\1""")

_MOST_NESTED = 4
_LITERAL = re.compile(r"""[][()'"\w\s,-]+""", re.ASCII)
_MINUS_AS_OPERATOR = re.compile(r"""(?:[])'"]|\w)\s*+-|-\s*+[^0-9\s]""", re.ASCII)
_NO_NUMBER = re.compile(r"[0-9]{101}|[0-9][A-Za-z_]")


def _literal(
    right_answers: Callable[[Entry], Iterable[str]], plain: str, described: str, strip: bool = False
) -> Rewrite:
    """For scorers that compare the answer with the item's, and otherwise evaluate it, for partial credit.

    Args:
        right_answers: the texts that the scorer accepts as they are.
        plain: a pattern of the form that the question asks for.
        strip: whether the scorer strips the answer.
    """
    pattern = re.compile(plain, re.ASCII)

    def rewrite(entry: Entry, answer: str) -> str:
        compared = answer.strip() if strip else answer
        for right in right_answers(entry):
            if compared == (right.strip() if strip else right):
                return right
        try:
            return repr(_value(answer.strip(" \t\r\n")))
        except Refusal as refusal:
            if pattern.fullmatch(answer.strip()):
                return UNREADABLE
            raise Refusal(f"the answer is neither {described} nor a list: {refusal}") from None

    return rewrite


def _value(text: str) -> Any:
    """The value of a literal: integers and texts in quotes, in lists and tuples."""
    if not text:
        raise Refusal("the answer is empty")
    if not _LITERAL.fullmatch(text) or _MINUS_AS_OPERATOR.search(text):
        raise Refusal("it has a character that is not part of one")
    if _NO_NUMBER.search(text):
        raise Refusal("it has a number of more than 100 digits, or none that can be read")
    depth = 0
    for character in re.findall(r"[][()]", text):
        depth += 1 if character in "[(" else -1
        if depth > _MOST_NESTED:
            raise Refusal(f"lists are nested more than {_MOST_NESTED} deep")
    try:
        return _literal_value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Refusal("it cannot be read") from None


def _literal_value(node: ast.expr) -> Any:
    match node:
        case ast.List(elements):
            return [_literal_value(element) for element in elements]
        case ast.Tuple(elements):
            return tuple(_literal_value(element) for element in elements)
        case ast.UnaryOp(ast.USub(), ast.Constant(int(number))):
            return -number
        case ast.Constant(value) if type(value) in (int, str):
            return value
    raise Refusal("it has a part that is not an integer, a text in quotes, or a list of them")


def _countdown(entry: Entry, answer: str) -> str:
    target = entry["metadata"]["target"]
    expression = read(answer, _grammar_of(entry, operators=frozenset("+-*/")))
    _check_numbers(expression.integers, entry["metadata"]["numbers"])
    value = expression.value
    if value is None or 0 < abs(value - target) < max(1, abs(target) / 1000):  # the scorer allows for 0.001 %
        raise Refusal(f"the expression is not exactly {target}")
    return expression.text


def _puzzle24(entry: Entry, answer: str) -> str:
    named = re.search(r"operators ([-+*/, ]+)\.", entry["question"])
    operators = frozenset(re.findall(r"[-+*/]", named.group(1))) if named else frozenset("+-*/")
    expression = read(answer, _grammar_of(entry, operators=operators))
    _check_numbers(expression.integers, entry["metadata"]["numbers"])
    value = expression.value
    if value is None or (value != 24 and int(value) == 24):  # the scorer cuts off the fraction
        raise Refusal("the expression is not exactly 24")
    return expression.text


def _check_numbers(used: tuple[int, ...], given: list[int]) -> None:
    if Counter(used) != Counter(given):
        raise Refusal(f"the expression must use exactly the given numbers: {', '.join(map(str, given))}")


def _integration(entry: Entry, answer: str) -> str:
    """Upstream also accepts a quoted expression: sympy parses it, with ^ for powers."""
    names = _FREE_NAMES | CONSTANTS.keys() | {entry["metadata"]["variable"]}
    if quoted := _QUOTED.fullmatch(answer.strip()):
        answer = quoted[2].replace("^", "**")
    return read(answer, _grammar_of(entry, names=names, functions=_FUNCTIONS | CONSTRUCTORS, decimals=True)).text


def _polynomial_multiplication(entry: Entry, answer: str) -> str:
    names = frozenset(_NAME.findall(entry["metadata"]["polynomial_expr"]))
    return read(answer, _grammar_of(entry, names=names, decimals=True)).text


def _grammar_of(entry: Entry, **allowed: Any) -> Grammar:
    """The grammar of answers, with limits of at least twice the size of the stored answer."""
    own = str(entry["answer"])
    powers = [int(digits[:6]) for digits in _POWER.findall(own)]
    grammar = Grammar(**allowed)
    return replace(
        grammar,
        max_tokens=max(grammar.max_tokens, 2 * len(own)),
        max_exponent=max(grammar.max_exponent, 2 * max(powers, default=0)),
        max_digits=min(MOST_DIGITS, max(grammar.max_digits, 2 * len(own))),
    )


def _own_answer(entry: Entry) -> list[str]:
    return [entry["answer"]]


_NUMBERS = r"-?\d{1,9}(?:[\s,]+-?\d{1,9})*"

REWRITES: dict[str, Rewrite] = {
    # eval()
    "binary_matrix": _literal(_own_answer, _NUMBERS, "rows of numbers"),
    "n_queens": _literal(lambda entry: entry["metadata"]["valid_answers"], r"[Q_\s]+", "a board of Q and _"),
    "spiral_matrix": _literal(_own_answer, _NUMBERS, "whole numbers with spaces between", strip=True),
    "string_insertion": _literal(_own_answer, r"[A-E\s]+", "a string of the letters A to E"),
    # sympy's parse_expr(), which is eval() behind a tokenizer
    "countdown": _countdown,
    "intermediate_integration": _integration,
    "polynomial_multiplication": _polynomial_multiplication,
    "puzzle24": _puzzle24,
    "simple_integration": _integration,
}
