"""The tasks whose scorers run a text as Python: nine run the answer, five a text of the entry (`ENTRIES`).

Invariant: these scorers evaluate only texts that were written here. A rule reads a text without evaluating it and
returns one that was made from what was read: a literal from its value, arithmetic from its tree (`expressions`), or
`UNREADABLE`; or the item's own answer if they are equal, which the scorer compares before it evaluates. Upstream scores
the new text as it would score the old one; where it does not, the rule refuses the answer.
"""

from __future__ import annotations

import ast
import json
import operator
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from rg_env.scoring.guard import expressions
from rg_env.scoring.guard.expressions import CONSTANTS, CONSTRUCTORS, MOST_DIGITS, Grammar, Refusal, read

Entry = Mapping[str, Any]
Rewrite = Callable[[Entry, str], str]
"""(entry, answer) → the text for the scorer. Raises Refusal."""

Cure = Callable[[Entry], Entry]
"""entry → the same with texts that are safe to evaluate. Raises for an entry that reasoning-gym did not make."""

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

_BITWISE = re.compile(r"[0-9a-fA-Fx\s()<>*+-]{1,10000}", re.ASCII)
_BITWISE_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_MOST_BITS = 100_000
_DIGITS = re.compile(r"[-+]?[0-9.]++(?:[eE][-+]?[0-9]++)?")
_LIST_OF_NUMBERS = re.compile(rf"""\[\s*(?:(['"]?){_DIGITS.pattern}\1\s*(?:,\s*|(?=\])))*\]""")
_LARGEST_POWER = 10_000

_MOST_NESTED = 4
_TOKEN = re.compile(
    r"""-?[ \t]*(?:0{1,100}|[1-9][0-9]{0,99})(?![0-9A-Za-z_])|'[][()"\w \t,-]*'|"[][()'\w \t,-]*"|[][(),\r\n]""",
    re.ASCII,
)
_TOKENS = re.compile(rf"(?:{_TOKEN.pattern}|[ \t])*+", re.ASCII)
_BEFORE_A_VALUE = ("", ",", "[", "(")
_CLOSING = {"[": "]", "(": ")"}


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
    """The value of a literal: integers and texts in quotes, in lists and tuples.

    Not by `ast`, which takes 100 ms for 40,000 characters.
    """
    if not _TOKENS.fullmatch(text) or "'''" in text or '"""' in text:
        raise Refusal("it has a part that is not an integer, a text in quotes, or a list of them")
    levels: list[tuple[str, list[Any]]] = [("", [])]
    before = ""
    for token in _TOKEN.findall(text):
        opening, items = levels[-1]
        is_text, has_place = token[0] in "'\"", before in _BEFORE_A_VALUE
        if token in "\r\n":
            if not opening:
                raise Refusal("it has several lines and no brackets around them")
            continue
        if token in "[(" and has_place:
            levels.append((token, []))
            if len(levels) > _MOST_NESTED + 1:
                raise Refusal(f"lists are nested more than {_MOST_NESTED} deep")
        elif opening and token == _CLOSING[opening]:
            levels.pop()
            levels[-1][1].append(items if token == "]" else _in_brackets(items, before))
        elif is_text and before[:1] in ("'", '"'):  # Python joins texts that follow each other
            items[-1] += token[1:-1]
        elif token == "," and not has_place:
            pass
        elif token not in "[](),":
            if not has_place:
                raise Refusal("it cannot be read")
            items.append(token[1:-1] if is_text else int(token.replace(" ", "").replace("\t", "")))
        else:
            raise Refusal("it cannot be read")
        before = token
    if len(levels) > 1 or not before:
        raise Refusal("a bracket is not closed" if before else "the answer is empty")
    return _in_brackets(levels[0][1], before)


def _in_brackets(items: list[Any], last: str) -> Any:
    """What round brackets, or none, make of the values between them: a tuple if there is a comma."""
    return items[0] if len(items) == 1 and last != "," else tuple(items)


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
        raise Refusal(f"the expression must use exactly the given numbers: {', '.join(map(str, given)):.100}")


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
        max_tokens=max(grammar.max_tokens, 2 * len(expressions.TOKEN.findall(own))),
        max_exponent=max(grammar.max_exponent, 2 * max(powers, default=0)),
        max_digits=min(MOST_DIGITS, max(grammar.max_digits, 2 * len(own))),
    )


def _bitwise_arithmetic(entry: Entry) -> Entry:
    """Upstream evaluates the problem, for each answer."""
    problem = entry["metadata"]["problem"]
    if not _BITWISE.fullmatch(problem):
        raise Refusal("its problem is not arithmetic of hexadecimal numbers")
    return _with_metadata(entry, problem=hex(_whole_value(ast.parse(problem, mode="eval").body)))


def _whole_value(node: ast.expr) -> int:
    """The value of an expression of whole numbers. Raises Refusal for anything else, and where it would be large."""
    match node:
        case ast.Constant(int(number)):
            return number
        case ast.UnaryOp(ast.USub(), operand):
            return -_whole_value(operand)
        case ast.BinOp(left, sign, right) if type(sign) in _BITWISE_OPERATORS:
            a, b = _whole_value(left), _whole_value(right)
            if a.bit_length() + b.bit_length() > _MOST_BITS or (isinstance(sign, ast.LShift) and b > _MOST_BITS):
                raise Refusal("its problem has numbers that are too large")
            return int(_BITWISE_OPERATORS[type(sign)](a, b))
    raise Refusal("its problem is not arithmetic of whole numbers")


def _number_sorting(entry: Entry) -> Entry:
    """Upstream evaluates the item's own answer, because its quotes are not JSON's."""
    if not _LIST_OF_NUMBERS.fullmatch(entry["answer"]):
        raise Refusal("its answer is not a list of numbers")
    return {**entry, "answer": json.dumps(_DIGITS.findall(entry["answer"]))}


def _integrand(entry: Entry) -> Entry:
    variable = entry["metadata"]["variable"]
    if not re.fullmatch(r"[A-Za-z]\w{0,19}", variable, re.ASCII):
        raise Refusal("its variable is not a name")
    grammar = Grammar(
        frozenset({*CONSTANTS, variable}), _FUNCTIONS | CONSTRUCTORS, decimals=True, max_exponent=_LARGEST_POWER
    )
    return _with_metadata(entry, integrand=read(entry["metadata"]["integrand"], grammar).text)


def _product(entry: Entry) -> Entry:
    """Upstream parses the item's own answer as it parses an answer."""
    names = frozenset(_NAME.findall(entry["metadata"]["polynomial_expr"]))
    return {**entry, "answer": read(entry["answer"], _grammar_of(entry, names=names, decimals=True)).text}


def _with_metadata(entry: Entry, **texts: str) -> Entry:
    return {**entry, "metadata": {**entry["metadata"], **texts}}


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

ENTRIES: dict[str, Cure] = {
    "bitwise_arithmetic": _bitwise_arithmetic,
    "intermediate_integration": _integrand,
    "number_sorting": _number_sorting,
    "polynomial_multiplication": _product,
    "simple_integration": _integrand,
}
"""Tasks whose scorer evaluates a text of the entry."""
