"""What a run tells the process that shows it: JSON lines in a file.

Invariant: a report is one append, so that several processes may send, and what has been sent survives a kill of the
sender. Sending never raises. The sender must be on the same machine as the reader, as the task of a run is
(`rg_env.skyrl.placement`).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from loguru import logger

from rg_env.processes import SCRATCH

if TYPE_CHECKING:
    from loguru import Message, Record


@dataclass(frozen=True)
class Reports:
    """Sends reports. Picklable.

    Attributes:
        path: the file; None sends nothing.
        lifeline: a port of this machine; connections to it end when the process that started the run ends it.
    """

    path: Path | None = None
    lifeline: int | None = None

    @classmethod
    def of_this_process(cls) -> Self:
        """To the supervisor of this process, if it has one."""
        scratch = os.environ.get(SCRATCH)
        return cls(Path(scratch, "reports.jsonl") if scratch else None)

    def send(self, **facts: Any) -> None:
        """Append a report: what is now true of the run, in the words of `Screen.facts`."""
        if self.path is None:
            return
        line = json.dumps(facts, default=str).encode() + b"\n"
        with contextlib.suppress(OSError):
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, line)
            finally:
                os.close(file)

    def begin(self, what: str) -> None:
        """The run begins something that takes a while."""
        self.send(doing=what, line=what)

    def step(self, number: int, total: int, counts: Mapping[str, Any], *words: str) -> None:
        """A step is finished. `counts` are over its rollouts (`StepCounts.as_facts`), `words` say more about it."""
        means = _means(counts)
        line = " | ".join(filter(None, [f"step {number}/{total}", _said(means), *words]))
        self.send(line=line, step=number, total=total, groups=counts["files"], scorer=counts["statuses"], **means)

    def evaluation(self, step: int, counts: Mapping[str, Any]) -> None:
        """An evaluation after a step is finished."""
        said = f"after step {step}: {_said(_means(counts))}"
        self.send(line=f"evaluation {said}", evaluation=said)


def _means(counts: Mapping[str, Any]) -> dict[str, float]:
    """Mean reward and shares of solved and well-formed rollouts; without those that no rollout has."""
    names = {
        "reward": ("rewards", "rollouts"),
        "solved": ("solved", "rollouts"),
        "format": ("well_formed", "formatted"),
    }
    return {name: counts[part] / counts[whole] for name, (part, whole) in names.items() if counts[whole]}


def _said(means: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:.2f}" for name, value in means.items())


def report_warnings(reports: Reports, modules: tuple[str, ...] = ()) -> None:
    """Send warnings that are logged in this process, and all log lines of the user's modules."""

    def wanted(record: Record) -> bool:
        return record["level"].no >= logger.level("WARNING").no or (record["name"] or "").startswith(modules)

    def send(message: Message) -> None:
        reports.send(note=f"{message.record['level'].name.lower()}: {message.record['message']}")

    if reports.path is not None:
        logger.add(send, level="INFO", filter=wanted)


class Tail:
    """The lines appended to a file since they were last read. A line without its end waits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def lines(self) -> list[str]:
        """The new lines; none while the file does not exist."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                whole, end, _ = file.read().rpartition(b"\n")
        except OSError:
            return []
        self._read += len(whole) + len(end)
        return whole.decode(errors="replace").split("\n") if end else []
