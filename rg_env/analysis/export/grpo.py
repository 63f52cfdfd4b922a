"""Groups with their rewards, as a GRPO step saw them: to train on again, or to train a reward model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from rg_env.analysis.export.kinds import MESSAGES, NUMBER, ORIGIN, TEXT, Kind, Row, origin
from rg_env.analysis.export.left_out import LeftOut, Reason
from rg_env.analysis.export.rollouts import candidates, identity, unusable
from rg_env.choices import Think
from rg_env.config import RGDumpConfig
from rg_env.dump.schema import GroupRecord, has_no_signal


@dataclass(frozen=True, slots=True)
class Grpo(Kind):
    """`prompt`, `responses` and `rewards`, with one response and one reward per rollout.

    Not `completions`: TRL's `GRPOTrainer` passes columns to reward functions by name, and `completions` is its own.

    Attributes:
        keep_no_signal: include groups whose rewards are all equal.
    """

    keep_no_signal: bool = False

    name: ClassVar[str] = "grpo"
    summary: ClassVar[str] = (
        "Each line is a group: a prompt (TRL's conversational prompt-only format), the responses of a policy "
        "(`responses`) and their rewards (`rewards`; `base_scores` before any penalty) in the same order. "
        "For scoring again with `Scorer.judge`: `entry` and `task_config`, the Reasoning Gym entry and the task's "
        "options as JSON for `rg_env.tasks.decode_entry`, and the run's `prefilled_think` and `format`."
    )
    schema: ClassVar[pa.Schema] = pa.schema(
        [
            ("prompt", MESSAGES),
            ("responses", pa.list_(MESSAGES)),
            *((name, pa.list_(NUMBER)) for name in ("rewards", "base_scores")),
            ("entry", TEXT),
            ("task_config", TEXT),
            ("prefilled_think", pa.bool_()),
            ("format", TEXT),
            *ORIGIN,
        ]
    )

    def rows(
        self, group: GroupRecord, config: RGDumpConfig, think: Think, left_out: LeftOut
    ) -> Iterator[tuple[Row, str]]:
        found = list(candidates(group, think, left_out))
        rewards = [candidate.record.reward for candidate in found]
        if reason := unusable(found):
            left_out[reason] += 1
        elif has_no_signal(rewards) and not self.keep_no_signal:
            left_out[Reason.NO_SIGNAL] += 1
        else:
            row = {
                "prompt": list(found[0].prompt),
                "responses": [candidate.completion for candidate in found],
                "rewards": rewards,
                "base_scores": [candidate.record.base_score for candidate in found],
                "entry": group.entry,
                "task_config": group.task_config,
                "prefilled_think": config.prefilled_think,
                "format": config.format,
                **origin(group),
            }
            yield row, identity(found[0].prompt, *(candidate.response for candidate in found))
