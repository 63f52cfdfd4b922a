"""A rollout as seen by the detectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rg_env.dump import GroupRecord, RolloutRecord
from rg_env.scoring import parse_response


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
        return self.oracle is not None and self.answer is not None and _plain(self.answer) == _plain(self.oracle)


def observe(group: GroupRecord, prefilled_think: bool) -> Iterator[Observed]:
    """The rollouts of a group.

    Args:
        prefilled_think: whether the prompt ends with `<think>`.
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
