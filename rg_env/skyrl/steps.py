"""The trainer's own numbers of a step: a few for people, and all of them for the step files of the dump."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl.train.utils.tracking import Tracking

from rg_env.dump import DumpWriter, StepRecord

_SHOWN = {
    "policy/policy_loss": "loss",
    "policy/policy_kl": "KL",
    "loss/avg_kl": "KL",
    "policy/grad_norm": "gradient norm",
}
"""The trainer's numbers that people are shown, where the algorithm has them."""


def numbers_line(metrics: Mapping[str, float]) -> str:
    """Return the trainer's numbers that people are shown: `loss 0.012 KL 0.0031 gradient norm 0.45`."""
    numbers = {name: metrics[key] for key, name in _SHOWN.items() if key in metrics}
    return " ".join(f"{name} {number:.3g}" for name, number in numbers.items())


class StepTracking:
    """A tracker that does what SkyRL's `tracker` does, and records the numbers of each step in the dump.

    SkyRL logs a step in one or several calls, the last of which has `commit=True`; they become one line. The evaluation
    before training is step 0.

    Args:
        writer: of the dump.
    """

    def __init__(self, tracker: Tracking, writer: DumpWriter) -> None:
        self._tracker, self._writer = tracker, writer
        self._step = 0
        self._numbers: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tracker, name)

    def log(self, data: Mapping[str, Any], step: int, commit: bool = False) -> None:
        """As SkyRL's. Values that are not numbers are not recorded."""
        self._tracker.log(data, step=step, commit=commit)
        # The step before ended without a commit.
        if step != self._step:
            self.flush()
        self._step = step
        for name, value in data.items():
            number = _as_number(value)
            if number is not None:
                self._numbers[name] = number
        if commit:
            self.flush()

    def finish(self) -> None:
        """As SkyRL's."""
        self.flush()
        self._tracker.finish()

    def flush(self) -> None:
        """Record what has been logged so far."""
        writer, numbers = self._writer, self._numbers
        if numbers and not writer.is_closed:
            self._numbers = {}
            values: list[float | None] = list(numbers.values())
            writer.submit([StepRecord(writer.run_id, writer.attempt, self._step, list(numbers), values)])


def _as_number(value: Any) -> float | None:
    """Return the value as a float; None if it is not a number, or several."""
    if hasattr(value, "item"):  # numpy and torch
        try:
            value = value.item()
        except (ValueError, RuntimeError):  # not exactly one element
            return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return None
