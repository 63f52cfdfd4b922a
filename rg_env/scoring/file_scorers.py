"""Scores answers to the questions of a file: `exact`, `number`, `math`, `choice`, or a function of the user's.

Invariant: which function is called is decided by the settings of this process; an entry that names another one, and may
come from anywhere, is refused. Every function runs in processes of its own (`guarded`).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from rg_env.configuration.modules import may_score
from rg_env.runner.caller_guarded import Guarded, GuardedScore, guarded
from rg_env.scoring.formatting import unquoted
from rg_env.scoring.numbers import ROUNDING, read_quantity, same_quantity
from rg_env.scoring.options import chosen, options_of
from rg_env.scoring.types import AnswerScore, Status, is_out_of_range
from rg_env.tasks.item import SCORER_KEY
from rg_env.tasks.question_file import MOST_ANSWERS, OWN_SCORERS

Score = float | dict[str, float]
UNREAD = MappingProxyType({"score": 0.0, "unread": 1.0})
"""What our scorers return for an answer that they cannot read, which is wrong."""
WHY_UNREAD = {
    "exact": "is not a number",
    "number": "is not a number",
    "math": "is not an expression",
    "choice": "names none of the options, or several",
    "function": "your function returned a number that is not from 0 to 1",
}
"""Scorer → the `detail` of such an answer; `function` is any of the user's."""


def exact(answer: str, row: Mapping[str, Any]) -> Score:
    """Return whether two texts are equal without formatting; numbers, if the column has numbers."""
    if row.get("is_number"):
        return number(answer, row)
    return float(unquoted(answer) == unquoted(row["answer"]))


def number(answer: str, row: Mapping[str, Any]) -> Score:
    """Return whether an answer is a number that is close to the right one, with no other unit."""
    given, right = read_quantity(answer), read_quantity(row["answer"])
    if right is None:
        raise ValueError(f"the right answer is not a number: {row['answer']!r:.40}")
    if given is None:
        return dict(UNREAD)
    return float(same_quantity(given, right, row["tolerance"]))


def choice(answer: str, row: Mapping[str, Any]) -> Score:
    """Return whether an answer names the right option, by its letter, its text or both."""
    options = options_of(row["question"], row["options"])
    right = chosen(row["answer"], options)
    if right is None:
        raise ValueError(f"the right answer is none of the options: {row['answer']!r:.40}")
    given = chosen(answer, options)
    if given is None:
        return dict(UNREAD)
    return float(given == right)


class FileQuestion(NamedTuple):
    """The means of scoring answers to a question of a file: the function, its second argument, the own answer."""

    scorer: str
    row: Mapping[str, Any]
    answer: str


def file_question(entry: Mapping[str, Any]) -> FileQuestion | str | None:
    """Return how answers to an entry are scored if it is of a file; None if it is of Reasoning Gym.

    An entry may come from anywhere: if no setting of this process names its function, the result is a line about that.
    """
    # An entry is data: it may choose among the functions that this process allows, and no others.
    metadata = entry["metadata"]
    scorer = metadata.get(SCORER_KEY)
    if not isinstance(scorer, str):
        return None
    if scorer not in OWN_SCORERS and not may_score(scorer):
        return (
            f"answers are scored by {scorer}, which is not called on an entry's word: name the task and its file "
            "in `tasks`, or its module in `imports` (--imports)"
        )
    answer = str(entry["answer"])
    if scorer in OWN_SCORERS:
        row = {
            "answer": answer,
            "tolerance": metadata.get("tolerance", ROUNDING),
            "is_number": metadata.get("answer_is_number", False),
        }
        if scorer == "choice":
            row |= {"question": str(entry["question"]), "options": metadata.get("options")}
        return FileQuestion(scorer, row, answer)
    return FileQuestion(scorer, metadata["row"], answer)


def with_each_answer(question: FileQuestion, entry: Mapping[str, Any]) -> Iterator[FileQuestion]:
    """Yield the question with each of its right answers, of which a file may have several. For our scorers."""
    yield question
    others = entry["metadata"].get("answers")
    if question.scorer in OWN_SCORERS and isinstance(others, list):
        for other in others[1:MOST_ANSWERS]:
            yield question._replace(row={**question.row, "answer": str(other)}, answer=str(other))


