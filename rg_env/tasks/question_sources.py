"""Reads files of questions as they come: rows of columns, from a file, a saved data set or the Hugging Face hub.

Invariant: rows are numbered from 1, in CSV and TSV without the header, in JSON Lines by the line. In place of a row
that cannot be read stands a ValueError, and the rows after it are read. Not covered: what the columns mean
(`question_rows`).
"""

from __future__ import annotations

import csv
import functools
import gzip
import hashlib
import json
import logging
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

from rg_env.base.errors import ConfigError, UnavailableError, describe, one_line
from rg_env.tasks.question_file import HubSet

Numbered = Iterator[tuple[int, object]]
"""Rows with their numbers; a row is a mapping of columns to values if it is one."""
_LIST_OF_HUB = 200
"""Characters of a reason why there are no rows of the hub."""
_ROWS_AT_ONCE = 1_000


class Source(NamedTuple):
    """Rows, and what they were read from.

    Attributes:
        digest: returns the SHA-256 of that, when the rows have been read.
        is_typed: whether numbers are told from texts.
    """

    rows: Numbered
    digest: Callable[[], str]
    is_typed: bool = True


def open_file(place: str, path: Path) -> Source:
    """Open a file or a folder of `datasets.save_to_disk`.

    Args:
        place: what messages begin with.

    Raises:
        ConfigError: its kind cannot be read. Reading raises OSError, UnicodeDecodeError, csv.Error: it cannot be read.
    """
    if os.path.isdir(path):
        parts = _parts_of_saved(place, path)
        return Source(_arrow_rows(parts), functools.partial(_digest, parts))
    ending = "".join(path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]).lower()
    reader = READERS.get(ending)
    if reader is None:
        from rg_env.base.hints import other_kind

        kinds = "must end with .jsonl, .json, .csv or .tsv (or .gz behind one of these), or .parquet"
        raise ConfigError(f"{place}: {kinds}{other_kind(path)}")
    is_typed = not ending.startswith((".csv", ".tsv"))
    return Source(_as_os_error(reader(path)), functools.partial(_digest, [path]), is_typed)


def load_from_hub(place: str, source: HubSet, split: str) -> Source:
    """Load a split of a data set of the hub, from the cache or the network.

    Raises:
        ConfigError: there is no such data set, configuration or split.
    """
    import datasets

    # Without a network it warns of each of its tries.
    log = logging.getLogger("huggingface_hub")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        rows = datasets.load_dataset(source.name, source.config, split=split)
    # Whatever the hub, the network or a file of the data set does: the rows cannot be had.
    except Exception as error:
        kind = ConfigError if isinstance(error, ValueError) else UnavailableError
        raise kind(f"{place} cannot be loaded from the hub: {one_line(describe(error), _LIST_OF_HUB)}") from None
    finally:
        log.setLevel(level)
    hashed = hashlib.sha256()

    def read() -> Numbered:
        # As Arrow has them: an image that `datasets` decodes is another object, and another text, each time.
        batches = (table.to_pylist() for table in rows.with_format("arrow").iter(_ROWS_AT_ONCE))
        for number, columns in enumerate(chain.from_iterable(batches), 1):
            # The hub's files may be others although the rows are the same.
            hashed.update(json.dumps(columns, default=str).encode())
            yield number, columns

    return Source(read(), hashed.hexdigest)


def _digest(paths: Iterable[Path]) -> str:
    hashed = hashlib.sha256()
    for path in paths:
        hashed.update(path.read_bytes())
    return hashed.hexdigest()


def _as_os_error(rows: Numbered) -> Numbered:
    """Yield the rows; what a corrupt `.gz` raises becomes an OSError."""
    try:
        yield from rows
    except (EOFError, zlib.error) as error:
        raise OSError(f"the compressed file is corrupt ({error})") from None


