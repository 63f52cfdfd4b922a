"""What scorers that evaluate get instead of an answer: data or arithmetic, and scored as upstream scores the answer."""

from __future__ import annotations

import ast
import copy
import math
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import reasoning_gym
from hypothesis import given
from hypothesis import strategies as st

from rg_env.scoring import guard
from rg_env.scoring.expressions import MOST_DIGITS
from tests.scoring.guard.right_answers import AROUND, item_of, variants, written
from tests.scoring.guard.texts import texts_for

Entry = dict[str, Any]
Items = Callable[[str, int], list[Entry]]
LITERALS = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
ARITHMETIC = ("countdown", "puzzle24")
SYMBOLIC = ("intermediate_integration", "polynomial_multiplication", "simple_integration")

_NAMES = guard._FREE_NAMES | {"E", "pi"}
_SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.UAdd, ast.USub)
_DIGITS = 5 * MOST_DIGITS
"""Of a number in the course of the arithmetic: five times what the guard allows for any item."""


def is_plain(value: object) -> bool:
    """Whether it is data: whole numbers and texts, in lists."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return type(value) in (int, str)


def digits(node: ast.AST, variables: set[str], functions: frozenset[str]) -> float:
    """At least the decimal logarithm of the number that arithmetic makes, where a variable is 1.

    Raises ValueError if it is something else, or if a variable has a power above the guard's largest.
    """

    def of(part: ast.AST) -> float:
        match part:
            case ast.Constant() if type(part.value) in (int, float):
                return math.log10(max(1, part.value)) if part.value < 1e300 else float(len(str(part.value)))
            case ast.Name(name) if name in variables:
                return float(name in ("E", "pi"))
            case ast.UnaryOp(op=op, operand=operand) if isinstance(op, _SIGNS):
                return of(operand)
            case ast.BinOp(left=ast.Name(name), op=ast.Pow(), right=right) if name in variables - {"E", "pi"}:
                if magnitude(right) > guard._LARGEST_POWER:
                    raise ValueError(f"a power of {magnitude(right)}")
                return 0.0
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return (of(left) + 1) * magnitude(right)
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _SIGNS):
                return of(left) + of(right) + 0.31
            case ast.Call(func=ast.Name(name), args=arguments, keywords=[]) if name in functions:
                return sum(map(of, arguments)) + (magnitude(arguments[0]) if name.startswith(("exp", "sinh")) else 1)
        raise ValueError(f"not arithmetic: {ast.dump(part)}")

    def magnitude(part: ast.AST) -> float:
        if isinstance(part, ast.Constant):
            return float(part.value)
        return 10.0 ** min(of(part), 300)

    return of(node)


def check_evaluated(task: str, text: str, entry: Entry) -> None:
    """Assert that a text for a scorer that evaluates is data, or arithmetic of bounded size."""
    assert len(text) < 20_000
    if task in LITERALS:
        assert is_plain(ast.literal_eval(text)), text
        return
    tree = ast.parse(text, mode="eval").body
    metadata = entry["metadata"]
    variables, functions = set[str](), frozenset[str]()
    if task == "polynomial_multiplication":
        variables = set(re.findall(r"[A-Za-z]", metadata["polynomial_expr"]))
    elif task in SYMBOLIC:
        variables, functions = {*_NAMES, metadata["variable"]}, guard._FUNCTIONS
    else:
        numbers = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        assert sorted(numbers) == sorted(metadata["numbers"]), text
        assert not any(isinstance(node, ast.Pow) for node in ast.walk(tree)), text
    assert digits(tree, variables, functions) <= _DIGITS, text


@pytest.mark.parametrize("task", guard.REWRITES)
@given(st.data())
def test_what_reaches_a_scorer_that_evaluates_is_data_or_arithmetic_of_bounded_size(
    task: str, data: st.DataObject
) -> None:
    entry = item_of(task)
    answer = data.draw(texts_for(task))
    try:
        _, raw, tagged = guard.admit(entry, answer)
    except guard.Refusal as refusal:
        assert 10 < len(str(refusal)) < 200
        assert str(refusal).isprintable()
        return
    assert tagged == guard.UNREADABLE
    own = [entry["answer"], *entry["metadata"].get("valid_answers", [])]
    if raw not in (guard.UNREADABLE, *own):
        check_evaluated(task, raw, entry)
        assert guard.admit(entry, raw)[1] == raw  # nothing is left to rewrite


# -- the scores are upstream's

DIFFERENCES: dict[str, str] = {
    "puzzle24": "numbers that are not those of the item, and results from 24 to 25, are refused; upstream gives them 1",
    "countdown": "results within 0.001% of the target are refused; upstream gives them 1",
}
"""Task → why an answer may be refused that upstream gives 1."""


@pytest.mark.parametrize(
    ("task", "count"),
    [
        *((task, 250) for task in (*LITERALS, *ARITHMETIC)),
        *((task, 80) for task in SYMBOLIC),  # upstream takes milliseconds for each of them
        *(pytest.param(task, 2000, marks=pytest.mark.weekly) for task in (*LITERALS, *ARITHMETIC, *SYMBOLIC)),
    ],
)
def test_scores_are_those_that_upstream_gives_the_answer_itself(cured_items: Items, task: str, count: int) -> None:
    upstream = reasoning_gym.create_dataset(task, seed=1, size=1)

    def score(text: str) -> float:
        return float(upstream.score_answer(text, copy.deepcopy(entry)))

    compared: list[float] = []
    for number, (entry, answer) in enumerate(_answers(task, cured_items(task, 10), random.Random(task))):
        if len(compared) >= count or number > 20 * count:
            break
        try:
            _, raw, tagged = guard.admit(entry, answer)
        except guard.Refusal:
            assert task in DIFFERENCES or len(answer) > 500 or score(answer) < 0.99, answer
            continue
        assert score(raw) == score(answer), (answer, raw)
        if number % 20 == 0:
            assert score(tagged) == score(f"<answer>{answer}</answer>"), answer
        compared.append(score(answer))
    assert len(compared) == count
    assert sum(one >= 0.1 for one in compared) > count / 20


def _answers(task: str, entries: list[Entry], chance: random.Random) -> Iterator[tuple[Entry, str]]:
    """All written variants, then random answers without end."""
    for entry, answers in written("rewarded", task):
        yield from ((entry, answer) for answer in answers)
    for entry in entries:
        yield from ((entry, answer) for answer in variants(entry, AROUND))
    make = _literal if task in LITERALS else _arithmetic if task in ARITHMETIC else _symbolic
    while True:
        entry = chance.choice(entries)
        yield entry, make(entry, chance)


def _literal(entry: Entry, chance: random.Random) -> str:
    """The right answer, or nearly that, as a list, in rows or as letters, in some notation."""
    rows = [row.split() if " " in row else list(row) for row in str(entry["answer"]).splitlines()]
    if chance.random() < 0.3:
        row = chance.choice(rows)
        row[chance.randrange(len(row))] = chance.choice(["0", "7", "A", "Q", "_", "-3"])
    quote = chance.choice(["", "'", '"'])
    comma, (opening, closing) = chance.choice([",", ", ", " , ", ",\n"]), chance.choice(["[]", "()", "[]"])
    lines = [opening + comma.join(f"{quote}{cell}{quote}" for cell in row) + closing for row in rows]
    joined = ["".join(row) for row in rows]
    flat = opening + comma.join(f"{quote}{cell}{quote}" for row in rows for cell in row) + closing
    forms = [f"[{comma.join(lines)}]", flat, str(joined), "\n".join(map(" ".join, rows)), str(tuple(rows)), lines[0]]
    return chance.choice(forms) + chance.choice(["", "", "\n", " ", ",", "."])


def _arithmetic(entry: Entry, chance: random.Random) -> str:
    """The right answer written anew, or a random tree over the numbers."""
    if chance.random() < 0.5:
        text = str(entry["answer"] or entry["metadata"].get("example_answer") or "1")
        return re.sub(r"[-+*/]", lambda sign: chance.choice(["{}", " {} ", "{} "]).format(sign[0]), text)
    parts = [chance.choice(["", "-", "+", " "]) + str(number) for number in entry["metadata"]["numbers"]]
    chance.shuffle(parts)
    while len(parts) > 1:
        place = chance.randrange(len(parts) - 1)
        whole = f"{parts.pop(place)}{chance.choice(['+', '-', '*', '/', ' - ', ' * ', '**', '/-'])}{parts.pop(place)}"
        parts.insert(place, chance.choice([f"({whole})", whole, f"-({whole})", f"( {whole})"]))
    return parts[0] + chance.choice(["", "", ".", " ", "\n", "+0"])


def _symbolic(entry: Entry, chance: random.Random) -> str:
    """The right answer with zero added in some form, or a random tree."""
    names = sorted(set(re.findall(r"\b[a-zA-Z]\b", entry["metadata"].get("polynomial_expr") or "") or {"C", "K"}))
    variable = entry["metadata"].get("variable") or names[0]
    calls = entry["metadata"]["source_dataset"] == "intermediate_integration"

    def tree(depth: int) -> str:
        if depth == 0:
            return chance.choice(
                [variable, *names, str(chance.randrange(20)), f"{chance.randrange(90) / 8}", "3.", ".5"]
            )
        left, right = tree(depth - 1), tree(depth - 1)
        forms = [f"{left}+{right}", f"{left} - ({right})", f"({left})*({right})", f"-{left}*{right}", f"({left})**2"]
        if calls:
            forms += [f"{chance.choice(['sin', 'exp', 'log', 'sqrt'])}({variable})*({right})", f"({left})/2"]
        return chance.choice(forms)

    if chance.random() < 0.5:
        return tree(chance.randrange(3))
    part = tree(chance.randrange(2))
    zero = chance.choice([f"({part}) - ({part})", f"0*({part})", f"{part}-({part})"])
    return chance.choice([f"{entry['answer']} + {zero}", f"{zero}+{entry['answer']}", f"({entry['answer']})*1"])
