"""Makes a dump of the records of another program, in two passes: the first finds the groups, the second writes them.

What a source lacks stays null, empty or `unscored`, and is said; a reward is never guessed. A record that does not fit
is left out and named, and affects no other; a source without any that fits is refused before anything is written.
Nothing in a source is executed, and it is never changed. Memory holds some 70 bytes per rollout, 200 per group, and one
group. Not covered: a compressed file with scattered groups, which is read from its beginning for each of them.
"""

from __future__ import annotations

import io
import json
import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any

import jsonlines
import msgspec
import orjson

from rg_env.dump import (
    DumpPolicy,
    DumpWriter,
    GroupRecord,
    Outcome,
    Phase,
    RolloutRecord,
    check_folder,
    group_id,
    has_no_signal,
    open_lines,
    outcome_of,
    write_manifest,
)
from rg_env.dump.files import open_regular
from rg_env.errors import DumpError
from rg_env.output import counted
from rg_env.scoring.types import Status

ENVIRONMENT = "imported"
"""The environment of imported groups: they have none of the numbers that rg_dump's have."""
MAX_LINE = 1 << 28
"""Longest line or document that is read, in bytes."""
KEPT = 1000
"""Messages about records that are kept."""
_GROUP_NAMES = {"step": "step", "entry": "reference answer"}
_ROLLOUT_NAMES = {
    "raw_score": "raw and tagged scores",
    "policy_version": "policy version",
    "stop_reason": "stop reason",
    "response_tokens": "length in tokens",
}
_IN_A_DIGEST = ("run_id", "attempt", "phase", "call", "step", "task", "item")


@dataclass(frozen=True, slots=True)
class Row:
    """A rollout of another program.

    Attributes:
        group: values of its `GroupRecord`; all of them if it was exported by us.
        key: the source's own id of the group; "": rollouts with equal prompts are a group.
    """

    rollout: RolloutRecord
    group: Mapping[str, Any]
    key: str = ""

    @property
    def digest(self) -> bytes:
        """Equal for the rollouts of one group."""
        same = [self.key or self.rollout.prompt, *map(self.group.get, _IN_A_DIGEST)]
        return blake2b(msgspec.json.encode(same), digest_size=12).digest()


@dataclass(frozen=True, slots=True)
class Format:
    """Records of another program.

    Attributes:
        program: its name.
        files: patterns of the names of its files in a folder.
        rows: the rollouts of one record, given its file and its place there; a ValueError says why it does not fit.
        phase: what rollouts were generated for where the record does not say it.
    """

    program: str
    files: tuple[str, ...]
    rows: Callable[[Any, Path, int], Iterable[Row]]
    phase: Phase


@dataclass
class Imported:
    """The result.

    Attributes:
        unscored: rollouts whose reward is unknown.
        by_prompt: groups that were formed by equal prompts.
        lacks: what no rollout has.
        records_left_out: number of records of the source that do not fit.
        left_out: what is wrong with the first of them, a line for each.
    """

    groups: int = 0
    rollouts: int = 0
    unscored: int = 0
    by_prompt: int = 0
    lacks: list[str] = field(default_factory=list)
    records_left_out: int = 0
    left_out: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """What was read and what the source lacks, in one line."""
        words = [f"{counted(self.rollouts, 'rollout')} in {counted(self.groups, 'group')}"]
        if self.lacks:
            words.append(", ".join(f"no {name}" for name in self.lacks))
        if self.unscored:
            words.append(f"reward of {self.unscored:,} unknown: status unscored")
        if self.by_prompt:
            words.append(f"{counted(self.by_prompt, 'group')} formed by equal prompts")
        return "; ".join(words)


