"""What a run tells the process that shows it: JSON lines through one named pipe.

Invariant: a report is one write, so several processes may send, and what was sent survives a kill of the sender. Sending
never raises and never waits: what nobody reads is dropped. The sender must be on the reader's machine, as the task of a
run is (`rg_env.skyrl.launch`).
"""  # noqa: E501

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from loguru import logger

from rg_env.base.processes import SCRATCH

if TYPE_CHECKING:
    from loguru import Message, Record

VERBOSE = "RG_ENV_VERBOSE"
"""Environment variable: set if the run prints its log instead of writing it to a file."""
SHOWN = "shown"
_LONGEST = 2000
"""Characters of one text in a report: a pipe takes 4,096 bytes at once, or nothing."""


def _shortened(text: str) -> str:
    """Return a text that fits, cut at the end of a line: of many wrong settings, `--check` shows the others."""
    if len(text) <= _LONGEST:
        return text
    whole, *_ = text[:_LONGEST].rsplit("\n", 1)
    return f"{whole} …; the rest is left out: for wrong settings, `--check` shows all"


@dataclass(frozen=True)
class Reports:
    """Sends reports. Picklable.

    Attributes:
        path: the pipe; None sends nothing.
        lifeline: a port of this machine; connections to it end when the process that started the run ends it.
        log_to_file: whether the run writes its log to a file, and not to standard error.
    """

    path: Path | None = None
    lifeline: int | None = None
    log_to_file: bool = False

    @classmethod
    def of_this_process(cls) -> Self:
        """Report to the supervisor of this process, if it has one; else to nobody."""
        scratch = os.environ.get(SCRATCH)
        if not scratch:
            return cls()
        return cls(Path(scratch, "reports"), log_to_file=VERBOSE not in os.environ)

    def send(self, **facts: Any) -> None:
        """Send what is now true of the run, in the words of `Screen.facts`."""
        if self.path is None:
            return
        # A report that is too long for one write would be dropped as a whole.
        short = {}
        for name, fact in facts.items():
            short[name] = _shortened(fact) if isinstance(fact, str) else fact
        # Opened for every report, so as not to wait: without a supervisor the open fails, with a full pipe the write.
        with suppress(OSError):  # nobody reads, or the pipe is full
            pipe = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(pipe, json.dumps(short, default=str).encode() + b"\n")
            finally:
                os.close(pipe)

    def begin(self, what: str) -> None:
        """Report that the run begins something that takes a while."""
        self.send(doing=what, line=what)

    def send_warnings(self, modules: tuple[str, ...] = ()) -> None:
        """From now on, send warnings that this process logs to a file, and all log lines of the user's `modules`.

        A log line that is bound to `shown`, a shorter text, is sent as this text.
        """

        def is_shown(record: Record) -> bool:
            is_important = record["level"].no >= logger.level("WARNING").no or SHOWN in record["extra"]
            return is_important or (record["name"] or "").startswith(modules)

        def send(message: Message) -> None:
            level, text = message.record["level"].name.lower(), message.record["message"]
            shown = message.record["extra"].get(SHOWN)
            first_line = text.partition("\n")[0]
            self.send(note=shown or f"{level}: {first_line}")

        # A run that prints its log shows these lines already.
        if self.log_to_file:
            logger.add(send, level="INFO", filter=is_shown)
