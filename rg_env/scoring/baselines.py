"""Baselines: what cheap policies score on an item of a task whose partial credit can be had without solving anything.

Invariant: a baseline depends only on the entry and the task's options. It is the best score that the task's own scorer
gives to the answers of its cheap policies, which are made here from the question, never from the right answer. Guard
and scorer treat them like answers of a model. The policies were chosen by measuring (docs/rewards.md).
"""

from __future__ import annotations

import hashlib
import pickle
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from rg_env.scoring.base_score import base_score
from rg_env.scoring.types import AnswerScore, Status
from rg_env.scoring.workers.waiting import Waiting

Entry = Mapping[str, Any]
Options = Mapping[str, Any]
Answers = Callable[[Entry], Iterator[str]]

_MAX_CACHED = 4096


class Baselines:
    """Computes and keeps baselines. Thread-safe: an item's baseline is computed once, whoever asks for it.

    Args:
        score: (task, options, entry, answer, waiting) → upstream's scores of the answer.
    """

    def __init__(self, score: Callable[[str, Options, Entry, str, Waiting], Awaitable[AnswerScore]]) -> None:
        self._score = score
        self._known: dict[bytes, Future[float | None]] = {}
        self._lock = threading.Lock()

    async def of(self, task: str, options: Options, entry: Entry, waiting: Waiting) -> float | None:
        """The baseline of an item, in [0, 1]; 0 for tasks without cheap policies.

        None if it could not be computed: a scorer ran out of time or died. That is not remembered.
        """
        answers = CHEAP.get(task)
        if answers is None:
            return 0.0
        key = hashlib.blake2b(pickle.dumps((task, dict(options), dict(entry))), digest_size=16).digest()
        with self._lock:
            if known := self._known.get(key):
                found = known
            else:
                found = self._known[key] = Future()
                found.set_running_or_notify_cancel()  # from now on no caller can cancel it
                if len(self._known) > _MAX_CACHED:
                    self._known.pop(next(iter(self._known)))
        if known:
            return await waiting.result(found)
        value = None
        try:
            scores = [await self._score(task, options, entry, answer, waiting) for answer in _made(answers, entry)]
            if not any(one.status in (Status.TIMEOUT, Status.CRASHED) for one in scores):
                value = max((base_score(task, one.raw or 0.0, one.tagged or 0.0, 0.0) for one in scores), default=0.0)
        finally:
            if value is None:
                with self._lock:
                    self._known.pop(key, None)
            found.set_result(value)
        return value


def _made(answers: Answers, entry: Entry) -> list[str]:
    try:
        return list(dict.fromkeys(answers(entry)))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return []  # an entry that reasoning-gym did not make


def _filled_rows(entry: Entry) -> Iterator[str]:
    """sudoku, futoshiki: each row's missing digits in order, or the same digit in every blank."""
    puzzle: Sequence[Sequence[int]] = entry["metadata"]["puzzle"]
    digits = range(1, len(puzzle) + 1)
    yield _rows([_with_missing(row, [digit for digit in digits if digit not in row]) for row in puzzle])
    for digit in digits:
        yield _rows([[cell or digit for cell in row] for row in puzzle])


def _with_missing(row: Sequence[int], missing: Sequence[int]) -> list[int]:
    left = iter(missing)
    return [cell or next(left, 1) for cell in row]


def _rows(grid: Sequence[Sequence[int]]) -> str:
    return "\n".join(" ".join(map(str, row)) for row in grid)


def _divided_once(entry: Entry) -> Iterator[str]:
    """`2 × 167` for 334."""
    number = entry["metadata"]["number"]
    yield from (f"{factor} × {number // factor}" for factor in (2, 3, 5) if number > factor and number % factor == 0)


def _boards(entry: Entry) -> Iterator[str]:
    """The board as it is in the question, and an empty one."""
    board = entry["question"][entry["question"].rindex("[[") :].strip().rstrip(".")
    yield board
    yield board.replace("1", "0")


def _same_roles(entry: Entry) -> Iterator[str]:
    """The same role for all inhabitants."""
    terms, names = entry["metadata"]["knight_knave_terms"], entry["metadata"]["names"]
    for role in (terms["knight"], terms["knave"]):
        yield ", and ".join(f"{name} is a {role}" for name in names)


def _as_written(entry: Entry) -> Iterator[str]:
    """What follows the question's last colon, as it is and with small changes."""
    text = entry["question"].rpartition(":")[2].strip()
    yield text
    yield text.rstrip(".")
    yield re.sub(r"\b(\w)(\w)", r"\2\1", text)
    yield re.sub(r"(\w+) (\w+)(\W*)$", r"\2 \1\3", text)
    yield " ".join(word[::-1] for word in text.split())


def _words(entry: Entry) -> Iterator[str]:
    words = entry["metadata"]["original_words"]
    yield ", ".join(words)
    yield ", ".join([words[-1], *words[1:-1], words[0]])


def _letters(entry: Entry) -> Iterator[str]:
    word = entry["metadata"]["word"]
    yield word
    yield re.sub("(.)(.)", r"\2\1", word)


def _letter_by_letter(entry: Entry) -> Iterator[str]:
    """word_ladder: one letter of the goal after the other, from the left or from the right, words or not."""
    start, goal = entry["metadata"]["start_word"], entry["metadata"]["end_word"]
    places = range(len(goal) + 1)
    yield ",".join(dict.fromkeys(goal[:place] + start[place:] for place in places))
    yield ",".join(dict.fromkeys(start[: len(goal) - place] + goal[len(goal) - place :] for place in places))


def _constants(*texts: str) -> Answers:
    return lambda _: iter(texts)


CHEAP: dict[str, Answers] = {
    "futoshiki": _filled_rows,
    "game_of_life": _boards,
    "knights_knaves": _same_roles,
    "letter_jumble": _as_written,
    "mini_sudoku": _filled_rows,
    "prime_factorization": _divided_once,
    "rectangle_count": _constants("6"),
    "sentence_reordering": _as_written,
    "spell_backward": _letters,
    "sudoku": _filled_rows,
    "word_ladder": _letter_by_letter,
    "word_sorting": _words,
}
"""Task → the answers of its cheap policies: the tasks whose partial credit is calibrated."""
