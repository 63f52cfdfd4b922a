"""Rollouts as training text: prompt and response, with or without the think block.

Invariant: a response is exported exactly as it was recorded, except for a think block that is dropped on request.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rg_env.analysis.export.left_out import LeftOut, Reason
from rg_env.analysis.reparse import without_think
from rg_env.choices import Think
from rg_env.dump.schema import GroupRecord, Message, RolloutRecord
from rg_env.scoring.types import Status


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rollout with its text as it would be exported."""

    prompt: Sequence[Message]
    response: str
    record: RolloutRecord

    @property
    def completion(self) -> list[Message]:
        return [{"role": "assistant", "content": self.response}]

    @property
    def rank(self) -> tuple[float, float, int]:
        """Sorts the best first: by base score, then by score, then in the order of sampling.

        Ties are not broken by length: that would teach the model to skip reasoning wherever guessing works.
        """
        return (-self.record.base_score, -self.record.score, self.record.repetition)


def candidates(group: GroupRecord, think: Think, left_out: LeftOut) -> Iterator[Candidate]:
    """The rollouts of a group with a usable text and a reliable score."""
    for rollout in group.rollouts:
        messages = rollout.conversation
        if len(messages) < 2 or messages[-1]["role"] != "assistant" or not messages[-1]["content"]:
            left_out[Reason.NO_RESPONSE] += 1
        elif not all(_is_utf8(message["role"] + message["content"]) for message in messages):
            left_out[Reason.BAD_TEXT] += 1
        elif any(map(math.isnan, (rollout.base_score, rollout.score, rollout.reward))):
            left_out[Reason.NO_NUMBER] += 1
        elif rollout.status.is_scorer_failure:
            left_out[Reason.SCORER_FAILED] += 1
        else:
            response: str | None = messages[-1]["content"]
            if think is Think.DROP:
                response = without_think(messages[-1]["content"], rollout.violation)
            if response:
                yield Candidate(messages[:-1], response, rollout)
            else:
                left_out[Reason.THINK_STAYS] += 1


def flaw(record: RolloutRecord) -> Reason | None:
    """Why a response is a bad example whatever its score; None if it is not."""
    if record.violation is not None:
        return Reason.VIOLATION
    if record.status is not Status.OK:
        return Reason.REJECTED
    return Reason.TRUNCATED if record.truncated else None


def unusable(group: Sequence[Candidate]) -> Reason | None:
    """Why the candidates of a group cannot be compared with each other; None if they can."""
    if len(group) < 2:
        return Reason.TOO_FEW
    if any(candidate.prompt != group[0].prompt for candidate in group):
        return Reason.DIFFERENT_PROMPTS
    return None


def identity(prompt: Sequence[Message], *responses: str) -> str:
    """A text that is equal for examples that differ only in whitespace."""
    texts = [message["role"] + "\0" + message["content"] for message in prompt]
    return "\0\0".join(" ".join(text.split()) for text in (*texts, *responses))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
