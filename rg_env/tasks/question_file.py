"""A file of questions and answers as a task: what the mix says about it, and its rows.

Invariant: a row that cannot be asked or scored is refused with its number before anything starts; no row is left out
in silence. Rows are numbered from 1, in CSV without the header. Not covered: whether an answer is right.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from loguru import logger

from rg_env.choices import Split
from rg_env.errors import ConfigError, describe, did_you_mean, need_number, one_line
from rg_env.modules import import_named
from rg_env.wording import counted

OWN_SCORERS = ("exact", "number", "math", "choice")
_KEPT_READ = 8
"""Files whose rows are kept in memory, for the next data set or command that asks."""


@dataclass(frozen=True)
class QuestionFile:
    """The settings of a file in a task mix.

    Attributes:
        path: JSON Lines, CSV or Parquet.
        eval_path: questions for evaluation; without it, a part of `path`.
        question, answer: names of the columns.
        scorer: `exact`, `number`, `math`, `choice`, or a function of (answer, row) as `module.function` or
            `module:function`.
        tolerance: of `number`, relative to the right answer.
    """

    path: str
    eval_path: str | None = None
    question: str = "question"
    answer: str = "answer"
    scorer: str = "exact"
    tolerance: float = 1e-6

    def of_split(self, split: Split) -> str:
        """Return the file that the rows of a split are in."""
        if self.eval_path and split is Split.EVAL:
            return self.eval_path
        return self.path


class Row(NamedTuple):
    """A row of a file: its number, question and answer, and all of its columns."""

    number: int
    question: str
    answer: str
    columns: Mapping[str, Any]


class Rows(NamedTuple):
    """The rows of a file, and the SHA-256 of its bytes."""

    rows: tuple[Row, ...]
    sha256: str


def parse_file(task: str, value: object) -> QuestionFile:
    """Read the key `file` of a task of the mix.

    Raises:
        ConfigError: a key is missing, unknown or wrong, or there is no such scorer.
    """
    place = f"tasks.{task}.file"
    if isinstance(value, str):
        value = {"path": value}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: must be a path, or a mapping with `path`")
    known = [field.name for field in fields(QuestionFile)]
    for key in value:
        if key not in known:
            raise ConfigError(f"{place}: unknown key {key!r}{did_you_mean(str(key), known, _list_names(known))}")
    if "path" not in value:
        raise ConfigError(f"{place}: needs `path`, a file of JSON Lines, CSV or Parquet")
    options = {key: option for key, option in value.items() if option is not None}
    for key, option in options.items():
        if key == "tolerance":
            need_number(f"{place}.tolerance", option, at_least=0)
        elif not isinstance(option, str) or not option:
            raise ConfigError(f"{place}.{key}={option!r}: must be a text")
    if "scorer" in options:  # module:function means the same, and entries name it in one way
        options["scorer"] = options["scorer"].replace(":", ".")
    file = QuestionFile(**options)
    if file.eval_path == file.path:
        raise ConfigError(f"{place}.eval_path: is the file of `path`; leave it out to set an eighth of the rows apart")
    if "tolerance" in options and file.scorer != "number":
        raise ConfigError(f"{place}.tolerance: only scorer=number has one; scorer is {file.scorer}")
    _check_scorer(place, file.scorer)
    return file


def _list_names(names: list[str]) -> str:
    return f"it takes {', '.join(names)}"


def _check_scorer(place: str, scorer: str) -> None:
    if scorer == "math" and importlib.util.find_spec("math_verify") is None:
        raise ConfigError(f"{place}.scorer=math: needs math-verify (pip install math-verify)")
    if scorer in OWN_SCORERS:
        return
    module, _, name = scorer.rpartition(".")
    if not module:
        choices = [*OWN_SCORERS, "module.function"]
        raise ConfigError(f"{place}.scorer={scorer!r}{did_you_mean(scorer, choices, _list_names(choices))}")
    try:
        # Imported in this process, too, so that a wrong name ends the start and not the first answer.
        import_named([module])
    except ConfigError as error:
        raise ConfigError(f"{place}.scorer={scorer!r}: {error}") from error
    if not callable(getattr(sys.modules[module], name, None)):
        raise ConfigError(f"{place}.scorer={scorer!r}: the module {module} has no function {name!r}")
    # Only after it has been imported and found: entries may name what is in this set.
    _allowed.add(scorer)


_allowed: set[str] = set()
"""The functions that a mix of this process names as scorers, and the modules that its user imported."""


def allow_modules(names: Iterable[str]) -> None:
    """Let entries name functions of these modules as scorers."""
    _allowed.update(names)


def is_allowed(scorer: str) -> bool:
    """Return whether an entry, which may come from anywhere, may have its answers scored by this function."""
    return scorer in OWN_SCORERS or scorer in _allowed or scorer.rpartition(".")[0] in _allowed


# -- reading


def read_rows(task: str, file: QuestionFile, split: Split) -> Rows:
    """Return the rows of the file of a split, whichever split their questions belong to.

    Raises:
        ConfigError: the file cannot be read, or a row is wrong; with the number of the first.
    """
    path = Path(file.of_split(split))
    try:
        stat = path.stat()
    except OSError as error:
        from rg_env.hints import file_beside

        hint = file_beside(path, _READERS)
        raise ConfigError(f"tasks.{task}.file: {path} cannot be read: {error.strerror}{hint}") from None
    if path.is_dir():
        raise ConfigError(f"tasks.{task}.file: {path} is a folder; name a file in it")
    # Size and time of change are arguments only so that the cache does not keep an older content.
    return _read(task, file, path, (stat.st_size, stat.st_mtime_ns))


@functools.lru_cache(_KEPT_READ)
def _read(task: str, file: QuestionFile, path: Path, version: tuple[int, int]) -> Rows:
    place = f"tasks.{task}.file: {path}"
    rows: list[Row] = []
    faults: list[str] = []
    try:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        for number, columns in _reader_of(place, path)(path):
            try:
                rows.append(_check_row(number, columns, file))
            except ValueError as fault:
                # All rows are read before the first fault is raised: the message says how many more there are.
                faults.append(f"row {number}: {one_line(fault)}")
    except UnicodeDecodeError:
        raise ConfigError(f"{place} is not in UTF-8; save it in that encoding") from None
    except (OSError, csv.Error) as error:
        after = ""
        if rows:
            after = f" after row {len(rows)}"
        raise ConfigError(f"{place} cannot be read{after}: {describe(error)}") from None
    if faults:
        more = ""
        if len(faults) > 1:
            more = f" (and {counted(len(faults) - 1, 'more row')})"
        raise ConfigError(f"{place}: {faults[0]}{more}")
    if not rows:
        raise ConfigError(f"{place} has no rows")
    # Not a fault: a question may be repeated on purpose.
    repeated = len(rows) - len({row.question.strip() for row in rows})
    if repeated:
        logger.warning("{}: {} of {} rows repeat the question of an earlier row", place, repeated, len(rows))
    return Rows(tuple(rows), sha256)


def _reader_of(place: str, path: Path) -> Callable[[Path], Iterator[tuple[int, object]]]:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"{place}: must end with .jsonl, .csv or .parquet")
    return reader


def _json_lines(path: Path) -> Iterator[tuple[int, object]]:
    # The encoding drops the byte order mark that some programs write.
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):  # the caller counts it with the other wrong rows
                yield number, None


def _csv_rows(path: Path) -> Iterator[tuple[int, object]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        yield from enumerate(csv.DictReader(lines), 1)


def _parquet_rows(path: Path) -> Iterator[tuple[int, object]]:
    import polars as pl

    try:
        frame = pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise OSError(f"no Parquet file, or a damaged one ({one_line(error, 200)})") from None
    yield from enumerate(frame.iter_rows(named=True), 1)


_READERS: Mapping[str, Callable[[Path], Iterator[tuple[int, object]]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
}
"""What reads a file, by its ending."""


def _check_row(number: int, columns: object, file: QuestionFile) -> Row:
    """Return a row with question and answer. Raises ValueError: why it is none."""
    if not isinstance(columns, Mapping):
        raise ValueError("is not a JSON object")
    if None in columns:  # where csv keeps what is left over
        raise ValueError("has more values than there are columns: put a text that has commas in double quotes")
    # The commonest mistake first: columns that are called otherwise.
    for setting, column in (("question", file.question), ("answer", file.answer)):
        if column not in columns:
            from rg_env.hints import missing_column

            raise ValueError(missing_column(setting, column, columns))
    question, answer = columns[file.question], columns[file.answer]
    for column in (file.question, file.answer):
        if columns[column] is None:
            raise ValueError(f"{column} is empty")
    if not isinstance(question, str):
        raise ValueError(f"{file.question} is not a text but {type(question).__name__}")
    if not isinstance(answer, (str, int, float)) or isinstance(answer, bool):
        raise ValueError(f"{file.answer} is not a text or a number but {type(answer).__name__}")
    answer = str(answer)
    for column, text in ((file.question, question), (file.answer, answer)):
        if not text.strip():
            raise ValueError(f"{column} is empty")
        if not text.isascii():
            text.encode()  # raises for half of a surrogate pair, which no tokenizer takes
    return Row(number, question, answer, columns)