def _text_of(path: Path, newline: str | None = None) -> IO[str]:
    # The encoding drops the byte order mark that some programs write.
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline=newline)
    return path.open(encoding="utf-8-sig", newline=newline)


def _json_lines(path: Path) -> Numbered:
    with _text_of(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            row: object
            try:
                row = json.loads(line, object_pairs_hook=_object)
            except (ValueError, RecursionError) as error:  # the caller counts it with the other broken rows
                row = ValueError(f"is not valid JSON ({one_line(error, 80)})")
            if number == 1 and (line.strip() == "[" or isinstance(row, list)):
                raise OSError("it is one list in JSON: let its name end with .json")
            yield number, row


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, of which Python alone would keep the last of two equal keys."""
    made = dict(pairs)
    if len(made) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it has the column {name!r} twice")
    return made


def _json_list(path: Path) -> Numbered:
    with _text_of(path) as file:
        try:
            content = json.load(file, object_pairs_hook=_object)
        except UnicodeDecodeError:
            raise
        except (ValueError, RecursionError) as error:
            remedy = "; a file with an object in each line is named .jsonl"
            raise OSError(f"it is not valid JSON ({one_line(error, 80)}){remedy}") from None
    # {"examples": […]}, whatever its list is called.
    if isinstance(content, dict):
        lists = [value for value in content.values() if isinstance(value, list) and value]
        if len(lists) == 1:
            content = lists[0]
    if not isinstance(content, list):
        raise OSError("it must be a list of objects, or an object with one such list")
    yield from enumerate(content, 1)


def _csv_rows(path: Path, delimiter: str = ",") -> Numbered:
    with _text_of(path, newline="") as lines:
        rows = csv.DictReader(lines, delimiter=delimiter, strict=True)
        # Spreadsheets write columns without a name behind the others.
        named = filter(None, rows.fieldnames or ())
        twice = [name for name, count in Counter(named).items() if count > 1]
        if twice:
            raise OSError(f"its header has the column {twice[0]!r} twice: rename one of them")
        yield from enumerate(rows, 1)


def _parquet_rows(path: Path) -> Numbered:
    import polars as pl

    try:
        frame = pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise OSError(f"no Parquet file, or a corrupt one ({one_line(error, 200)})") from None
    yield from enumerate(frame.iter_rows(named=True), 1)


_TEXT_READERS: dict[str, Callable[[Path], Numbered]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_list,
    ".csv": _csv_rows,
    ".tsv": functools.partial(_csv_rows, delimiter="\t"),
}
READERS: dict[str, Callable[[Path], Numbered]] = {
    **_TEXT_READERS,
    ".parquet": _parquet_rows,
    **{f"{ending}.gz": reader for ending, reader in _TEXT_READERS.items()},
}
"""What reads a file, by its ending."""


# -- folders of `datasets.save_to_disk`


def _parts_of_saved(place: str, folder: Path) -> list[Path]:
    """Return the files of a saved data set, in order."""
    splits = _json_in(folder / "dataset_dict.json")
    if splits is not None:
        names = ", ".join(f"{folder.name}/{name}" for name in splits["splits"])
        raise ConfigError(f"{place} has several splits: name one of {names} as `path`, and another as `eval_path`")
    state = _json_in(folder / "state.json")
    if state is None:
        raise ConfigError(f"{place} is a folder; name a file in it")
    return [folder / part["filename"] for part in state["_data_files"]]


def _json_in(path: Path) -> Any:
    """Return the content of a file that `datasets` wrote; None if there is none."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _arrow_rows(parts: Iterable[Path]) -> Numbered:
    import pyarrow as pa

    number = 0
    for part in parts:
        try:
            with pa.memory_map(str(part)) as file, pa.ipc.open_stream(file) as batches:
                for batch in batches:
                    for columns in batch.to_pylist():
                        number += 1
                        yield number, columns
        except pa.ArrowException as error:
            raise OSError(f"{part.name} is corrupt ({one_line(error, 200)})") from None
