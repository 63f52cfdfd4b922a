"""The log of single rollouts (`debug_logging`): a file of its own, beside the log of the run.

Invariant: the first line of a rollout says what counts: score, reward, and how they came about; its response follows.
No text of a model can change the terminal that shows the file. A disk that fails is one warning and stops nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from loguru import logger

from rg_env.dump.schema import GroupRecord, RolloutRecord
from rg_env.scoring.types import Status
from rg_env.wording import visible


class RolloutLog:
    """Appends groups to `rollouts-DATE-TIME.log`.

    Args:
        folder: created if missing.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder, f"rollouts-{time.strftime('%Y%m%d-%H%M%S')}.log")
        self._failed = False

    def log_groups(self, groups: Iterable[GroupRecord]) -> None:
        """Write all rollouts of some groups."""
        text = "".join(f"{line}\n" for group in groups for line in _group(group))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            if not self._failed:
                logger.warning("the log of rollouts cannot be written: {}", error)
            self._failed = True


def _group(group: GroupRecord) -> Iterator[str]:
    scores = [rollout.score for rollout in group.rollouts]
    scored = f"mean score {sum(scores) / len(scores):.3f}, best {max(scores):.3f}"
    step = "" if group.step is None else f" step {group.step}"  # there are none outside of training
    yield f"{group.phase}{step} | {visible(group.item, one_line=True)} | {group.outcome} | {scored}"
    entry = json.loads(group.entry)
    yield from _indented("question", entry.get("question", ""))
    for rollout in group.rollouts:
        parts = [f"score {rollout.score:.3f} reward {rollout.reward:.3g}", *_why(rollout, group, entry.get("answer"))]
        yield f"  {visible(' | '.join(parts), one_line=True)}"
        yield from _indented("response", rollout.response)
    yield ""


def _why(rollout: RolloutRecord, group: GroupRecord, expected: object) -> Iterator[str]:
    """Yield what led to the score."""
    if rollout.violation:
        yield f"violation {rollout.violation}"
    elif rollout.status is not Status.OK:
        yield f"{rollout.status}: {rollout.detail}"
    elif rollout.raw_score is not None:
        yield f"answer {rollout.answer!r}, expected {expected!r}"
        yield f"raw {rollout.raw_score:.3f}, tagged {rollout.tagged_score:.3f}, baseline {group.baseline:.3f}"
        if rollout.normalized:
            yield rollout.detail
    if rollout.penalty_factor != 1:
        yield f"length penalty × {rollout.penalty_factor:.3f}"


def _indented(name: str, text: str) -> Iterator[str]:
    for number, line in enumerate(visible(text).splitlines()):
        yield f"      {name if number == 0 else '':8} {line}"