def import_records(name: str, form: Format, source: str | Path, out: str | Path) -> Imported:
    """Write a dump of another program's records.

    Args:
        name: of the format, for the manifest.
        source: a file, or a folder with files of the format, at any depth.
        out: the dump folder, new or empty.

    Raises:
        DumpError: there is no such file, no record fits, `out` is not empty, or a file cannot be read or written.
    """
    source, out = Path(source), Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DumpError(f"{out} is not empty: choose another folder for --out")
    paths = [source]
    if source.is_dir():
        paths = sorted({path for pattern in form.files for path in source.rglob(pattern)})
    if not paths:
        raise DumpError(f"{source} has no file of {form.program} ({', '.join(form.files)})")
    source_run = re.sub(r"[^\w.-]", "-", source.resolve().name.partition(".json")[0])[:100] or name
    reader, result = _SourceReader(paths, form), Imported()
    columns = [array("L") for _ in range(4)]  # of each rollout: group, file, place in the file, number in the record
    groups: dict[bytes, int] = {}
    run_of: list[str] = []
    lacking = _GROUP_NAMES | _ROLLOUT_NAMES
    for file, place, rows in reader.read_all(result):
        for number, row in enumerate(rows):
            group = groups.setdefault(row.digest, len(groups))
            if group == len(run_of):
                run_of.append(row.group.get("run_id") or source_run)
            for column, entry in zip(columns, (group, file, place, number), strict=True):
                column.append(entry)
            for key in list(lacking):
                value = row.group.get(key) if key in _GROUP_NAMES else getattr(row.rollout, key)
                if value not in (None, "", "{}"):
                    del lacking[key]
    if not groups:
        why = f" ({result.left_out[0].removesuffix('; left out')})" if result.left_out else ""
        raise DumpError(f"{source} has no rollout of {form.program}{why}")
    result.lacks = list(lacking.values())
    check_folder(out)
    group_of, *places = columns
    order = sorted(range(len(group_of)), key=lambda k: (run_of[group_of[k]], group_of[k]))
    for run_id, of_run in groupby(order, key=lambda k: run_of[group_of[k]]):
        imported = {"from": name, "source": source.name, "lacks": result.lacks}
        write_manifest(out, run_id, {"attempt": 1, "imported": imported})
        policy = DumpPolicy(dump_other_rollouts=True, dump_eval_rollouts=True)
        with DumpWriter(out, run_id, 1, policy=policy) as writer:
            for number, of_group in groupby(of_run, key=group_of.__getitem__):
                rows = [reader.read(*(column[k] for column in places)) for k in of_group]
                record = group_of_rows(rows, run_id, number, form.phase)
                if not writer.submit([record]).result():
                    raise DumpError(f"{out} cannot be written: is the disk full?")
                result.groups += 1
                result.rollouts += len(rows)
                result.unscored += sum(row.rollout.status is Status.UNSCORED for row in rows)
                result.by_prompt += not rows[0].key
    return result


def group_of_rows(rows: Sequence[Row], run_id: str, number: int, phase: Phase) -> GroupRecord:
    if "outcome" in rows[0].group:  # it was ours
        return GroupRecord(**rows[0].group, rollouts=[row.rollout for row in rows])
    facts = {name: value for name, value in rows[0].group.items() if value != ""}
    rollouts = [msgspec.structs.replace(row.rollout, repetition=k) for k, row in enumerate(rows)]
    scores = [rollout.score for rollout in rollouts if rollout.status is Status.OK]
    prompt = f"prompt-{blake2b(msgspec.json.encode(rollouts[0].prompt), digest_size=8).hexdigest()}"
    uid = rows[0].key or prompt
    facts = {"phase": phase, "task": ENVIRONMENT, "item": prompt, **facts, "run_id": run_id}
    return GroupRecord(
        **facts,
        item_id=facts["task"],
        group_id=group_id(run_id, 1, facts["phase"], number, uid),
        call=number,
        uid=uid,
        environment=ENVIRONMENT,
        outcome=outcome_of(scores) if scores else Outcome.MIXED,
        no_signal=has_no_signal(scores),
        rollouts=rollouts,
    )


