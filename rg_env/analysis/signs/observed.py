"""A rollout as seen by the detectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rg_env.dump import GroupRecord, RolloutRecord
from rg_env.dump.schema import answered
from rg_env.scoring import parse_response
from rg_env.scoring.same_answer import is_same_answer


@dataclass(frozen=True, slots=True)
class Observed:
    """One rollout, with its group's item.

    Attributes:
        answer: parsed from the response, stripped; None if there is none.
        thinking: the text of the think block; None if there is none.
        oracle: the item's reference answer; None if it was not recorded (Atropos files).
        question: the last message before the response.
    """

    group: GroupRecord
    rollout: RolloutRecord
    answer: str | None
    thinking: str | None
    oracle: str | None
    question: str

    @property
    def is_right(self) -> bool:
        """Whether the answer is the reference answer: the same number, or the same text but for case and spaces."""
        if self.oracle is None or self.answer is None:
            return False
        return is_same_answer(self.answer, self.oracle)


@dataclass(slots=True)
class Coverage:
    """How many responses the detectors could read, and what was in them."""

    responses: int = 0
    answers: int = 0
    think_blocks: int = 0
    reference_answers: int = 0

    def add(self, one: Observed) -> None:
        self.responses += 1
        self.answers += one.answer is not None
        self.think_blocks += one.thinking is not None
        self.reference_answers += one.oracle is not None

    def __str__(self) -> str:
        return (
            f"{self.responses} responses read: {self.answers} with an answer, {self.think_blocks} with a think block, "
            f"{self.reference_answers} to an item with a known reference answer"
        )


def observe(group: GroupRecord, prefilled_think: bool, format: str) -> Iterator[Observed]:
    """The rollouts of a group.

    Args:
        prefilled_think: whether the prompt ends with `<think>`.
        format: `strict` or `lenient`.
    """
    oracle = group.expected_answer
    for rollout in answered(group.rollouts):
        if not rollout.conversation:
            continue
        *prompt, _ = rollout.conversation
        parsed = parse_response(rollout.response, prefilled_think, format=format)
        answer = rollout.answer if rollout.answer is not None else parsed.answer
        yield Observed(group, rollout, answer, parsed.think, oracle, prompt[-1]["content"] if prompt else "")
