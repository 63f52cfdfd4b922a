"""Supervised examples: the best responses of each group, above a threshold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from rg_env.analysis.export.kinds import MESSAGES, NUMBER, ORIGIN, Kind, Row, check, origin
from rg_env.analysis.export.left_out import LeftOut, Reason
from rg_env.analysis.export.rollouts import candidates, flaw, identity
from rg_env.choices import PerTask, Think
from rg_env.config import RGDumpConfig
from rg_env.dump.schema import GroupRecord


@dataclass(frozen=True, slots=True)
class Sft(Kind):
    """`messages`, as TRL's `SFTTrainer` expects them.

    Attributes:
        min_score: minimum base score, in [0, 1].
        per_group: maximum number of responses per group; the best come first.
    """

    min_score: float = 0.99
    per_group: int = 1

    name: ClassVar[str] = "sft"
    default_per_task: ClassVar[PerTask] = PerTask.MEDIAN
    summary: ClassVar[str] = (
        "Each line is a conversation that ends with a response that scored well (`messages`: TRL's conversational "
        "language-modeling format)."
    )
    schema: ClassVar[pa.Schema] = pa.schema(
        [("messages", MESSAGES), ("base_score", NUMBER), ("score", NUMBER), *ORIGIN]
    )

    def __post_init__(self) -> None:
        check("--min-score", self.min_score, 0 <= self.min_score <= 1, "from 0 to 1")
        check("--per-group", self.per_group, self.per_group >= 1, "at least 1")

    def rows(
        self, group: GroupRecord, config: RGDumpConfig, think: Think, left_out: LeftOut
    ) -> Iterator[tuple[Row, str]]:
        good = []
        for candidate in candidates(group, think, left_out):
            reason = flaw(candidate.record)
            if reason is None and candidate.record.base_score < self.min_score:
                reason = Reason.LOW_SCORE
            if reason is None:
                good.append(candidate)
            else:
                left_out[reason] += 1
        good.sort(key=lambda candidate: candidate.rank)
        left_out[Reason.NOT_BEST] += max(0, len(good) - self.per_group)
        for best in good[: self.per_group]:
            row = {
                "messages": [*best.prompt, *best.completion],
                "base_score": best.record.base_score,
                "score": best.record.score,
                **origin(group),
            }
            yield row, identity(best.prompt, best.response)
