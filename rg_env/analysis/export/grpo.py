"""Groups with their rewards: what a step of GRPO saw, to train on again or to learn a reward model from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rg_env.analysis.export.kinds import PerTask, Row, Think
from rg_env.analysis.export.left_out import LeftOut, Reason
from rg_env.analysis.export.rollouts import candidates, identity, share_one_prompt
from rg_env.dump.schema import GroupRecord, has_no_signal

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Grpo:
    """`prompt`, `responses` and `rewards`, one of the latter for every rollout.

    Not `completions`: TRL's `GRPOTrainer` hands columns to reward functions by name, beside its own `completions`.

    Attributes:
        keep_no_signal: take groups whose rewards are all equal, too.
    """

    keep_no_signal: bool = False

    name: ClassVar[str] = "grpo"
    default_per_task: ClassVar[PerTask] = PerTask.ALL
    summary: ClassVar[str] = (
        "A line is a group: a prompt (TRL's conversational prompt-only format), with the responses that a policy gave "
        "(`responses`) and what each earned (`rewards`, and `base_scores` before any penalty) in the same order. "
        "`entry` is the Reasoning Gym entry as a JSON string, for scoring anew."
    )

    def settings(self) -> Mapping[str, object]:
        return {"keep-no-signal": self.keep_no_signal}

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        from rg_env.analysis.export.columns import MESSAGES, NUMBER, ORIGIN, TEXT

        numbers = [(name, pa.list_(NUMBER)) for name in ("rewards", "base_scores")]
        return pa.schema([("prompt", MESSAGES), ("responses", pa.list_(MESSAGES)), *numbers, ("entry", TEXT), *ORIGIN])

    def rows(self, group: GroupRecord, think: Think, left_out: LeftOut) -> Iterator[tuple[Row, str]]:
        from rg_env.analysis.export.columns import origin

        found = list(candidates(group, think, left_out))
        rewards = [candidate.record.reward for candidate in found]
        if len(found) < 2:
            left_out[Reason.TOO_FEW] += 1
        elif not share_one_prompt(found):
            left_out[Reason.DIFFERENT_PROMPTS] += 1
        elif has_no_signal(rewards) and not self.keep_no_signal:
            left_out[Reason.NO_SIGNAL] += 1
        else:
            row = {
                "prompt": list(found[0].prompt),
                "responses": [candidate.completion for candidate in found],
                "rewards": rewards,
                "base_scores": [candidate.record.base_score for candidate in found],
                "entry": group.entry,
                **origin(group),
            }
            yield row, identity(found[0].prompt, *(candidate.response for candidate in found))
