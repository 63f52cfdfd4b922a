"""Answers for the guard, and what it says about one.

`answers.json` has written answers, `NOTATIONS` legitimate ways to write the right answer to an item, for every guarded
task but rush_hour, whose items do not say how they are solved.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import reasoning_gym

from rg_env.scoring import guard

HERE = Path(__file__).parent


def refusal_of(entry: Mapping[str, Any], answer: str) -> str | None:
    """The reason why the guard rejects the answer; None if it may be scored."""
    try:
        guard.admit(entry, answer)
    except guard.Refusal as refusal:
        return str(refusal)
    return None


@functools.cache
def item_of(task: str) -> dict[str, Any]:
    """An item of a task; not to be changed."""
    item: dict[str, Any] = reasoning_gym.create_dataset(task, seed=3, size=5)[0]  # one alone would be of few kinds
    return item


def entry_of(task: str, **fields: Any) -> dict[str, Any]:
    metadata = {"source_dataset": task, **fields.pop("metadata", {})}
    return {"question": "", "answer": "", **fields, "metadata": metadata}


def written(kind: str, task: str = "") -> list[tuple[dict[str, Any], list[str]]]:
    """Entries with answers that upstream rewards (by at least 0.1; by 1), or that are near to them and wrong.

    Args:
        kind: `rewarded` (by a scorer that evaluates), `right` or `wrong`.
        task: only those of this task.
    """
    rows = json.loads((HERE / "answers.json").read_text())[kind]
    return [(entry_of(row["task"], **row["entry"]), row["answers"]) for row in rows if task in ("", row["task"])]


Notations = Callable[[str], Iterable[str]]
SPACED = ("{}", " {}", "{} ", "{}\n", "\n{}\n", "\t{}")
AROUND = (
    *(*SPACED, "\n{}", "{}\r\n", "{}\u00a0"),
    *("{}.", "{}. ", "{},", "+{}", "-(-({}))"),
    *("({})", "( {} )", "(({}))", "[{}]", "'{}'", '"{}"'),
    *("**{}**", "*{}*", "`{}`", "```\n{}\n```"),
    *("${}$", "$${}$$", r"\({}\)", r"\[{}\]", r"\boxed{{{}}}", r"$\boxed{{{}}}$", r"\text{{{}}}"),
)
"""Whitespace, period, signs, brackets, quotes, Markdown and LaTeX around an answer."""


def answer_of(entry: Mapping[str, Any]) -> str:
    metadata = entry["metadata"]
    return str(entry["answer"] or metadata.get("example_answer") or metadata.get("example_correct_answer"))


def _probabilities(answer: str) -> list[str]:
    value = Fraction(answer)
    return [
        re.sub(r"^(\d+\.\d+)$", r"\g<1>0", answer),
        answer.removeprefix("0"),
        f"{float(value):.12e}",
        f"{float(value):.4f}" if value > 0.00005 else answer,  # 0.0000 is not right
        f"{float(value):.4g}",
        f"{value}",
        f"{value}".replace("/", " / "),
    ]


def _complex(answer: str) -> list[str]:
    return [answer.replace(" ", ""), answer.replace("i", "j"), f"({answer})", answer.replace(" ", "  ")]


def _boards(answer: str) -> list[str]:
    board = json.loads(answer)
    cells = [[[kind(cell) for cell in row] for row in board] for kind in (int, float, bool)]
    return [
        *(
            json.dumps(notation, **style)
            for notation in cells
            for style in ({}, {"separators": (",", ":")}, {"indent": 1})
        ),
        re.sub(r"(\d)", r"\g<1>.00", answer),
    ]


def _roles(answer: str) -> list[str]:
    said = re.findall(r"\w+ is an? \w+", answer)
    return [
        answer.removesuffix("."),
        answer.lower(),
        ", ".join(said),
        " and ".join(said),
        ", and ".join(said[::-1]) + ".",
    ]


def _lists(answer: str) -> list[str]:
    return [answer.replace(" ", ""), answer.replace("'", '"'), answer.replace(", ", ",\n"), answer.replace("'", "")]


def _factors(answer: str) -> list[str]:
    factors = [factor.strip() for factor in answer.split("×")]
    return [
        "×".join(factors),
        "  ×  ".join(factors),
        " × ".join(factors[::-1]),
        " × ".join(f"0{f}" for f in factors),
        " × ".join(f"+{f}" for f in factors),
    ]


def _expressions(answer: str) -> list[str]:
    return [
        answer.replace(" ", ""),
        re.sub(r"(?<!\*)\*(?!\*)", " * ", answer),
        answer.replace("/", " / "),
        re.sub(r"\b(\d+)\b", r"(\1)", answer),
        f"(\n{answer}\n)",
    ]


def _decimals(answer: str) -> list[str]:
    return [*_expressions(answer), re.sub(r"\b(\d+)\b", r"\1.0", answer), re.sub(r"\b(\d+)\b", r"\1e0", answer)]


def _integrals(answer: str) -> list[str]:
    bare = answer.removesuffix(" + C")
    constants = ("C_1", "C_0", "C1", "c", "c_1", "K", "k", "D", "const", "constant", "5", "C + 0", "pi", "0*X + C")
    notations = [
        answer,
        re.sub(r"\b(\d+)/(\d+)\b", r"Rational(\1, \2)", answer),
        re.sub(r"/(\d+)", r"*S(1)/\1", answer),
    ]
    return [*_decimals(answer), *notations, bare, *(f"{bare} + {constant}" for constant in constants)]


def _json(answer: str) -> list[str]:
    value = json.loads(answer)
    notations = [json.dumps(value, separators=(",", ":")), json.dumps(value, indent=2)]
    return notations if isinstance(value, dict) else []


def _solutions(answer: str) -> list[str]:
    return [answer.replace(" ", ""), ", ".join(answer.split(", ")[::-1]), re.sub(r"(\.\d+)", r"\g<1>0", answer)]


def _moves(answer: str) -> list[str]:
    return [answer.replace(" ", "  "), answer.replace(" ", "\n")]


_AS_IT_IS = (
    *("acre", "binary_matrix", "course_schedule", "isomorphic_strings", "mahjong_puzzle", "n_queens"),
    *("propositional_logic", "ransom_note", "spiral_matrix", "string_insertion", "syllogism", "time_intervals"),
)
NOTATIONS: dict[str, Notations] = {
    **dict.fromkeys(_AS_IT_IS, lambda answer: []),
    "codeio": _json,
    "coin_flip": _probabilities,
    "complex_arithmetic": _complex,
    "countdown": _expressions,
    "game_of_life": _boards,
    "game_of_life_halting": lambda answer: [answer.lower(), answer.upper()],
    "gsm_symbolic": lambda answer: [f"The answer is {answer}", f"{answer} pieces", f"${answer}", f"{answer}%"],
    "intermediate_integration": _integrals,
    "knights_knaves": _roles,
    "letter_jumble": lambda answer: [answer.lower(), answer.upper()],
    "number_sorting": _lists,
    "polynomial_equations": _solutions,
    "polynomial_multiplication": _decimals,
    "prime_factorization": _factors,
    "puzzle24": _expressions,
    "rubiks_cube": _moves,
    "simple_integration": _integrals,
    "spell_backward": lambda answer: [answer.upper(), answer.capitalize()],
    "word_sorting": lambda answer: [answer.replace(", ", ","), answer.replace(", ", ",\n")],
}


def variants(entry: Mapping[str, Any], around: Iterable[str] = SPACED) -> list[str]:
    """The right answer to the item in all of its notations, each in each of the surroundings."""
    answer = answer_of(entry)
    notations = dict.fromkeys((answer, *NOTATIONS[entry["metadata"]["source_dataset"]](answer)))
    return list(dict.fromkeys(surroundings.format(notation) for notation in notations for surroundings in around))
