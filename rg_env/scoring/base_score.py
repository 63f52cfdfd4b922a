"""From the scores of an answer to its base score, recomputable from one line of a dump.

- The bare answer counts alone for tasks whose scorer gives credit for the letters or signs of `<answer>` (`RAW_ALONE`);
  for all others the higher of both forms counts.
- A partial score s counts only beyond the baseline b, the score of the best cheap policy on the same item, as
  max(0, (s − b) / (1 − b)). An answer that is fully right keeps its 1, even if the cheap policy is right too.

Cheap policies read the question, never the right answer. They were chosen by measuring (docs/rewards.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Entry = Mapping[str, Any]

RAW_ALONE = frozenset(
    [
        *("emoji_mystery", "figlet_font", "letter_jumble", "palindrome_generation", "propositional_logic"),
        *("quantum_lock", "rush_hour", "sentence_reordering", "spell_backward", "tsumego"),
    ]
)
"""Tasks on which some answers score higher in tags than bare. None of those that were found is right."""


def base_score(task: str, raw: float, tagged: float, baseline: float) -> float:
    """Return the base score of upstream's scores of both forms and the item's baseline, all in [0, 1].

    >>> base_score("sudoku", 0.75, 0.5, 0.5), base_score("sudoku", 1.0, 0.0, 1.0), base_score("sudoku", 0.4, 0.4, 0.5)
    (0.5, 1.0, 0.0)
    >>> base_score("figlet_font", 0.0, 0.2, 0.0)
    0.0
    """
    score = raw if task in RAW_ALONE else max(raw, tagged)
    # A fully right answer keeps its 1, whatever the baseline.
    if score >= 1 - 1e-9 or baseline == 0:
        return score
    return max(0.0, (score - baseline) / (1 - baseline)) if baseline < 1 else 0.0


def cheap_answers(task: str, entry: Entry) -> list[str]:
    """Return the different answers of a task's cheap policies; none to an item that reasoning-gym did not make."""
    try:
        return list(dict.fromkeys(CHEAP[task](entry)))
    except Exception:  # an entry can hold anything, and one without these metadata has no cheap policy
        return []


_MOST_ROWS = 40


def _fill_rows(entry: Entry) -> Iterator[str]:
    """Yield each row's missing digits in order, or the same digit in every blank."""
    # Bounded first: this runs in the caller's process, on entries that may come from anywhere.
    puzzle: Sequence[Sequence[int]] = entry["metadata"]["puzzle"]
    if len(puzzle) > _MOST_ROWS or any(len(row) > _MOST_ROWS for row in puzzle):
        raise ValueError("reasoning-gym makes no such board")
    digits = range(1, min(len(puzzle), 9) + 1)
    yield "\n".join(_fill_row(row, _missing_digits(row, digits)) for row in puzzle)
    for digit in digits:
        yield "\n".join(_fill_row(row, [digit] * len(row)) for row in puzzle)


def _missing_digits(row: Sequence[int], digits: Sequence[int]) -> list[int]:
    given = set(row)
    return [digit for digit in digits if digit not in given]


def _fill_row(row: Sequence[int], digits: Sequence[int]) -> str:
    """Return the row with the digits in its blanks, in order; with 1 where there are too few."""
    blanks = iter(digits)
    return " ".join(str(cell or next(blanks, 1)) for cell in row)


def _divide_once(entry: Entry) -> Iterator[str]:
    """`2 × 167` for 334."""
    number = entry["metadata"]["number"]
    for factor in (2, 3, 5):
        if number > factor and number % factor == 0:
            yield f"{factor} × {number // factor}"


def _copy_board(entry: Entry) -> Iterator[str]:
    """Yield the board as it is in the question, and an empty one."""
    # The question ends with the board and a period.
    board = entry["question"][entry["question"].rindex("[[") :].strip().rstrip(".")
    yield from (board, board.replace("1", "0"))


def _give_one_role(entry: Entry) -> Iterator[str]:
    """Yield the same role for all inhabitants, once for each role."""
    terms = entry["metadata"]["knight_knave_terms"]
    for role in (terms["knight"], terms["knave"]):
        yield ", and ".join(f"{name} is a {role}" for name in entry["metadata"]["names"])


def _copy_text(entry: Entry) -> Iterator[str]:
    """Yield the text behind the question's last colon, as it is and with small changes."""
    text = entry["question"].rpartition(":")[2].strip()
    yield from (text, text.rstrip("."))
    # The first two letters of each word swapped, the last two words swapped, and each word written backward.
    yield re.sub(r"\b(\w)(\w)", r"\2\1", text)
    # Bounded repeats keep the search linear in the text, which may come from anywhere.
    yield re.sub(r"\b(\w{1,40}) (\w{1,40})(\W{0,9})$", r"\2 \1\3", text)
    yield " ".join(word[::-1] for word in text.split())


def _swap_words(entry: Entry) -> Iterator[str]:
    first, *others, last = entry["metadata"]["original_words"]
    yield from (", ".join([first, *others, last]), ", ".join([last, *others, first]))


def _swap_letters(entry: Entry) -> Iterator[str]:
    word = entry["metadata"]["word"]
    yield from (word, re.sub("(.)(.)", r"\2\1", word))


def _change_letter_by_letter(entry: Entry) -> Iterator[str]:
    """Yield ways from start to goal: one letter of the goal after the other, from either side, words or not."""
    # At most 100 letters: the answer grows with their square, and an entry may come from anywhere.
    start = entry["metadata"]["start_word"][:100]
    goal = entry["metadata"]["end_word"][:100]
    from_left, from_right = [], []
    for count in range(len(goal) + 1):
        from_start = len(goal) - count
        from_left.append(goal[:count] + start[count:])
        from_right.append(start[:from_start] + goal[from_start:])
    # Each word once, in order.
    yield ",".join(dict.fromkeys(from_left))
    yield ",".join(dict.fromkeys(from_right))


def _guess_six(entry: Entry) -> Iterator[str]:
    """Yield 6, whatever the question."""
    yield "6"


CHEAP: dict[str, Callable[[Entry], Iterator[str]]] = {
    "futoshiki": _fill_rows,
    "game_of_life": _copy_board,
    "knights_knaves": _give_one_role,
    "letter_jumble": _copy_text,
    "mini_sudoku": _fill_rows,
    "prime_factorization": _divide_once,
    "rectangle_count": _guess_six,
    "sentence_reordering": _copy_text,
    "spell_backward": _swap_letters,
    "sudoku": _fill_rows,
    "word_ladder": _change_letter_by_letter,
    "word_sorting": _swap_words,
}
"""Task → the answers of its cheap policies: the tasks whose partial credit is calibrated."""
