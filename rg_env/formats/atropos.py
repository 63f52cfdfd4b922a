"""Makes a dump of the lines that Atropos' Reasoning Gym environment saves: `item_id`, and rollouts with a conversation
and a score.

What a line lacks stays null, empty or `unscored`. A line that does not fit is left out and reported, and affects no
other line. Nothing in a line is executed, and a source is never changed.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import jsonlines

from rg_env.dump import (
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
from rg_env.dump.files import parse_name
from rg_env.errors import DumpError
from rg_env.scoring.types import Status

ENVIRONMENT = "atropos"
"""The environment of imported groups: they have none of the numbers that rg_dump's have."""
LACKS = (
    "questions and reference answers, raw and tagged scores, violations, scorer status, lengths in tokens, truncation, "
    "steps, settings and model; groups that were all correct; `score` is the one after the length penalty"
)
MAX_LINE = 1 << 28
"""Longest line that is read, in bytes."""
_KEPT = 1000
"""Messages about lines that are kept."""


@dataclass
class Imported:
    """The result.

    Attributes:
        lines_left_out: number of lines of the source that do not fit.
        left_out: what is wrong with the first of them, a line for each.
    """

    runs: int = 0
    groups: int = 0
    rollouts: int = 0
    unscored: int = 0
    lines_left_out: int = 0
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, path: Path, number: int, why: object) -> None:
        self.lines_left_out += 1
        if len(self.left_out) < _KEPT:
            self.left_out.append(f"{path.name}, line {number}: {why}; left out")


def import_atropos(source: str | Path, out: str | Path) -> Imported:
    """Write a dump of Atropos' files.

    Args:
        source: a file, or a folder of `.jsonl` and `.jsonl.zst` files. Files of one run have its id in their names.
        out: the dump folder, new or empty.

    Raises:
        DumpError: there is no such file, `out` is not empty, or a file cannot be read or written.
    """
    source, out = Path(source), Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DumpError(f"{out} is not empty: choose another folder for --out")
    files = sorted(source.glob("*.jsonl*"), key=_run_of) if source.is_dir() else [source]
    if not files:
        raise DumpError(f"{source} has no .jsonl files")
    result = Imported()
    for run_id, paths in groupby(files, key=_run_of):
        _import_run(run_id, list(paths), out, result)
    return result


def _run_of(path: Path) -> str:
    file = parse_name(path)
    return re.sub(r"[^\w.-]", "-", path.name.partition(".jsonl")[0] if file is None else file.run_id)


def _import_run(run_id: str, paths: Sequence[Path], out: Path, result: Imported) -> None:
    result.runs += 1
    check_folder(out)
    sources = [path.name for path in paths]
    write_manifest(out, run_id, {"attempt": 1, "imported": {"from": "atropos", "files": sources, "lacks": LACKS}})
    with DumpWriter(out, run_id, 1) as writer:
        for path in paths:
            for number, line in _lines(path, result):
                try:
                    group = _group(line, run_id, f"{path.name}:{number}")
                except ValueError as error:
                    result.leave_out(path, number, error)
                    continue
                if not writer.submit([group]).result():
                    raise DumpError(f"{out} cannot be written: is the disk full?")
                result.groups += 1
                result.rollouts += len(group.rollouts)
                result.unscored += sum(rollout.status is Status.UNSCORED for rollout in group.rollouts)


def _lines(path: Path, result: Imported) -> Iterator[tuple[int, object]]:
    """The JSON values in a file, with the numbers of their lines."""
    number = 0

    def not_blank(file: io.BufferedIOBase) -> Iterator[bytes]:
        nonlocal number
        for line in iter(lambda: file.readline(MAX_LINE), b""):
            number += 1
            if not line.isspace():
                yield line

    try:
        with open_lines(path) as file:
            reader = jsonlines.Reader(not_blank(file), loads=json.loads)
            while True:
                try:
                    line = reader.read()
                except EOFError:
                    return
                except (jsonlines.InvalidLineError, RecursionError) as error:
                    result.leave_out(path, number, f"not JSON ({error.__cause__ or error})")
                    continue
                yield number, line
    except OSError as error:
        raise DumpError(f"{path} cannot be read ({error.strerror})") from None


def _group(line: object, run_id: str, uid: str) -> GroupRecord:
    """The record of a line. Raises ValueError: it does not fit."""
    if not isinstance(line, Mapping):
        raise ValueError("not an object")
    task, rollouts = line.get("item_id"), line.get("rollouts")
    if not isinstance(task, (str, int)) or isinstance(task, bool):
        raise ValueError("has no `item_id`")
    if not isinstance(rollouts, list) or not rollouts:
        raise ValueError("has no `rollouts`")
    task = _text(str(task))
    records = [_rollout(rollout, number) for number, rollout in enumerate(rollouts)]
    scores = [record.score for record in records if record.status is Status.OK]
    return GroupRecord(
        item_id=task,
        group_id=group_id(run_id, 1, Phase.TRAIN, 0, uid),
        run_id=run_id,
        phase=Phase.TRAIN,
        uid=uid,
        task=task,
        environment=ENVIRONMENT,
        outcome=outcome_of(scores) if scores else Outcome.MIXED,
        no_signal=has_no_signal(scores),
        rollouts=records,
    )


def _rollout(rollout: object, number: int) -> RolloutRecord:
    if not isinstance(rollout, Mapping) or not isinstance(rollout.get("conversation"), list):
        raise ValueError(f"rollout {number} has no `conversation`")
    score = rollout.get("score")
    if isinstance(score, bool) or not isinstance(score, (int, float, type(None))):
        raise ValueError(f"rollout {number}: `score` is not a number")
    known = score is not None and abs(score) < 1e300 and math.isfinite(score)
    value = float(score) if known and score is not None else math.nan
    return RolloutRecord(
        repetition=number,
        score=value,
        reward=value,
        base_score=value,
        status=Status.OK if known else Status.UNSCORED,
        conversation=list(_messages(rollout["conversation"], number)),
    )


def _messages(conversation: Iterable[object], number: int) -> Iterator[dict[str, str]]:
    for message in conversation:
        if not isinstance(message, Mapping):
            raise ValueError(f"rollout {number}: a message is not an object")
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not isinstance(content, str):
            raise ValueError(f"rollout {number}: a message has no `role` and `content`")
        yield {"role": _text(role), "content": _text(content)}


def _text(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
