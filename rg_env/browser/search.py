"""Searching the text of a row's group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rg_env.browser.index import group_in, read_line
from rg_env.browser.query import Query
from rg_env.dump import GroupRecord
from rg_env.dump.files import DumpFile


def group_that_fits(query: Query, files: Sequence[DumpFile], row: Mapping[str, Any]) -> GroupRecord | None:
    """The group of a row; None if it does not contain the query's text.

    Raises:
        ChangedError, DumpError: as `read_row`.
    """
    line = read_line(files, row)
    if not query.may_fit_line(line):
        return None
    group = group_in(line, files, row)
    return group if query.fits_text(group) else None