def score_here(question: FileQuestion, answer: str) -> float:
    """Return the score of an answer by one of our scorers, in this process: for golds and junk, not for responses.

    Raises what the scorer raises: ValueError if the question's own answer cannot be read.
    """
    module, _, name = path_of(question.scorer).partition(":")
    result = getattr(importlib.import_module(module), name)(answer, question.row)
    if isinstance(result, dict):
        return float(result["score"])
    return float(result)


class FileScorers:
    """The processes of these functions, which start when they are needed."""

    def __init__(self, workers: int, timeout: float) -> None:
        self._workers, self._timeout = workers, timeout
        self._functions: dict[str, Guarded] = {}
        self._is_closed = False

    async def score(self, question: FileQuestion, answer: str) -> AnswerScore:
        """Score an answer. It has one form only, so that raw and tagged score are equal.

        If the function raises, or returns a number that is not from 0 to 1, on the question's own answer as well, the
        status is ERROR; otherwise the answer is wrong.
        """
        function = self._function(question.scorer)
        result = await function.ascore(answer, question.row)
        # Whose fault an exception is, the question's own answer shows.
        if result.status == Status.ERROR or is_out_of_range(result.value):
            own = await function.ascore(question.answer, question.row)
            if is_out_of_range(own.value):
                why = f"your function returned {own.value:g} for the item's own answer: it must be a number from 0 to 1"
                return AnswerScore.without_score(Status.ERROR, why)
            if own.status != Status.OK:
                why = f"it raises on the item's own answer, too: {result.detail}"
                return AnswerScore.without_score(Status.ERROR, why)
            if result.status == Status.OK:
                return replace(AnswerScore.of_forms(0.0, 0.0), detail=WHY_UNREAD["function"])
            return AnswerScore.of_forms(result.detail, result.detail)
        return _as_answer_score(result, WHY_UNREAD.get(question.scorer))

    def _function(self, scorer: str) -> Guarded:
        if scorer not in self._functions:
            self._functions[scorer] = _processes_of(scorer, timeout=self._timeout, workers=self._workers)
            if self._is_closed:
                self._functions[scorer].close()  # so that a call says so, and starts nothing
        return self._functions[scorer]

    def close(self) -> None:
        # First: a function that is set up while others close is closed at once.
        self._is_closed = True
        for function in list(self._functions.values()):
            function.close()


def _as_answer_score(result: GuardedScore, why_unread: str | None) -> AnswerScore:
    value = result.value
    if value is None:
        return AnswerScore.without_score(Status(result.status), result.detail, result.excused)
    if isinstance(value, dict):
        if value != UNREAD or why_unread is None:
            # `guarded` takes several named numbers, of which none is the score.
            return AnswerScore.without_score(Status.ERROR, "the scorer of a file must return a number, not several")
        return replace(AnswerScore.of_forms(0.0, 0.0), detail=why_unread)
    score = min(1.0, max(0.0, value))
    return AnswerScore.of_forms(score, score)


def path_of(scorer: str) -> str:
    """Return `module:function` of a scorer: one of ours, or `module.function` of the user's."""
    if scorer == "math":
        return "rg_env.scoring.math_scorer:math"
    if scorer in OWN_SCORERS:
        return f"{__name__}:{scorer}"
    module, _, name = scorer.rpartition(".")
    return f"{module}:{name}"


def _processes_of(scorer: str, **limits: Any) -> Guarded:
    """Return the function of a scorer in processes: ours share theirs, others get a fresh one for each answer."""
    if scorer == "math":
        warm_up = (("x+1", {"answer": "1+x"}), 1.0)  # sympy imports much with its first expression
        return guarded(path_of(scorer), examples=[warm_up], **limits)
    # A user's is fresh, since it may evaluate the answer.
    return guarded(path_of(scorer), fresh=scorer not in OWN_SCORERS, **limits)
