"""What a detector says, and the evidence that it collects."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

_EVIDENCE = 5


class Sign(StrEnum):
    """What a policy was seen to do."""

    ONE_ANSWER_WINS = "one answer wins"
    ONE_ANSWER_ONLY = "one answer only"
    NO_REASONING = "no reasoning"
    CODE = "code for an answer"
    OVERLONG = "overlong answers"
    COPIED = "copied from the prompt"
    REWARDED_REFUSAL = "refused, yet rewarded"
    NEAR_DUPLICATES = "near-duplicates"
    LENGTH_COLLAPSE = "score up, length down"
    JUMP = "score jumped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One sign in one task.

    Attributes:
        what: what was seen, with its counts, and what to make of it.
        groups: ids of up to five groups that show it, for `rg-env dumps show` and `replay`.
        share: how much of what was looked at shows it, in [0, 1]; for JUMP and LENGTH_COLLAPSE by how much the mean
            score rose.
    """

    sign: Sign
    task: str
    what: str
    groups: tuple[str, ...]
    share: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(slots=True)
class Tally:
    """How often something was seen in the rollouts of a task, and where first. Constant size."""

    seen: int = 0
    of: int = 0
    groups: dict[str, None] = field(default_factory=dict)

    def add(self, hit: bool, group_id: str) -> None:
        self.of += 1
        if hit:
            self.seen += 1
            if len(self.groups) < _EVIDENCE:
                self.groups[group_id] = None

    @property
    def share(self) -> float:
        return self.seen / self.of if self.of else 0.0

    def finding(self, sign: Sign, task: str, what: str) -> Finding:
        return Finding(sign, task, what, tuple(self.groups), self.share)
