"""What scorers that evaluate get instead of an answer: harmless, and scored as upstream scores the answer."""

from __future__ import annotations

import ast
import copy
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import reasoning_gym
from hypothesis import example, given
from hypothesis import strategies as st

from rg_env.scoring import guard
from tests.scoring.guard.right_answers import AROUND, item_of, variants, written

Entry = dict[str, Any]
Items = Callable[[str, int], list[Entry]]
LITERALS = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
ARITHMETIC = ("countdown", "puzzle24")
SYMBOLIC = ("intermediate_integration", "polynomial_multiplication", "simple_integration")

_NODES = (
    *(ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Load, ast.Name, ast.Call),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.UnaryOp, ast.USub, ast.UAdd),
)
_NAMES = guard._FUNCTIONS | guard._FREE_NAMES | {"E", "pi", "Rational", "Integer", "S"}
_PARTS = ["1", "2", "x", "X", "C", "+", "-", "*", "/", "**", "(", ")", ".", "e", "exp(", "sin(", "[", "]", "'A'", ","]
_JUNK = st.lists(st.sampled_from([*_PARTS, " ", "\n", "\\", "_", "import", "'", '"', "\u00a0", "x.y", "1_0"])).map(
    "".join
)


def is_harmless(text: str) -> bool:
    """By Python's own parser: data, or arithmetic with numbers and known names."""
    nodes = list(ast.walk(ast.parse(text, mode="eval")))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    return (
        all(isinstance(node, _NODES) for node in nodes)
        and names <= _NAMES
        and all(isinstance(function, ast.Name) for function in called)
    )


@given(_JUNK)
@example("(1\r+2)")
@example("1" + "\n" * 50)
def test_what_reaches_a_scorer_that_evaluates_is_made_by_us(answer: str) -> None:
    for task in guard.REWRITES:
        entry = item_of(task)
        try:
            admitted = guard.admit(entry, answer)
        except guard.Refusal:
            continue
        _, raw, tagged = admitted
        assert tagged == guard.UNREADABLE
        own = [entry["answer"], *entry["metadata"].get("valid_answers", [])]
        if raw not in (guard.UNREADABLE, *own):
            assert is_harmless(raw), (task, answer)
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
        *((task, 600) for task in (*LITERALS, *ARITHMETIC)),
        *((task, 200) for task in SYMBOLIC),  # upstream takes milliseconds for each of them
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
