"""A table of rollouts for people to read, in W&B or TensorBoard, through SkyRL's hook for trajectories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from skyrl.train.utils.trajectory_logging import TrajectoryLogger

from rg_env.dump.schema import GroupRecord, Outcome, answered
from rg_env.sanitize import visible

COLUMNS = ("step", "item", "which", "score", "base_score", "reward", "violation", "status", "answer", "response")
_LONGEST_TEXT = 4000


class RolloutTable(TrajectoryLogger):
    """The best and the worst rollout of a few groups of each step; SkyRL's own table has no scores and no violations.

    Args:
        groups: how many groups of a step or an evaluation; those with correct and wrong responses come first.
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self._most = groups
        self._kept: dict[str, list[GroupRecord]] = defaultdict(list)

    def add(self, phase: str, groups: Iterable[GroupRecord]) -> None:
        """Keep some of these groups until `log` is called."""
        kept = self._kept[phase] + [group for group in groups if answered(group.rollouts)]
        self._kept[phase] = sorted(kept, key=lambda group: group.outcome is not Outcome.MIXED)[: self._most]

    def log(self, *, tracker: Any, global_step: int | None, wandb_key: str, **_: Any) -> None:
        """SkyRL calls this after each step and evaluation. Trackers other than W&B and TensorBoard get nothing."""
        phase, step = wandb_key.rpartition("/")[2], global_step or 0
        rows = [row for group in self._kept.pop(phase, []) for row in self._rows(group, step)]
        if rows and tracker and tracker.backend == "wandb":
            tracker.log_samples_to_table(key=f"rollouts/{phase}", columns=list(COLUMNS), samples=rows, step=step)
        elif rows and tracker and tracker.backend == "tensorboard":
            lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
            text = "\n".join("| " + " | ".join(map(self._cell, line)) + " |" for line in lines)
            tracker.logger.writer.add_text(f"rollouts/{phase}", text, step)

    def _rows(self, group: GroupRecord, step: int) -> Iterable[tuple[object, ...]]:
        ordered = sorted(answered(group.rollouts), key=lambda rollout: rollout.score)
        chosen = {"best": ordered[-1], "worst": ordered[0]} if len(ordered) > 1 else {"only": ordered[0]}
        for which, one in chosen.items():
            texts = (visible(text)[:_LONGEST_TEXT] for text in (one.answer or "", one.conversation[-1]["content"]))
            found = (one.score, one.base_score, one.reward, str(one.violation or ""), str(one.status), *texts)
            yield (step if group.step is None else group.step, group.item, which, *found)

    @staticmethod
    def _cell(value: object) -> str:
        text = f"{value:.3g}" if isinstance(value, float) else str(value)
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
        return escaped.replace("\r", "").replace("\n", "<br>")
