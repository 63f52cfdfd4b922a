"""Preference pairs: two responses to one prompt whose scores differ by a margin.

Invariant: in every pair `score_chosen - score_rejected >= margin` in floating point; no response is in two pairs; the
chosen response follows the format and is not truncated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from rg_env.analysis.export.kinds import MESSAGES, NUMBER, ORIGIN, Kind, Row, check, origin
from rg_env.analysis.export.left_out import LeftOut, Reason
from rg_env.analysis.export.rollouts import Candidate, candidates, flaw, identity, unusable
from rg_env.choices import PairBy, Think
from rg_env.config import RGDumpConfig
from rg_env.dump.schema import GroupRecord


@dataclass(frozen=True, slots=True)
class Dpo(Kind):
    """`prompt`, `chosen`, `rejected`, as TRL's `DPOTrainer` expects them.

    Attributes:
        margin: minimum difference between the two scores, in (0, 1].
        by: the score that is compared.
        pairs: maximum number of pairs per group: best with worst, second best with second worst, and so on.
    """

    margin: float = 0.5
    by: PairBy = PairBy.SCORE
    pairs: int = 1

    name: ClassVar[str] = "dpo"
    summary: ClassVar[str] = (
        "Each line is a prompt with a better and a worse response from the same group (`prompt`, `chosen`, `rejected`: "
        "TRL's conversational preference format)."
    )
    schema: ClassVar[pa.Schema] = pa.schema(
        [
            *((name, MESSAGES) for name in ("prompt", "chosen", "rejected")),
            *((name, NUMBER) for name in ("score_chosen", "score_rejected")),
            *ORIGIN,
        ]
    )

    def __post_init__(self) -> None:
        check("--margin", self.margin, 0 < self.margin <= 1, "above 0 and at most 1")
        check("--pairs", self.pairs, self.pairs >= 1, "at least 1")

    def rows(
        self, group: GroupRecord, config: RGDumpConfig, think: Think, left_out: LeftOut
    ) -> Iterator[tuple[Row, str]]:
        found = sorted(candidates(group, think, left_out), key=self._rank)
        pairs = self._pairs(found)
        if reason := unusable(found) or (None if pairs else Reason.SMALL_MARGIN):
            left_out[reason] += 1
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
        return candidate.record.score if self.by is PairBy.SCORE else candidate.record.base_score

    def _rank(self, candidate: Candidate) -> tuple[float, ...]:
        return (-self._value(candidate), *candidate.rank)
