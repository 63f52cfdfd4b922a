"""Checks for the nine tasks whose scorers run the answer as Python.

Invariant: an answer that passes is one of these, and nothing else:

1. data: a plain board, a row of numbers, letters that are not names, or a literal (`literals`);
2. arithmetic with numbers, of bounded size (`expressions`);
3. only for the tasks in `CALLING`: such arithmetic that also contains variables, named constants, and calls of sympy's
   elementary functions.

The same text in `<answer>…</answer>` is a syntax error, because it starts with `<`.

Running 1 and 2 as Python calls nothing that the text names, so the worker may score other answers afterwards. The same
holds for 3 if the text has only whole numbers and variables (`calls_code`): a variable is a letter that means nothing
to sympy. Anything else is inert only as far as the named functions and sympy's floats are: its worker is used once.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rg_env.scoring.guard import literals
from rg_env.scoring.guard.expressions import CONSTANTS, CONSTRUCTORS, Grammar, Refusal, read

Rule = Callable[[Mapping[str, Any], str], str | None]
"""(entry, answer) → the reason why the answer is rejected, as a sentence to display; None if it may be scored."""

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
_ROWS_OF_NUMBERS = re.compile(r"-?\d{1,9}(?:[\s,]+-?\d{1,9})*", re.ASCII)


def _literal_or(plain: re.Pattern[str], described: str) -> Rule:
    """Accepts the form that the question asks for, or a Python literal, for which upstream gives partial credit."""

    def rule(entry: Mapping[str, Any], answer: str) -> str | None:
        if plain.fullmatch(answer.strip()):
            return None
        reason = literals.check(answer)
        return reason and f"the answer is neither {described} nor a list: {reason}"

    return rule


def _countdown(entry: Mapping[str, Any], answer: str) -> str | None:
    target = entry["metadata"]["target"]
    expression = read(answer, grammar_of(entry))
    if wrong := _other_numbers(expression.integers, entry["metadata"]["numbers"]):
        return wrong
    value = expression.value
    if value is not None and value != target and abs(value - target) < 1:  # the scorer allows for 0.001 %
        return f"the expression is not exactly {target}"
    return None


def _puzzle24(entry: Mapping[str, Any], answer: str) -> str | None:
    named = re.search(r"operators ([-+*/, ]+)\.", entry["question"])
    operators = frozenset(re.findall(r"[-+*/]", named.group(1))) if named else frozenset("+-*/")
    expression = read(answer, grammar_of(entry, operators=operators))
    if wrong := _other_numbers(expression.integers, entry["metadata"]["numbers"]):
        return wrong
    value = expression.value
    if value is not None and value != 24 and int(value) == 24:  # the scorer cuts off the fraction
        return "the expression is not exactly 24"
    return None


def _integration(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream also accepts a quoted expression: sympy parses it, with ^ for powers."""
    names = _FREE_NAMES | CONSTANTS.keys() | {entry["metadata"]["variable"]}
    if quoted := _QUOTED.fullmatch(answer.strip()):
        answer = quoted[2].replace("^", "**")
    read(answer, grammar_of(entry, names=names, functions=_FUNCTIONS | CONSTRUCTORS, decimals=True))
    return None


def _polynomial_multiplication(entry: Mapping[str, Any], answer: str) -> str | None:
    names = frozenset(_NAME.findall(entry["metadata"]["polynomial_expr"]))
    read(answer, grammar_of(entry, names=names, decimals=True))
    return None


def grammar_of(entry: Mapping[str, Any], **allowed: Any) -> Grammar:
    """The grammar of answers, with limits of at least twice the size of the stored answer."""
    own = str(entry["answer"])
    powers = [int(digits[:6]) for digits in _POWER.findall(own)]
    grammar = Grammar(**allowed)
    return replace(
        grammar,
        max_tokens=max(grammar.max_tokens, 2 * len(own)),
        max_exponent=max(grammar.max_exponent, 2 * max(powers, default=0)),
        max_digits=max(grammar.max_digits, 2 * len(own)),
    )


def _other_numbers(used: tuple[int, ...], given: list[int]) -> str | None:
    if Counter(used) == Counter(given):
        return None
    return f"the expression must use exactly the given numbers: {', '.join(map(str, given))}"


def _refusing(rule: Rule) -> Rule:
    def checked(entry: Mapping[str, Any], answer: str) -> str | None:
        try:
            return rule(entry, answer)
        except Refusal as refusal:
            return str(refusal)

    return checked


CALLING = frozenset({"intermediate_integration", "polynomial_multiplication", "simple_integration"})
"""Tasks whose answers contain names of variables or functions."""

_WHOLE_NUMBERS_AND_VARIABLES = re.compile(r"(?:[0-9+*/()\s-]|\b[A-DF-HJ-MPRT-Za-z]\b)+", re.ASCII)
"""Without E, I, N, O, Q and S, which sympy defines. The guard has rejected a letter before a bracket."""


def calls_code(task: str, answer: str) -> bool:
    """Whether an answer that passed may call a function, so that its worker must not score another one."""
    return task in CALLING and not _WHOLE_NUMBERS_AND_VARIABLES.fullmatch(answer)


RULES: dict[str, Rule] = {
    # eval()
    "binary_matrix": _literal_or(_ROWS_OF_NUMBERS, "rows of numbers"),
    "n_queens": _literal_or(re.compile(r"[Q_\s]+", re.ASCII), "a board of Q and _"),
    "spiral_matrix": _literal_or(_ROWS_OF_NUMBERS, "whole numbers with spaces between"),
    "string_insertion": _literal_or(re.compile(r"[A-E\s]+", re.ASCII), "a string of the letters A to E"),
    # sympy's parse_expr(), which is eval() behind a tokenizer
    "countdown": _refusing(_countdown),
    "intermediate_integration": _refusing(_integration),
    "polynomial_multiplication": _refusing(_polynomial_multiplication),
    "puzzle24": _refusing(_puzzle24),
    "simple_integration": _refusing(_integration),
}
