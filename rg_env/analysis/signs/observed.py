"""A rollout as the detectors look at it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rg_env.dump import GroupRecord, RolloutRecord
from rg_env.scoring import parse_response


@dataclass(frozen=True, slots=True)
class Observed:
    """One rollout, with what its group knows about the item.

    Attributes:
        answer: taken from the response, without the space around it; None where there is none.
        thinking: the text of the think block; None where there is none.
        oracle: the item's own answer; None where the record does not have it (Atropos' files).
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
        return self.oracle is not None and self.answer is not None and _plain(self.answer) == _plain(self.oracle)


def observe(group: GroupRecord, prefilled_think: bool) -> Iterator[Observed]:
    """The rollouts of a group.

    Args:
        prefilled_think: the prompt had opened `<think>`.
    """
    oracle = group.expected_answer
    for rollout in group.rollouts:
        if not rollout.conversation:
            continue
        *prompt, _ = rollout.conversation
        parsed = parse_response(rollout.response, prefilled_think)
        answer = rollout.answer if rollout.answer is not None else parsed.answer
        yield Observed(group, rollout, answer, parsed.think, oracle, prompt[-1]["content"] if prompt else "")


def _plain(text: str) -> str:
    return "".join(text.split()).casefold()
