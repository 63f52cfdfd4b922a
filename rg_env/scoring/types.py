"""Results of scoring. Closed sets are enums, results are frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Self

from rg_env.base.choices import ResponseFormat


class Violation(StrEnum):
    """Way in which a response is not one think block followed by one answer block. A violation scores 0."""

    NO_THINK = "no_think"
    UNCLOSED_THINK = "unclosed_think"
    MULTIPLE_THINK = "multiple_think"
    ANSWER_INSIDE_THINK = "answer_inside_think"
    NO_ANSWER = "no_answer"
    UNCLOSED_ANSWER = "unclosed_answer"
    MULTIPLE_ANSWERS = "multiple_answers"
    EMPTY_ANSWER = "empty_answer"
    ANSWER_TOO_LONG = "answer_too_long"


MEANINGS: dict[Violation, str] = {
    Violation.NO_THINK: "the first tag of the response is not <think>, or there is no tag",
    Violation.UNCLOSED_THINK: "no </think> follows the <think>",
    Violation.MULTIPLE_THINK: "more than one <think> or </think>, anywhere",
    Violation.ANSWER_INSIDE_THINK: "an answer tag inside the think block, with or without an answer after it",
    Violation.NO_ANSWER: "no <answer> follows the think block",
    Violation.UNCLOSED_ANSWER: "no </answer> follows that <answer>",
    Violation.MULTIPLE_ANSWERS: "more than one <answer> or </answer> after the think block",
    Violation.EMPTY_ANSWER: "nothing but whitespace between the answer tags",
    Violation.ANSWER_TOO_LONG: "the answer, without whitespace around it, is longer than allowed",
}
"""Violation → when it applies. Of several that apply, the first is the violation of the response."""


class Status(StrEnum):
    """Outcome of scoring an answer. Anything but OK scores 0."""

    OK = "ok"
    """Scored; also an answer whose text made the scorer raise, which is wrong."""
    REJECTED = "rejected"
    """The guard rejected the answer before a scorer saw it."""
    TIMEOUT = "timeout"
    """The answer used up its CPU time, or got none in four times that wall time."""
    CRASHED = "crashed"
    """The worker died twice."""
    ERROR = "error"
    """The item cannot be scored, whatever the answer: no scorer, a corrupt entry, or a scorer that raises on the item's
    own answer as well."""
    NO_RESPONSE = "no_response"
    """The request failed, so there is no text. Counts in no outcome, routing or rate."""
    UNSCORED = "unscored"
    """Imported without a score, the question cannot be made again, or the reward of another environment is not a finite
    number. Counts in no outcome, routing or rate."""

    REWARD_ERROR = "reward_error"
    """The user's reward function failed. The scores are valid, but the rollout is not trained on."""

    @property
    def is_scorer_failure(self) -> bool:
        """True if no scorer gave a score. `AnswerScore.excused` says whether that was the answer's own doing."""
        return self in (Status.TIMEOUT, Status.CRASHED, Status.ERROR)  # REJECTED is a score: the answer is wrong

    @property
    def is_counted(self) -> bool:
        """False if the rollout says nothing about the model: outcome, routing and rates ignore it."""
        return self not in (Status.NO_RESPONSE, Status.UNSCORED)


UNCOUNTED = [status.value for status in Status if not status.is_counted]


class Span(NamedTuple):
    """Characters `start` to `end` of a text. If both are equal, the position between two characters."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ParsedResponse:
    """The parts of a response, from `parse_response`.

    Attributes:
        think: the text of the think block; None if it is not closed. In the lenient format also None if there are
            several, or if the answer is inside.
        answer: the answer; None exactly when `violation` is set or there is no response.
        think_span: the inside of the think block, whitespace included, up to the end of the text if it is not closed;
            None if it is not opened.
        answer_span: the same for the answer block: in the strict format the first after the think block, in the
            lenient format the last of the response.
        format: the format whose rules led to this result; strict if the response is well-formed in that.
    """

    think: str | None
    answer: str | None
    violation: Violation | None
    think_span: Span | None = field(default=None, compare=False, repr=False)
    answer_span: Span | None = field(default=None, compare=False, repr=False)
    format: ResponseFormat = field(default=ResponseFormat.STRICT, compare=False, repr=False)


def is_out_of_range(score: object) -> bool:
    """Return whether a score is a number beyond [0, 1] by more than rounding."""
    return isinstance(score, float) and not -1e-6 <= score <= 1 + 1e-6


@dataclass(frozen=True, slots=True)
class AnswerScore:
    """The scores of one answer, bare and tagged.

    Attributes:
        raw: score of the bare answer, in [0, 1]; None if it was not scored.
        tagged: score of `<answer>…</answer>`, in [0, 1]; None if it was not scored.
        score: the base score, as `rg_env.scoring.base_score` makes it of the other numbers; with
            `partial_credit=upstream` and for questions of a file, the higher of both; 0.0 if the answer was not scored.
        detail: one line for people: why the answer was refused or what failed. Empty if `status` is OK, with three
            exceptions: if the scorer raised on a form, that form scores 0.0 and `detail` has the reason; if the scorer
            of a file could not read the answer, or returned no number from 0 to 1, `detail` is one of
            `rg_env.scoring.file_scorers.WHY_UNREAD`; if
            `normalized`, `detail` shows the text that was scored.
        normalized: the score is that of the answer without formatting (`rg_env.scoring.formatting.unwrapped`), because
            the answer as written scored less.
        baseline: the score of the best cheap policy on the same item, in [0, 1]; 0 if there is none, 1 with
            `partial_credit=none`, where no partial score counts.
        excused: the score of 0 is not the answer's fault: a process died, the item cannot be scored, or there was no
            core for the scorer (a TIMEOUT that is excused). An answer that used up its CPU time, or on which the scorer
            raised, is wrong. `rg_env.rollouts.rewards.is_masked` says what is not trained on.
    """

    raw: float | None
    tagged: float | None
    score: float
    status: Status
    detail: str = ""
    normalized: bool = False
    baseline: float = 0.0
    excused: bool = False

    @property
    def had_no_core(self) -> bool:
        """Whether the machine, not the answer, used up the time."""
        return self.status is Status.TIMEOUT and self.excused

    @classmethod
    def of_forms(cls, raw: float | str, tagged: float | str) -> Self:
        """Put the scores of both forms together. A form on which the scorer raised, for the given reason, is wrong.

        `score` is the higher of both. Where the scorer has a base score, it replaces this one.
        """
        reasons = []
        if isinstance(raw, str):
            reasons.append(f"raw: {raw}")
            raw = 0.0
        if isinstance(tagged, str):
            reasons.append(f"tagged: {tagged}")
            tagged = 0.0
        return cls(raw, tagged, max(raw, tagged), Status.OK, "; ".join(reasons))

    @classmethod
    def without_score(cls, status: Status, detail: str = "", excused: bool = False) -> Self:
        """Return the result for an answer that no scorer scored; `excused` matters for a TIMEOUT only."""
        # A process that dies twice and an item that cannot be scored are never the answer's fault.
        excused = excused or status in (Status.CRASHED, Status.ERROR)
        return cls(None, None, 0.0, status, detail, excused=excused)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One response before any rule about its group: its parts and the scores of its answer.

    If the response violates the format, nothing was scored: `scored.status` is OK and both its scores are None.
    """

    parsed: ParsedResponse
    scored: AnswerScore

    @classmethod
    def no_response(cls, detail: str) -> Self:
        """Return the verdict of a request that failed; `detail` says why."""
        return cls(ParsedResponse(None, None, None), AnswerScore.without_score(Status.NO_RESPONSE, detail))
