"""Sends a table of rollouts to W&B or TensorBoard, through SkyRL's hook for trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skyrl.train.utils.trajectory_logging import TrajectoryLogger

from rg_env.rollouts.samples import COLUMNS, RolloutSamples


class RolloutTable(TrajectoryLogger):
    """SkyRL calls `log` once per training step and evaluation. Its own table has no scores and no violations.

    Args:
        samples: of the generator.
    """

    def __init__(self, samples: RolloutSamples) -> None:
        super().__init__()
        self._samples = samples

    def log(self, *, tracker: Any, global_step: int | None, wandb_key: str, **_: Any) -> None:
        """Send the rollouts since the last call; other trackers than W&B and TensorBoard get nothing."""
        phase = wandb_key.rpartition("/")[2]
        rows = self._samples.take(phase)
        if tracker is None or not rows:
            return
        key, step = f"rollouts/{phase}", global_step or 0
        if tracker.backend == "wandb":
            tracker.log_samples_to_table(key=key, columns=list(COLUMNS), samples=rows, step=step)
        elif tracker.backend == "tensorboard":
            tracker.logger.writer.add_text(key, _markdown(rows), step)


def _markdown(rows: Sequence[Sequence[object]]) -> str:
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value: object) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return escaped.replace("\r", "").replace("\n", "<br>")
