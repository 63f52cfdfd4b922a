"""Findings of the detectors, and the evidence that they collect."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

_EVIDENCE = 5


class Sign(StrEnum):
    """What was seen."""

    ONE_ANSWER_WINS = "one answer wins"
    ONE_ANSWER_ONLY = "one answer only"
    NO_REASONING = "no reasoning"
    CODE = "code as an answer"
    OVERLONG = "overlong answers"
    COPIED = "copied from the prompt"
    REWARDED_REFUSAL = "rejected but rewarded"
    NEAR_DUPLICATES = "near-duplicates"
    LENGTH_COLLAPSE = "score up, length down"
    JUMP = "score jumped"
    CONSENSUS = "agreement on a low score"


@dataclass(frozen=True, slots=True)
class Agreement:
    """An item on which models agree.

    Attributes:
        answer: as one of them wrote it; its beginning, if it is long.
        agree, of: number of models that give this answer, and of those that answered the item; with a single model, of
            its samples.
        score: the highest base score of the answer, below .99.
        groups: ids of the groups of those that agree.
    """

    item: str
    answer: str
    agree: int
    of: int
    score: float
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One sign in one task.

    Attributes:
        what: what was seen, with counts, and what it may mean.
        groups: ids of up to five groups that show it, for `rg-env dumps show` and `replay`.
        share: the share of examined rollouts or groups that show it, in [0, 1]; for JUMP and LENGTH_COLLAPSE the
            increase of the mean score; for CONSENSUS the share of items.
        items: of CONSENSUS: all items on which models agree, the clearest first.
    """

    sign: Sign
    task: str
    what: str
    groups: tuple[str, ...]
    share: float
    items: tuple[Agreement, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(slots=True)
class Tally:
    """How often something was seen in a task, and in which groups first. Constant size."""

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
