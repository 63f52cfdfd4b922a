"""Checks against flaws of upstream's scorers: rewards for wrong answers, hangs and excessive memory use.

Invariant: each check takes linear time and accepts every correct answer in the form that the question asks for. If
upstream gives wrong answers so much that a guess scores about half, wrong answers are rejected.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

Rule = Callable[[Mapping[str, Any], str], str | None]
"""(entry, answer) → the reason why the answer is rejected, as a sentence to display; None if it may be scored."""

_NUMBER = re.compile(r"[-+]?(?:\d{1,40}(?:\.\d{0,60})?|\.\d{1,60})(?:[eE][-+]?\d{1,2})?", re.ASCII)
_FRACTION = re.compile(r"([-+]?\d{1,60})\s*/\s*(\d{1,60})", re.ASCII)
_COMPLEX = re.compile(r"[-+0-9.eEiIjJ() ]*")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_WORD = re.compile(r"[^\W_]+")
_AROUND_A_WORD = ".*`'\""
_LATEX = frozenset({"boxed", "text", "textbf", "mathrm", "mathbf"})
_REPEATS = re.compile(r"\d+")  # of any alphabet, as upstream reads them
_LONG_DRIVE = re.compile(r"[A-Z][+-]\d{3}")
_ONE_NUMBER = re.compile(r"\b-?\d+(?:\.\d+)?\b")
_MOST_TURNS = 1000
_MOST_SIGNS = 200


def _one_of(*choices: str) -> Rule:
    """Upstream gives len(answer) / len(text) for any text that contains the answer: `Yes No` scores about half."""
    wanted = " or ".join(choices)

    def rule(entry: Mapping[str, Any], answer: str) -> str | None:
        word = answer.strip().strip(_AROUND_A_WORD)
        return None if word in choices else f"the answer must be exactly one of {wanted}"

    return rule


def _codeio(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream divides the distance by the length of the longer JSON, so that `{"":{"":{"":…}}}` scores 0.9."""
    own = entry["answer"].strip()
    if answer.strip() == own:
        return None
    right = _json_form(own)
    values = (answer, answer[answer.find("{") : answer.rfind("}") + 1])
    if right is not None and any(_json_form(value) == right for value in values):
        return None
    return "the value is wrong, and upstream would reward long answers"


def _json_form(text: str) -> str | None:
    """A text that is equal for equal JSON values, `1.0` and `1` included; None if the text is no JSON."""
    try:
        return json.dumps(json.loads(text, parse_float=_whole_if_equal), sort_keys=True)
    except (ValueError, RecursionError):
        return None


