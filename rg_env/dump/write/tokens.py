"""Token records: one Parquet file per training step with a row for every sequence that the step consumed.

Invariant: a file has a whole step or does not exist. Writing never raises into training and never makes it wait: it
happens in a thread, and a step that comes while `WAITING` others are not written yet is dropped. What is dropped or
fails is counted and logged. Not covered: the steps that wait when the process is killed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loguru import logger

from rg_env.atomic import replacing
from rg_env.choices import TokenSteps
from rg_env.dump.files import PREFIX

if TYPE_CHECKING:
    import pyarrow as pa

METADATA = b"rg_env"
"""Key of a file's metadata: a JSON object with what the advantages were computed with."""
WAITING = 2
"""Steps that may wait for the disk."""
_NAME = re.compile(rf"{PREFIX}_tokens_(?P<run_id>.+)_(?P<attempt>\d+)_(?P<step>\d{{6,}})\.parquet")


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file of token records, as described by its name."""

    path: Path
    run_id: str
    attempt: int
    step: int


def token_files(folder: Path, run_id: str | None = None) -> list[TokenFile]:
    """The token records in a folder, by run, attempt and step."""
    found = ((path, _NAME.fullmatch(path.name)) for path in folder.glob(f"{PREFIX}_tokens_*.parquet"))
    files = [TokenFile(path, m["run_id"], int(m["attempt"]), int(m["step"])) for path, m in found if m]
    chosen = [file for file in files if run_id in (None, file.run_id)]
    return sorted(chosen, key=lambda file: (file.run_id, file.attempt, file.step))


class TokenWriter:
    """Writes the token records of one attempt of a run.

    Attributes:
        missing: number of steps whose tokens could not be written.
    """

    def __init__(self, folder: Path, run_id: str, attempt: int, steps: TokenSteps) -> None:
        self._folder, self._run_id, self._attempt, self.steps = folder, run_id, attempt, steps
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rg-dump-tokens")
        self._waiting: list[Future[None]] = []
        self.missing = 0

    def submit(self, step: int, table: Callable[[], pa.Table], facts: Mapping[str, Any]) -> None:
        """Hand over a step, if it is wanted.

        Args:
            table: makes the table, in the thread of the writer.
            facts: for the file's metadata.
        """
        self._waiting = [one for one in self._waiting if not one.done()]
        if step not in self.steps:
            return
        if len(self._waiting) > WAITING:
            self._lose(step, "the disk does not keep up")
            return
        self._waiting.append(self._thread.submit(self._write, step, table, dict(facts)))

    def close(self, timeout: float = 15.0) -> int:
        """Wait for what is being written, at most `timeout` seconds; returns `missing`."""
        for one in self._waiting:
            try:
                one.result(timeout)
            except TimeoutError:
                self.missing += 1
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self.missing:
            logger.error("dump: the tokens of {} steps are missing from {}", self.missing, self._folder)
        return self.missing

    def _write(self, step: int, table: Callable[[], pa.Table], facts: dict[str, Any]) -> None:
        import pyarrow.parquet as pq

        try:
            found = table().replace_schema_metadata({METADATA: json.dumps(facts)})
            name = f"{PREFIX}_tokens_{self._run_id}_{self._attempt}_{step:06d}.parquet"
            with replacing(self._folder / name) as draft:
                pq.write_table(found, draft, compression="zstd", use_dictionary=["group_id"])
            if self.steps.last is not None:
                for old in token_files(self._folder, self._run_id)[: -self.steps.last]:
                    old.path.unlink(missing_ok=True)
        except Exception as error:  # training continues after any error
            self._lose(step, str(error))

    def _lose(self, step: int, why: str) -> None:
        self.missing += 1
        if self.missing & (self.missing - 1) == 0:  # the first, and whenever their number has doubled
            logger.error("dump: the tokens of step {} are not written ({}); {} steps so far", step, why, self.missing)
