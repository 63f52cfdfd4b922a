"""Makes a dump of the records of another program: reads all of them, groups them, and writes the groups.

What a source lacks stays null, empty or `unscored`, and is said; a reward is never guessed. A record that does not fit
is left out and named, and affects no other; a source without any that fits is refused before anything is written.
Nothing in a source is executed, and it is never changed. Not covered: a source that is larger than memory, which holds
every rollout, because those of a group may lie anywhere.
"""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import jsonlines
import msgspec
import orjson
from loguru import logger

from rg_env.dump import (
    DumpWriter,
    GroupRecord,
    check_folder,
    group_id,
    has_no_signal,
    open_lines,
    outcome_of,
    write_manifest,
)
from rg_env.dump.files import MAX_LINE, READ_ERRORS, open_regular, why_unreadable
from rg_env.errors import DumpError
from rg_env.scoring.types import Status
from rg_env.wording import counted

KEPT = 1000
"""Messages about records that are kept."""
_LACKS = {
    "step": "step",
    "entry": "reference answer",
    "raw_score": "raw and tagged scores",
    "policy_version": "policy version",
    "stop_reason": "stop reason",
    "response_tokens": "length in tokens",
}
_SAME_IN_A_GROUP = ("run_id", "attempt", "phase", "call", "step", "task", "item", "uid", "group_id")
Runs = dict[str, dict[bytes, list[GroupRecord]]]
"""By run id, and by what the rollouts of a group have in common: records of one rollout each, in the source's order."""


@dataclass(frozen=True, slots=True)
class Format:
    """Records of another program.

    Attributes:
        program: its name.
        files: patterns of the names of its files in a folder.
        rows: the rollouts of one record, each a group of its own (`one_rollout`), given the record, its file and its
            place there. A ValueError says why the record does not fit, a KeyError what it lacks.
    """

    program: str
    files: tuple[str, ...]
    rows: Callable[[dict[str, Any], Path, int], Iterable[GroupRecord]]


@dataclass
class Imported:
    """The result.

    Attributes:
        unscored: rollouts whose reward is unknown.
        by_prompt: groups that were formed by equal prompts.
        lacks: what no rollout has, by the name of the field.
        records_left_out: number of records of the source that do not fit.
        left_out: what is wrong with the first of them, a line for each.
    """

    groups: int = 0
    rollouts: int = 0
    unscored: int = 0
    by_prompt: int = 0
    lacks: dict[str, str] = field(default_factory=lambda: dict(_LACKS))
    records_left_out: int = 0
    left_out: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """What was read and what the source lacks, in one line."""
        words = [f"{counted(self.rollouts, 'rollout')} in {counted(self.groups, 'group')}"]
        if self.lacks:
            words.append(", ".join(f"no {name}" for name in self.lacks.values()))
        if self.unscored:
            words.append(f"reward of {self.unscored:,} unknown: status unscored")
        if self.by_prompt:
            words.append(f"{counted(self.by_prompt, 'group')} formed by equal prompts")
        return "; ".join(words)


def import_records(name: str, format: Format, source: str | Path, out: str | Path) -> Imported:
    """Write a dump of another program's records.

    Args:
        name: of the format, for the manifest.
        source: a file, or a folder with files of the format, at any depth.
        out: the dump folder, new or empty. It is empty again if this raises.

    Raises:
        DumpError: there is no such file, no record fits, `out` is not empty, or a file cannot be read or written.
    """
    source, out, result = Path(source), Path(out), Imported()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DumpError(f"{out} is not empty: choose another folder for --out")
    runs = _Reader(source, format).read(result)
    if not result.rollouts:
        why = ""
        if result.left_out:
            why = f" ({result.left_out[0].removesuffix('; left out')})"
        raise DumpError(f"{source} has no rollout of {format.program}{why}")
    imported = {"from": name, "source": source.name, "lacks": list(result.lacks.values())}
    _write_runs(runs, out, imported, result)
    return result


def _write_runs(runs: Runs, out: Path, imported: dict[str, Any], result: Imported) -> None:
    """Write the groups and a manifest of each run, or nothing."""
    check_folder(out)
    logger.disable("rg_env.dump.writer")  # which file has how many groups is no news here
    try:
        for run_id, of_run in sorted(runs.items()):
            write_manifest(out, run_id, {"attempt": 1, "kind": "import", "imported": imported})
            with DumpWriter(out, run_id, 1) as writer:
                for call, rows in enumerate(of_run.values()):
                    # Waited for one by one: unlike training, an import ends with the first error of the disk.
                    if not writer.submit([_joined(rows, run_id, call, result)]).result():
                        raise DumpError(f"{out} cannot be written: is the disk full?")
    # An interrupt, too: half an import would look like a whole one.
    except BaseException:
        for path in out.iterdir():
            path.unlink()
        raise
    finally:
        logger.enable("rg_env.dump.writer")


