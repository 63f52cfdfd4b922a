"""The names of the metrics that a training call and an evaluation call give to SkyRL's tracker."""

from __future__ import annotations

from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.skyrl.canaries import CanaryCounts
from tests.skyrl.generating import TASK, right, run, script_for

RESPONSES = (right("{}"), right("no"), "no tags", "<think>x</think>")


METRICS = "metrics.txt"


def metric_names() -> str:
    """Lines of `PHASE: NAME`, sorted."""
    rows = ReasoningGymDataset(TASK, size=2)
    names = []
    for phase in ("train", "eval"):
        output, _ = run(rows, script_for(rows, *RESPONSES), phase=phase)
        names += [f"{phase}: {name}" for name in output["rollout_metrics"]]
    names += [f"train: {name}" for name in CanaryCounts(scored=1).metrics()]  # the trainer's, of a step
    return "\n".join(sorted(names)) + "\n"