def _whole_if_equal(digits: str) -> float:
    number = float(digits)
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def _coin_flip(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream scores a common prefix, so that 0 scores 0.9, and hangs on 1e999999999."""
    value, right = _fraction(answer), _fraction(entry["answer"])
    if right is None:
        raise ValueError("its answer is not a number")
    if value is None:
        return "the answer must be one number: a decimal or a fraction"
    if not 0 <= value <= 1:
        return "a probability is between 0 and 1"
    rounded = value > 0 and (value * 10_000).denominator == 1 and abs(value - right) <= Fraction(1, 20_000)
    if abs(value - right) > right / 100 and not rounded:
        return "the probability is off by more than 1 %, and upstream scores a common prefix"
    return None


def _fraction(text: str) -> Fraction | None:
    """The value of a decimal or a fraction of bounded length; None for anything else, 1/0 included."""
    text = text.strip().replace(",", "")
    if match := _FRACTION.fullmatch(text):
        over, under = int(match[1]), int(match[2])
        return Fraction(over, under) if under else None
    return Fraction(text) if _NUMBER.fullmatch(text) else None


def _complex_arithmetic(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream takes min(1, exp(-distance)), which is 1 for nan."""
    return None if _COMPLEX.fullmatch(answer.strip()) else "the answer must be a finite complex number, such as 3 - 2i"


def _game_of_life(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream scores cell by cell and raises on mappings; the share of an empty board is the baseline."""
    right = json.loads(entry["answer"])
    try:
        board = json.loads(answer)
    except (ValueError, RecursionError):
        board = None
    if isinstance(board, list) and [_cells(row) for row in board] == [len(row) for row in right]:
        return None
    return f"the answer must be a list of {len(right)} lists of 0 and 1, as long as those of the question"


def _cells(row: object) -> int | None:
    """How many cells a row has; None if it holds anything but 0 and 1."""
    return len(row) if isinstance(row, list) and all(cell in (0, 1) for cell in row) else None


def _game_of_life_halting(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream compares bool(text) with bool(text): always true."""
    words = [word for word in _WORD.findall(answer.casefold()) if word not in _LATEX]
    if words not in (["true"], ["false"]):
        return "the answer must be True or False"
    if words[0] != entry["answer"].casefold():
        return "the answer is wrong, and upstream would accept any text"
    return None


def _gsm_symbolic(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream takes the first number. The same number may occur again."""
    numbers = {float(number) for number in _ONE_NUMBER.findall(answer)}
    return f"the answer has {len(numbers)} different numbers; one is asked for" if len(numbers) > 1 else None


def _knights_knaves(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream accepts an answer with both roles for an inhabitant; the same role for all is the baseline."""
    right, given = _words(entry["answer"]), _words(answer)
    names, roles = right[::2], right[1::2]
    said = list(itertools.pairwise(given))
    if set(zip(names, roles, strict=True)) <= set(said):
        return None
    terms = {entry["metadata"]["knight_knave_terms"][kind].lower() for kind in ("knight", "knave")}
    if sorted(name for name, role in said if role in terms) == sorted(names):
        return None
    return "the answer must have one role for each inhabitant"


def _words(text: str) -> list[str]:
    """Alternating names and roles, as upstream parses them: `Zoe is a knight, and Max is a knave.`"""
    return [word for word in re.sub(r"[.,()]", " ", text.lower()).split() if word not in ("is", "a", "an", "and")]


def _letter_jumble(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream compares the first words and gives full score, whatever follows."""
    return _more_words(len(answer.split()), len(entry["answer"].split()))


def _more_words(given: int, expected: int) -> str | None:
    return f"the answer has {given} words, more than the {expected} of the question" if given > expected else None


def _number_sorting(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream considers a list of NaN sorted and close to any numbers."""
    lower = answer.lower()
    return "the answer must be a list of finite numbers" if "nan" in lower or "inf" in lower else None


def _polynomial_equations(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream scores closeness, which for solutions that are all near 0 is high for any small number."""
    right, given = _solutions(entry["answer"]), _solutions(answer)
    if len(right) == len(given) and all(abs(a - b) < 1.001e-4 for a, b in zip(right, given, strict=True)):
        return None  # the question lets the fourth decimal be rounded down
    return "the solutions are wrong, and upstream would reward closeness"


def _solutions(text: str) -> list[float]:
    """The numbers between commas, as upstream reads them."""
    numbers = []
    for part in text.split(","):
        with suppress(ValueError):
            numbers.append(float(part))
    return sorted(numbers)


def _prime_factorization(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream gives half for any factors with the correct product, including the number itself."""
    factors = [part.strip() for part in answer.split("×")]
    if not all(re.fullmatch(r"\+?\d{1,60}", factor, re.ASCII) for factor in factors):
        return "the answer must be integers separated by ×"
    if len(entry["answer"]) > 10_000:
        raise ValueError("its answer is too long")
    number = math.prod(int(factor) for factor in entry["answer"].split("×"))
    if "×" in entry["answer"] and any(int(factor) == number for factor in factors):
        return f"{number} itself is not prime"
    return None


def _propositional_logic(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream's parser recurses once per sign and scans the rest of the text each time."""
    signs = sum(answer.count(sign) for sign in "()∧∨¬→↔")
    return f"the formula has more than {_MOST_SIGNS} signs" if signs > _MOST_SIGNS else None


def _rubiks_cube(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream expands R99999999 to that many turns."""
    digits = _REPEATS.findall(answer)
    if any(len(run) > 4 for run in digits):
        return "a move is repeated too often"
    turns = len(answer.split()) + sum(map(int, digits))
    return f"the answer has more than {_MOST_TURNS} turns" if turns > _MOST_TURNS else None


def _rush_hour(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream tries every cell of a move of A+99999999."""
    return "a vehicle moves farther than the board is wide" if _LONG_DRIVE.search(answer) else None


def _spell_backward(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream scores a correct beginning: the whole question, reversed, scores 0.97."""
    right, given = entry["answer"].casefold(), answer.strip().casefold()
    if given.startswith(right) and any(character.isalnum() for character in given[len(right) :]):
        return "the answer contains more than the word"
    return None


def _time_intervals(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream scores closeness, on a scale on which almost any interval gets 0.8."""
    numbers = [[int(digits) for digits in _WHOLE.findall(text)] for text in (answer, entry["answer"])]
    for parts in numbers:
        while parts and parts[-1] == 0:  # 1:30 is 01:30:00.000
            parts.pop()
    return None if numbers[0] == numbers[1] else "the interval is wrong, and upstream would reward closeness"


def _word_sorting(entry: Mapping[str, Any], answer: str) -> str | None:
    """Upstream compares the first words of the list and scores each, whatever follows."""
    return _more_words(answer.rstrip(", \t\r\n").count(",") + 1, len(entry["metadata"]["sorted_words"]))


RULES: dict[str, Rule] = {
    "acre": _one_of("on", "off", "undetermined"),
    "codeio": _codeio,
    "coin_flip": _coin_flip,
    "complex_arithmetic": _complex_arithmetic,
    "course_schedule": _one_of("True", "False"),
    "game_of_life": _game_of_life,
    "game_of_life_halting": _game_of_life_halting,
    "gsm_symbolic": _gsm_symbolic,
    "isomorphic_strings": _one_of("True", "False"),
    "knights_knaves": _knights_knaves,
    "letter_jumble": _letter_jumble,
    "mahjong_puzzle": _one_of("Peng", "Chi", "Pass"),
    "number_sorting": _number_sorting,
    "polynomial_equations": _polynomial_equations,
    "prime_factorization": _prime_factorization,
    "propositional_logic": _propositional_logic,
    "ransom_note": _one_of("True", "False"),
    "rubiks_cube": _rubiks_cube,
    "rush_hour": _rush_hour,
    "spell_backward": _spell_backward,
    "syllogism": _one_of("Yes", "No"),
    "time_intervals": _time_intervals,
    "word_sorting": _word_sorting,
}