def _joined(rows: Sequence[GroupRecord], run_id: str, call: int, result: Imported) -> GroupRecord:
    """Join these rollouts, one in each row, into a group, and count it in the result."""
    first = rows[0]
    result.groups += 1
    if first.group_id:  # it was ours
        return msgspec.structs.replace(first, rollouts=[row.rollouts[0] for row in rows])
    # Without an id of the source's, the group is the rollouts with this prompt.
    if not first.uid:
        result.by_prompt += 1
    rollouts = [msgspec.structs.replace(row.rollouts[0], repetition=number) for number, row in enumerate(rows)]
    scores = [rollout.score for rollout in rollouts if rollout.status is Status.OK]
    digest = blake2b(msgspec.json.encode(rollouts[0].prompt), digest_size=8).hexdigest()
    prompt = f"prompt-{digest}"
    uid = first.uid or prompt
    return msgspec.structs.replace(
        first,
        group_id=group_id(run_id, 1, first.phase, call, uid),
        run_id=run_id,
        uid=uid,
        item=first.item or prompt,
        call=call,
        outcome=outcome_of(scores),
        no_signal=has_no_signal(scores),
        rollouts=rollouts,
    )


class _Reader:
    """Reads the rollouts of a source."""

    def __init__(self, source: Path, format: Format) -> None:
        self._format, self._source, self._paths = format, source, [source]
        # The name of the source, as far as it can stand in file names; for records that do not name their run.
        self._run_id = re.sub(r"[^\w.-]", "-", source.resolve().name.partition(".json")[0])[:100] or "imported"
        if source.is_dir():
            self._paths = sorted({path for pattern in format.files for path in source.rglob(pattern)})
        if not self._paths:
            raise DumpError(f"{source} has no file of {format.program} ({', '.join(format.files)})")

    def read(self, result: Imported) -> Runs:
        """Return the rollouts of all files. Records that do not fit are noted."""
        runs: Runs = defaultdict(lambda: defaultdict(list))
        for path in self._paths:
            place = 0
            for number, content in enumerate(_contents(path), 1):
                try:
                    rows = [] if content.isspace() else self._rows(path, place, content)
                except ValueError as error:
                    rows = []
                    result.records_left_out += 1
                    if len(result.left_out) < KEPT:
                        name = path.name if path == self._source else path.relative_to(self._source)
                        result.left_out.append(f"{name}, line {number}: {error}; left out")
                for row in rows:
                    (rollout,) = row.rollouts
                    result.rollouts += 1
                    if rollout.status is Status.UNSCORED:
                        result.unscored += 1
                    for key in list(result.lacks):
                        # One rollout that has it is enough; the key may be one of the group or of the rollout.
                        if getattr(row, key, getattr(rollout, key, None)) not in (None, "", "{}"):
                            del result.lacks[key]
                    same = [getattr(row, key) for key in _SAME_IN_A_GROUP]
                    # Without an id of the source's, rollouts with equal prompts are a group.
                    if not (row.uid or row.group_id):
                        same.append(rollout.prompt)
                    digest = blake2b(msgspec.json.encode(same), digest_size=16).digest()
                    runs[row.run_id or self._run_id][digest].append(row)
                # Bytes from the start of the file, which name a group of Atropos: its lines have no id.
                place += len(content)
        return runs

    def _rows(self, path: Path, place: int, content: bytes) -> list[GroupRecord]:
        try:
            record = jsonlines.Reader([content], loads=_loads).read(allow_none=True)
            if not isinstance(record, dict):
                raise ValueError("not an object")
            return list(self._format.rows(record, path, place))
        except KeyError as error:
            raise ValueError(f"has no `{error.args[0]}`") from None
        except (jsonlines.Error, RecursionError) as error:
            raise ValueError(f"not JSON ({error.__cause__ or error})") from None


def _contents(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, of a `.json` file all of it."""
    try:
        with _table(path) if path.suffix == ".parquet" else open_lines(path) as file:
            read = file.read if path.suffix == ".json" else file.readline
            while content := read(MAX_LINE):
                yield content
    except READ_ERRORS as error:
        raise DumpError(f"{path} cannot be read ({why_unreadable(error)})") from None


def _table(path: Path) -> io.BytesIO:
    """Return the rows of a parquet file as lines of JSON, without what is null in columns that do not hold numbers."""
    import polars as pl

    try:
        with open_regular(path) as file:
            table = pl.read_parquet(file)
    except pl.exceptions.PolarsError as error:
        raise DumpError(f"{path} is not a whole parquet file ({str(error).partition(chr(10))[0]})") from None
    # There a null is a reward that is not known, and the column must stay for `trl_rows` to count it.
    numbers = {name for name, kind in table.schema.items() if kind.is_float()}
    lines = io.BytesIO()
    for row in table.iter_rows(named=True):
        known = {name: value for name, value in row.items() if value is not None or name in numbers}
        lines.write(f"{json.dumps(known, default=str)}\n".encode())
    lines.seek(0)
    return lines


def _loads(text: str) -> Any:
    """Return the JSON value, also with the NaN that Python writes; `?` for lone surrogates, which UTF-8 cannot hold."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace"))
