"""The log of single rollouts (`debug_logging`): a file of its own, beside the log of the run.

Invariant: every decision is there. Of a group: where its text is kept, or why not, and whether it has a signal. Of a
rollout, in its first line: its reward, and how that came about; the response follows. Of a canary: whether it passed.
No text of a model can change the terminal that shows the file. A disk that fails is one warning and stops nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from loguru import logger

from rg_env.base.wording import visible
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import route
from rg_env.dump.group_text import group_text
from rg_env.dump.schema import GroupRecord


class RolloutLog:
    """Appends groups to `rollouts-DATE-TIME.log`.

    Args:
        folder: created if missing.
        config: which texts the dump keeps, and which scores are solved.
    """

    def __init__(self, folder: str | Path, config: RGDumpConfig) -> None:
        self._config = config
        self.path = Path(folder, f"rollouts-{time.strftime('%Y%m%d-%H%M%S')}.log")
        self._failed = False

    def log_groups(self, groups: Iterable[GroupRecord]) -> None:
        """Write all rollouts of some groups."""
        texts: list[str] = []
        for group in groups:
            solved_at = self._config.solved_at if group.solved_at is None else group.solved_at
            kind, not_kept = route(group, self._config)
            kept = f"text in the {kind} files" if kind else f"text not kept: {not_kept}"
            texts.append(group_text(group, solved_at, every_rollout=True, in_full=True, remark=kept))
        self._write(texts)

    def log_canary(self, sentence: str, *, passed: bool) -> None:
        """Write how an answer of known score was scored."""
        outcome = "as it should be" if passed else "the verifier is wrong"
        self._write([visible(f"== canary: {sentence}: {outcome}", one_line=True) + "\n"])

    def _write(self, texts: Iterable[str]) -> None:
        text = "".join(f"{text}\n" for text in texts)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            if not self._failed:
                logger.warning("the rollout log cannot be written: {}", error)
            self._failed = True