class _SourceReader:
    """Reads records of files in any order. One file is open at a time, and the rollouts of one record are kept."""

    def __init__(self, paths: Sequence[Path], form: Format) -> None:
        self._paths, self._form = paths, form
        self._file = -1
        self._opened: io.BufferedIOBase | list[dict[str, Any]] = []
        self._last: tuple[int, int, list[Row]] = (-1, -1, [])

    def read_all(self, result: Imported) -> Iterator[tuple[int, int, list[Row]]]:
        """File, place and rollouts of each record that fits; what is wrong with the others is noted."""
        for file, path in enumerate(self._paths):
            number, place = 0, 0
            while content := self._content(file, place):
                number += 1
                try:
                    if not (isinstance(content, bytes) and content.isspace()):
                        yield file, place, self._rows(file, place, content)
                except (ValueError, RecursionError) as error:
                    result.records_left_out += 1
                    if len(result.left_out) < KEPT:
                        is_json = not isinstance(error, (jsonlines.Error, RecursionError))
                        why = error if is_json else f"not JSON ({error.__cause__ or error})"
                        result.left_out.append(f"{path.name}, line {number}: {why}; left out")
                place += len(content) if isinstance(content, bytes) else 1

    def read(self, file: int, place: int, number: int) -> Row:
        """A rollout that `read_all` has found."""
        if self._last[:2] != (file, place):
            self._last = (file, place, self._rows(file, place, self._content(file, place)))
        return self._last[2][number]

    def _rows(self, file: int, place: int, content: bytes | dict[str, Any] | None) -> list[Row]:
        value = _loads(content) if isinstance(content, bytes) else content
        if not isinstance(value, Mapping):
            raise ValueError("not an object")
        return list(self._form.rows(value, self._paths[file], place))

    def _content(self, file: int, place: int) -> bytes | dict[str, Any] | None:
        """The line at an offset, of a `.json` file the rest of it, of a parquet file the row of this number."""
        path = self._paths[file]
        try:
            if self._file != file:
                self._file, self._opened = file, _rows_of(path) if path.suffix == ".parquet" else open_lines(path)
            if isinstance(self._opened, list):
                return self._opened[place] if place < len(self._opened) else None
            if self._opened.tell() != place:
                self._opened.seek(place)
            return self._opened.read(MAX_LINE) if path.suffix == ".json" else self._opened.readline(MAX_LINE)
        except OSError as error:
            raise DumpError(f"{path} cannot be read ({error.strerror})") from None


def _rows_of(path: Path) -> list[dict[str, Any]]:
    import polars as pl

    try:
        with open_regular(path) as file:
            return pl.read_parquet(file).rows(named=True)
    except pl.exceptions.PolarsError as error:
        raise DumpError(f"{path} is not a whole parquet file ({str(error).partition(chr(10))[0]})") from None


def _loads(line: bytes) -> Any:
    """The JSON value, also with the NaN that Python writes; `?` for lone surrogates, which UTF-8 cannot hold."""

    def loads(text: str | bytes) -> Any:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return json.loads(json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace"))

    return jsonlines.Reader([line], loads=loads).read(allow_none=True)


# -- for the formats


def as_number(value: object, name: str) -> float:
    """The number, NaN for null and for what is beyond all numbers; a ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
        raise ValueError(f"`{name}` is not a number")
    known = value is not None and abs(value) < 1e300 and math.isfinite(value)
    return float(value) if known and value is not None else math.nan


def as_count(value: object) -> int | None:
    """The number of something; None if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def as_text(value: object) -> str:
    """A string or number as text; "" for anything else."""
    return str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""


def as_object(value: object) -> Mapping[str, Any]:
    """The value if it is an object of JSON; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def answer_entry(answer: object) -> str:
    """The entry of a question of which only the reference answer is known; "{}" if it is not."""
    return "{}" if answer in (None, "") else json.dumps({"answer": answer}, ensure_ascii=False, default=str)


def as_messages(messages: object) -> list[dict[str, str]]:
    """The messages as text: reasoning as a think block, each call of a tool as a line. Raises ValueError."""
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        raise ValueError("has no messages")
    result = []
    for message in messages:
        role, content, calls = message.get("role"), as_content(message.get("content")), message.get("tool_calls")
        if not isinstance(role, str) or (content is None and not calls):
            raise ValueError("a message has no `role` and `content`")
        reasoning = as_text(message.get("reasoning_content"))
        lines = [f"<think>{reasoning}</think>"] if reasoning else []
        lines += [content] if content else []
        for call in calls if isinstance(calls, list) else ():
            function = as_object(as_object(call).get("function")) or as_object(call)
            called, arguments = function.get("name") or function.get("function_name"), function.get("arguments")
            shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
            lines.append(f"[tool_call {called}({shown})]")
        result.append({"role": role, "content": "\n".join(lines)})
    return result


def as_content(content: object) -> str | None:
    """The text of a message: a string, or parts, of which those without text are named; None if it is neither."""
    if isinstance(content, list) and all(isinstance(element, Mapping) for element in content):
        return "\n".join(as_text(element.get("text")) or f"[{element.get('type')}]" for element in content)
    return content if isinstance(content, str) else None


def scored_rollout(conversation: list[dict[str, str]], reward: float, **facts: Any) -> RolloutRecord:
    """The rollout with the source's reward as its score; NaN: unknown."""
    status = Status.UNSCORED if math.isnan(reward) else Status.OK
    return RolloutRecord(
        repetition=0, score=reward, reward=reward, base_score=reward, status=status, conversation=conversation, **facts
    )
