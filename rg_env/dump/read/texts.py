"""Reads the text of one group after the other, where the ledger says that it is.

Invariant: a text is that of the group that was asked for, or None. Where the ledger is silent or wrong, because files
were renamed or made by other tools, the text files are searched once.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path

from rg_env.dump.codec import BadLineError, from_line
from rg_env.dump.files import DumpFile
from rg_env.dump.open_file import open_lines
from rg_env.dump.read.chunks import MAX_LINE
from rg_env.dump.read.runs import Run
from rg_env.dump.schema import FileKind, GroupRecord, Place

Search = Callable[[], dict[str, tuple[FileKind, Place]]]


class TextReader:
    """Reads texts by place.

    Args:
        search: finds where all texts are, by group id.
    """

    def __init__(self, runs: Iterable[Run], search: Search) -> None:
        self._runs = {run.run_id: run for run in runs}
        self._search = search
        self._file: tuple[Path, io.BufferedIOBase] | None = None
        self._opened = ExitStack()

    def close(self) -> None:
        """Close the file that was read last."""
        self._opened.close()

    @cached_property
    def _found(self) -> dict[str, tuple[FileKind, Place]]:
        return self._search()

    def read(self, run_id: str, group_id: str, kind: FileKind, place: Place | None) -> GroupRecord | None:
        """The group, or None if its text is damaged or gone."""
        group = None if place is None else self._at(run_id, group_id, kind, place)
        if group is None and group_id in self._found:
            group = self._at(run_id, group_id, *self._found[group_id])
        return group

    def _at(self, run_id: str, group_id: str, kind: FileKind, place: Place) -> GroupRecord | None:
        batch, offset = place
        runs = [self._runs[run_id]] if run_id in self._runs else self._runs.values()  # a file may have any name
        for file in (file for run in runs for file in run.files if (file.kind, file.batch) == (kind, batch)):
            with suppress(OSError, BadLineError):
                group = from_line(GroupRecord, self._line(file, offset))
                if group.group_id == group_id:
                    return group
        return None

    def _line(self, file: DumpFile, offset: int) -> bytes:
        if self._file is None or self._file[0] != file.path:
            self.close()
            self._file = None
            self._file = file.path, self._opened.enter_context(open_lines(file.path))
        lines = self._file[1]
        lines.seek(offset)
        return lines.readline(MAX_LINE).removesuffix(b"\n")
