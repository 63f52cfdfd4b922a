"""Preference pairs: two responses to one prompt whose scores differ by a margin.

Invariant: in every pair `score_chosen - score_rejected >= margin`, computed in floating point as anyone would check it;
no response is in two pairs; the chosen one keeps the format and is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from rg_env.analysis.export.kinds import PerTask, Row, Think, check_count, check_share
from rg_env.analysis.export.left_out import LeftOut, Reason
from rg_env.analysis.export.rollouts import Candidate, candidates, flaw, identity, share_one_prompt
from rg_env.dump.schema import GroupRecord

if TYPE_CHECKING:
    import pyarrow as pa


class By(StrEnum):
    """The number by which responses are compared."""

    SCORE = "score"
    """After the length penalty: of two right answers the shorter may be preferred."""
    BASE_SCORE = "base_score"


@dataclass(frozen=True, slots=True)
class Dpo:
    """`prompt`, `chosen`, `rejected`, as TRL's `DPOTrainer` takes them.

    Attributes:
        margin: least difference between the two, in (0, 1].
        by: the number that differs.
        pairs: how many pairs of a group at most: best with worst, second best with second worst, and so on.
    """

    margin: float = 0.5
    by: By = By.SCORE
    pairs: int = 1

    name: ClassVar[str] = "dpo"
    default_per_task: ClassVar[PerTask] = PerTask.ALL
    summary: ClassVar[str] = (
        "A line is a prompt with a better and a worse response from the same group (`prompt`, `chosen`, `rejected`: "
        "TRL's conversational preference format)."
    )

    def __post_init__(self) -> None:
        check_share("--margin", self.margin, above=True)
        check_count("--pairs", self.pairs)

    def settings(self) -> Mapping[str, object]:
        return {"margin": self.margin, "by": self.by.value, "pairs": self.pairs}

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        from rg_env.analysis.export.columns import MESSAGES, NUMBER, ORIGIN

        texts = [(name, MESSAGES) for name in ("prompt", "chosen", "rejected")]
        return pa.schema([*texts, ("score_chosen", NUMBER), ("score_rejected", NUMBER), *ORIGIN])

    def rows(self, group: GroupRecord, think: Think, left_out: LeftOut) -> Iterator[tuple[Row, str]]:
        from rg_env.analysis.export.columns import origin

        found = sorted(candidates(group, think, left_out), key=self._rank)
        if len(found) < 2:
            left_out[Reason.TOO_FEW] += 1
            return
        if not share_one_prompt(found):
            left_out[Reason.DIFFERENT_PROMPTS] += 1
            return
        pairs = self._pairs(found)
        if not pairs:
            left_out[Reason.SMALL_MARGIN] += 1
            return
        left_out[Reason.NOT_PAIRED] += len(found) - 2 * len(pairs)
        for chosen, rejected in pairs:
            row = {
                "prompt": list(chosen.prompt),
                "chosen": chosen.completion,
                "rejected": rejected.completion,
                "score_chosen": self._value(chosen),
                "score_rejected": self._value(rejected),
                **origin(group),
            }
            yield row, identity(chosen.prompt, chosen.response, rejected.response)

    def _pairs(self, ranked: list[Candidate]) -> list[tuple[Candidate, Candidate]]:
        worst_first = ranked[::-1]
        good = [candidate for candidate in ranked if flaw(candidate.record) is None]
        pairs = []
        for chosen, rejected in zip(good[: self.pairs], worst_first, strict=False):
            if self._value(chosen) - self._value(rejected) < self.margin:
                break
            if chosen.response != rejected.response:
                pairs.append((chosen, rejected))
        return pairs

    def _value(self, candidate: Candidate) -> float:
        return candidate.record.score if self.by is By.SCORE else candidate.record.base_score

    def _rank(self, candidate: Candidate) -> tuple[float, ...]:
        return (-self._value(candidate), *candidate.rank)
