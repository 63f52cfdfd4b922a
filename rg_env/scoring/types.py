"""What scoring hands around: closed sets as enums, results as frozen dataclasses. No behaviour lives here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Violation(StrEnum):
    """Why a response is not `one think block, then one answer block`. A violation scores 0."""

    NO_THINK = "no_think"
    UNCLOSED_THINK = "unclosed_think"
    MULTIPLE_THINK = "multiple_think"
    NO_ANSWER = "no_answer"
    UNCLOSED_ANSWER = "unclosed_answer"
    MULTIPLE_ANSWERS = "multiple_answers"
    ANSWER_INSIDE_THINK = "answer_inside_think"
    EMPTY_ANSWER = "empty_answer"
    ANSWER_TOO_LONG = "answer_too_long"


class Status(StrEnum):
    """How scoring an answer ended. Anything but OK scores 0."""

    OK = "ok"
    REJECTED = "rejected"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    ERROR = "error"

    @property
    def is_scorer_failure(self) -> bool:
        """True where the 0 says something about the scorer, not about the answer."""
        return self in (Status.TIMEOUT, Status.CRASHED, Status.ERROR)


@dataclass(frozen=True, slots=True)
class ParsedResponse:
    """A response taken apart. `answer` is None exactly when `violation` is set."""

    think: str | None
    answer: str | None
    violation: Violation | None


@dataclass(frozen=True, slots=True)
class AnswerScore:
    """One answer, scored in both forms.

    Attributes:
        raw: score of the bare answer, in [0, 1]; None unless `status` is OK.
        tagged: score of `<answer>…</answer>`, in [0, 1]; None unless `status` is OK.
        score: the base score: max(raw, tagged), 0.0 unless `status` is OK.
        detail: one line for people: why it was refused or what failed. When OK it is empty, but where the scorer
            raised on one of the two forms: that form is 0.0, and this says why; and where `normalized`.
        normalized: the answer as it stands earned less; this is what `rg_env.scoring.normalize` made of it, which
            `detail` shows.
    """

    raw: float | None
    tagged: float | None
    score: float
    status: Status
    detail: str = ""
    normalized: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one response earned before any group-level rule: format and score together.

    `status` is OK and both scores are None when the format was violated: nothing was scored.
    """

    parsed: ParsedResponse
    raw_score: float | None
    tagged_score: float | None
    base_score: float
    status: Status
    detail: str = ""
    normalized: bool = False
