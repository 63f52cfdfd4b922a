"""The reader of expressions agrees with Python, bounds what it lets pass, and says what is wrong."""

from __future__ import annotations

import ast
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rg_env.scoring.expressions import Grammar, Refusal, read
from tests.scoring.guard.right_answers import refusal_of

INTEGRALS = Grammar(names=frozenset({"x", "C", "E"}), functions=frozenset({"exp", "log", "sin"}), decimals=True)

_space = st.sampled_from(["", " ", "  ", "\t"])
_number = st.integers(0, 99).map(str)


def _wrap(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(inner, _space, st.sampled_from(["+", "-", "*", "/"]), _space, inner).map("".join)
    return (
        binary
        | inner.map("({})".format)
        | st.tuples(st.sampled_from(["-", "+", "- "]), inner).map("".join)
        | inner.map("({})**2".format)
        | inner.map("2**-({})".format)
    )


_arithmetic = st.recursive(_number, _wrap, max_leaves=8)
_symbolic = st.recursive(
    _number | st.sampled_from(["x", "C", "E", "0.5", "1.e1"]),
    lambda inner: (
        st.tuples(inner, _space, st.sampled_from(["+", "-", "*"]), _space, inner).map("".join)
        | st.tuples(st.sampled_from(["exp", "log", "sin"]), _space, inner).map(lambda parts: "{}{}({})".format(*parts))
        | inner.map("({})".format)
        | inner.map("x**2 + {}".format)
    ),
    max_leaves=5,
)


def python_value(text: str) -> Fraction:
    """The value by Python's own grammar, in exact numbers."""

    class Exact(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Call:
            return ast.Call(ast.Name("Fraction", ast.Load()), [node], [])

    tree = ast.fix_missing_locations(Exact().visit(ast.parse(text, mode="eval")))
    value: Fraction = eval(compile(tree, "", "eval"), {"Fraction": Fraction})
    return value


@given(_arithmetic)
def test_every_arithmetic_expression_of_python_has_pythons_value(text: str) -> None:
    try:
        found = read(text, Grammar(max_exponent=200))
    except Refusal as refusal:
        assert str(refusal) in ("it divides by zero", "an exponent is larger than 200") or "digits" in str(refusal)
        return
    if found.value is not None:
        assert found.value == python_value(text)
    assert [int(digits) for digits in re.findall(r"\d+", found.text)] == [
        node.value for node in sorted(_constants(text), key=lambda node: node.col_offset) if isinstance(node.value, int)
    ]


def _constants(text: str) -> list[ast.Constant]:
    return [node for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Constant)]


@given(_symbolic)
def test_every_expression_of_the_grammar_is_read(text: str) -> None:
    try:
        read(text, INTEGRALS)
    except Refusal as refusal:  # nested exponentials grow fast
        assert "exponent" in str(refusal) or "digits" in str(refusal)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not complete"),
        ("2*", "not complete"),
        ("(1", "a bracket is not closed"),
        ("1)", "cannot be read as one expression"),
        ("1 2", "cannot be read as one expression"),
        ("* 2", "cannot be read as one expression"),
        ("5//2", "`5//2` is not arithmetic"),
        ("2x", "`2x` is not a number that can be read; write * for multiplication"),
        ("x(2)", "write * between x and the bracket"),
        ("sin + x", "the function sin needs its argument in brackets"),
        ("y + 1", "the name `y` is not allowed here"),
        ("integrate(x, x)", "the function `integrate` is not allowed here"),
        ("sin(x, x)", "sin takes one argument"),
        ("log(x, 2, 3)", "log takes two arguments at most"),
        ("3 × 4", "write * for multiplication"),
        ("3 ÷ 4", "write / for division"),
        ("3 − 4", "write - with the ordinary minus sign"),
        ("x^2", "write ** for powers"),
        ("x = 2", "give an expression, not an equation"),
        (r"\frac{1}{2}", "no LaTeX"),
        ("3!", "factorials"),
        ("1\n2", "in one line"),
        ("x.diff", "`x.diff` is not arithmetic"),
        ("s3.5in(x)", "is not a number that can be read"),
        ("1/(2 - 2)", "divides by zero"),
        ("2**10**3", "an exponent is larger than 100"),
        ("(x + 1)**101", "an exponent is larger than 100"),
        ("2**(10**(x - x + 3))", "an exponent is larger than 100"),
        ("exp(2**11)", "an exponent is larger than 1000"),
        ("exp(900*log(2**20))", "an exponent is larger than 1000"),
        ("((9**50)**50)", "more than 2000 digits"),
        ("1e3000", "more than 2000 digits"),
        ("9" * 2001, "more than 2000 digits"),
        ("-" * 81 + "1", "nested more than 80 deep"),
        ("-(" * 81 + "1" + ")" * 81, "nested more than 80 deep"),
        ("1**" * 81 + "1", "nested more than 80 deep"),
        ("1+" * 500 + "1", "more than 1000 numbers"),
    ],
)
def test_refusals_say_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(Refusal) as refusal:
        read(text, INTEGRALS)
    assert reason in str(refusal.value)


def test_just_within_the_bounds_passes() -> None:
    for text in ("(x + 1)**100", "-" * 80 + "1", "(" * 190 + "1" + ")" * 190, "1+" * 499 + "1", "x**(3/2)", "E**(2*x)"):
        read(text, INTEGRALS)


@pytest.mark.parametrize("digits", [2150, 4300, 4301, 8000])
def test_numbers_beyond_what_python_reads_are_refused_and_not_an_error(digits: int) -> None:
    """An item whose own answer is long allows long numbers."""
    own = "+".join(["1"] * 2500)
    entry = {"question": "", "answer": own, "metadata": {"source_dataset": "polynomial_multiplication"}}
    entry["metadata"]["polynomial_expr"] = "x"
    reason = refusal_of(entry, "9" * digits)
    assert (reason is None) == (digits <= 4300)
    assert reason is None or reason == "a number has more than 4300 digits"
