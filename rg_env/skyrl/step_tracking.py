"""SkyRL's tracker, whose numbers also go to the step files of the dump.

SkyRL logs a step in one or several calls, the last of which has `commit=True`; they become one line. The evaluation
before training is step 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from skyrl.train.utils.tracking import Tracking

from rg_env.dump import DumpWriter, StepRecord


class StepTracking:
    """A tracker that does what `tracker` does, and records.

    Args:
        writer: of the dump, which is opened after the tracker; None: nothing is recorded.
    """

    def __init__(self, tracker: Tracking, writer: Callable[[], DumpWriter | None]) -> None:
        self._tracker, self._writer = tracker, writer
        self._step = 0
        self._numbers: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tracker, name)

    def log(self, data: Mapping[str, Any], step: int, commit: bool = False) -> None:
        """As SkyRL's. Values that are no numbers are not recorded."""
        self._tracker.log(data, step=step, commit=commit)
        if step != self._step:
            self.flush()
        self._step = step
        self._numbers |= {name: number for name, value in data.items() if (number := as_number(value)) is not None}
        if commit:
            self.flush()

    def finish(self) -> None:
        """As SkyRL's."""
        self.flush()
        self._tracker.finish()

    def flush(self) -> None:
        """Record what has been logged so far."""
        writer, numbers = self._writer(), self._numbers
        if writer is not None and numbers:
            self._numbers = {}
            values: list[float | None] = list(numbers.values())
            writer.submit([StepRecord(writer.run_id, writer.attempt, self._step, list(numbers), values)])


def as_number(value: Any) -> float | None:
    """The value as a float; None if it is no number, or several.

    >>> as_number(1), as_number(True), as_number("1")
    (1.0, None, None)
    """
    if hasattr(value, "item"):  # numpy and torch
        try:
            value = value.item()
        except (ValueError, RuntimeError):  # not exactly one element
            return None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
