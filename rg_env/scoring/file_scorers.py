"""Scores answers to the questions of a file: `exact`, `number`, `math`, or a function of the user's.

Invariant: which function is called is decided by the settings of this process; an entry that names another one, and may
come from anywhere, is refused. Every function runs in processes of its own (`guarded`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rg_env.runner.caller_guarded import Guarded, GuardedScore, guarded
from rg_env.scoring.numbers import is_close, read_number
from rg_env.scoring.types import AnswerScore, Status
from rg_env.tasks.item import SCORER_KEY
from rg_env.tasks.question_file import MOST_ANSWERS, OWN_SCORERS, is_allowed


def exact(answer: str, row: Mapping[str, Any]) -> float:
    """Return whether two texts are equal, without whitespace around them."""
    return float(answer.strip() == row["answer"].strip())


def number(answer: str, row: Mapping[str, Any]) -> float:
    """Return whether an answer is a number that is close to the right one."""
    given, right = read_number(answer), read_number(row["answer"])
    if right is None:
        raise ValueError(f"the right answer is not a number: {row['answer']!r:.40}")
    return float(given is not None and is_close(given, right, row["tolerance"]))


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
    if not is_allowed(scorer):
        return (
            f"answers are scored by {scorer}, which is not called on an entry's word: name the task and its file "
            "in `tasks`, or its module in `imports` (--imports)"
        )
    answer = str(entry["answer"])
    if scorer in OWN_SCORERS:
        row = {"answer": answer, "tolerance": metadata.get("tolerance", 0)}
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
    """Return the score of an answer by one of our scorers, in this process: for golds and junk, not for responses."""
    if question.scorer == "math":
        from rg_env.scoring.math_scorer import math

        return math(answer, question.row)
    scorers = {"exact": exact, "number": number}
    return scorers[question.scorer](answer, question.row)


class FileScorers:
    """The processes of these functions, which start when they are needed."""

    def __init__(self, workers: int, timeout: float) -> None:
        self._workers, self._timeout = workers, timeout
        self._functions: dict[str, Guarded] = {}
        self._is_closed = False

    async def score(self, question: FileQuestion, answer: str) -> AnswerScore:
        """Score an answer. It has one form only, so that raw and tagged score are equal.

        If the function raises on the question's own answer as well, the status is ERROR; otherwise the answer is wrong.
        """
        function = self._function(question.scorer)
        result = await function.ascore(answer, question.row)
        # Whose fault an exception is, the question's own answer shows.
        if result.status == Status.ERROR:
            own = await function.ascore(question.answer, question.row)
            if own.status == Status.OK:
                return AnswerScore.of_forms(result.detail, result.detail)
            return AnswerScore.without_score(Status.ERROR, f"it raises on the item's own answer, too: {result.detail}")
        return _as_answer_score(result)

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


def _as_answer_score(result: GuardedScore) -> AnswerScore:
    if result.value is None:
        return AnswerScore.without_score(Status(result.status), result.detail, result.excused)
    # `guarded` takes several named numbers, of which none is the score.
    if isinstance(result.value, dict):
        return AnswerScore.without_score(Status.ERROR, "the scorer of a file must return a number, not several")
    score = min(1.0, max(0.0, result.value))
    return AnswerScore.of_forms(score, score)


def _processes_of(scorer: str, **limits: Any) -> Guarded:
    """Return the function of a scorer in processes: ours share theirs, others get a fresh one for each answer."""
    if scorer in ("exact", "number"):
        return guarded(f"{__name__}:{scorer}", fresh=False, **limits)
    if scorer == "math":
        warm_up = (("1", {"answer": "1"}), 1.0)  # sympy imports much with its first expression
        return guarded("rg_env.scoring.math_scorer:math", examples=[warm_up], **limits)
    # The user's: fresh, since it may evaluate the answer.
    module, _, name = scorer.rpartition(".")
    return guarded(f"{module}:{name}", **limits)
