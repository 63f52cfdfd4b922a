"""Legitimate ways to write the right answer to an item of the tasks whose free rewards are closed.

`test_guard` tries those that upstream's raw scorer pays at least 0.1. rush_hour is not among them: its items do not say
how they are solved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

Forms = Callable[[str], Iterable[str]]
SPACED = ("{}", " {}", "{} ", "{}\n", "\n{}\n", "\t{}")


def answer_of(entry: Mapping[str, Any]) -> str:
    metadata = entry["metadata"]
    return str(entry["answer"] or metadata.get("example_answer") or metadata.get("example_correct_answer"))


def _as_it_is(answer: str) -> list[str]:
    return []


def _probabilities(answer: str) -> list[str]:
    value = Fraction(answer)
    return [
        re.sub(r"^(\d+\.\d+)$", r"\g<1>0", answer),
        answer.removeprefix("0"),
        f"{float(value):.12e}",
        f"{value}",
        f"{value}".replace("/", " / "),
    ]


def _complex(answer: str) -> list[str]:
    return [answer.replace(" ", ""), answer.replace("i", "j"), f"({answer})", answer.replace(" ", "  ")]


def _boards(answer: str) -> list[str]:
    board = json.loads(answer)
    return [json.dumps(board), json.dumps(board, separators=(",", ":")), json.dumps(board, indent=1)]


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
    return ["×".join(factors), "  ×  ".join(factors), " × ".join(factors[::-1]), " × ".join(f"0{f}" for f in factors)]


def _moves(answer: str) -> list[str]:
    return [answer.replace(" ", "  "), answer.replace(" ", "\n")]


FORMS: dict[str, Forms] = {
    "acre": _as_it_is,
    "coin_flip": _probabilities,
    "complex_arithmetic": _complex,
    "course_schedule": _as_it_is,
    "game_of_life": _boards,
    "game_of_life_halting": _as_it_is,
    "isomorphic_strings": _as_it_is,
    "knights_knaves": _roles,
    "mahjong_puzzle": _as_it_is,
    "number_sorting": _lists,
    "prime_factorization": _factors,
    "propositional_logic": _as_it_is,
    "ransom_note": _as_it_is,
    "rubiks_cube": _moves,
    "spell_backward": lambda answer: [answer.upper(), answer.capitalize()],
    "syllogism": _as_it_is,
    "time_intervals": _as_it_is,
}


def variants(entry: Mapping[str, Any]) -> list[str]:
    """The right answer to the item in all of its forms, with space around it."""
    answer = answer_of(entry)
    forms = dict.fromkeys((answer, *FORMS[entry["metadata"]["source_dataset"]](answer)))
    return list(dict.fromkeys(space.format(form) for form in forms for space in SPACED))
