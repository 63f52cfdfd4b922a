"""From a dump to a data set in a file: reads once, drops duplicates, evens tasks out, writes.

Invariant: the file appears whole or not at all, with its card right after it, and replaces nothing that it was not
told to. Memory grows with the number of examples (some 200 bytes each), not with their texts: those wait on disk.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import nsmallest
from pathlib import Path

import orjson

from rg_env.analysis.export.card import CARD_NAME, card
from rg_env.analysis.export.kinds import Common, ExportError, Kind, PerTask, Row, Think
from rg_env.analysis.export.left_out import LeftOut, Reason
from rg_env.analysis.export.write import aside, check_target, writer_for
from rg_env.dump import Dump, GroupRecord, Phase

Draw = tuple[int, int]
"""A random number and the place of an example among all."""


@dataclass
class Exported:
    """What came of an export.

    Attributes:
        kind, common: as asked.
        groups, rollouts: read from texts.
        per_task: examples written, by task.
        left_out: what was not written, and why.
        notes: what the record did not let us know, and what to beware of; a sentence each.
    """

    kind: Kind
    common: Common
    groups: int = 0
    rollouts: int = 0
    per_task: Counter[str] = field(default_factory=Counter)
    left_out: LeftOut = field(default_factory=LeftOut)
    notes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.per_task.total()


def export(
    dump: Dump,
    kind: Kind,
    out: Path,
    common: Common | None = None,
    *,
    force: bool = False,
) -> Exported:
    """Write a data set and its card, `README.md` beside it.

    Args:
        dump: from `open_run`.
        kind: `Sft`, `Dpo` or `Grpo`.
        out: ends in `.jsonl` or `.parquet`, which says what is written. Its folder is made if need be.
        common: settings that all kinds have.
        force: replace an earlier export of this name.

    Returns:
        what was written and left out. Where no example was left, `rows` is 0 and there is no file.

    Raises:
        ExportError: `out` cannot be written as asked; nothing was read yet.
        DumpError: as `Dump.groups`.
    """
    common = common or Common()
    check_target(out, force)
    result = Exported(kind, common)
    try:
        with aside(out) as folder:
            _export(dump, result, out, folder)
    except OSError as error:
        raise ExportError(f"{out} cannot be written ({error.strerror})") from None
    return result


def _export(dump: Dump, result: Exported, out: Path, folder: Path) -> None:
    draws: dict[str, list[Draw]] = defaultdict(list)
    with (folder / "examples").open("wb") as lines:
        for place, (row, digest) in enumerate(_examples(dump, result)):
            lines.write(orjson.dumps(row) + b"\n")
            draws[row["task"]].append((_random(result.common.seed, digest), place))
    chosen = _choose(draws, result.common.per_task or result.kind.default_per_task)
    result.per_task.update({task: len(places) for task, places in chosen.items() if places})
    result.left_out[Reason.OVER_SHARE] += sum(map(len, draws.values())) - result.rows
    _count_what_has_no_text(dump, result)
    result.left_out[Reason.UNREADABLE] += len(dump.problems)
    if result.rows:
        _write(folder, {place for places in chosen.values() for place in places}, result.kind, out)
        (folder / CARD_NAME).write_text(card(result, dump, out), encoding="utf-8")
        (folder / "data").replace(out)
        (folder / CARD_NAME).replace(out.parent / CARD_NAME)


def _examples(dump: Dump, result: Exported) -> Iterator[tuple[Row, bytes]]:
    """The examples before any share, with their digests; what is left out is counted on the way."""
    seen: set[bytes] = set()
    remarks = _Remarks(result)
    for group in dump.groups():
        result.groups += 1
        result.rollouts += len(group.rollouts)
        if group.phase == Phase.EVAL and not result.common.include_eval:
            result.left_out[Reason.EVALUATION] += 1
        elif not result.common.takes_task(group.task):
            result.left_out[Reason.OTHER_TASK] += 1
        else:
            remarks.look_at(group)
            for row, identity in result.kind.rows(group, result.common.think, result.left_out):
                digest = blake2b(identity.encode(), digest_size=16).digest()
                if digest in seen:
                    result.left_out[Reason.DUPLICATE] += 1
                else:
                    seen.add(digest)
                    yield row, digest
    remarks.tell()


def _random(seed: int, digest: bytes) -> int:
    """A number that depends on the example and the seed alone, so that another order of files draws the same."""
    return int.from_bytes(blake2b(digest, digest_size=8, salt=(seed % 2**64).to_bytes(8, "big")).digest(), "big")


def _choose(draws: dict[str, list[Draw]], per_task: PerTask | int) -> dict[str, list[int]]:
    """The places of the examples that each task may keep."""
    sizes = sorted(map(len, draws.values())) or [0]
    match per_task:
        case PerTask.ALL:
            share = sizes[-1]
        case PerTask.MEDIAN:
            share = sizes[(len(sizes) - 1) // 2]
        case PerTask.SMALLEST:
            share = sizes[0]
        case int():
            share = per_task
    return {task: [place for _, place in nsmallest(share, drawn)] for task, drawn in draws.items()}


def _write(folder: Path, places: set[int], kind: Kind, out: Path) -> None:
    with writer_for(out, folder / "data", kind.schema()) as write, (folder / "examples").open("rb") as lines:
        for place, line in enumerate(lines):
            if place in places:
                write(line)


def _count_what_has_no_text(dump: Dump, result: Exported) -> None:
    for record in dump.ledger():
        wanted = record.phase != Phase.EVAL or result.common.include_eval
        if record.text is None and wanted and result.common.takes_task(record.task):
            result.left_out[Reason.NO_TEXT] += 1


class _Remarks:
    """Gathers what the groups that are taken do not let us know."""

    def __init__(self, result: Exported) -> None:
        self._result = result
        self._foreign = self._eval = self._asks_to_think = 0

    def look_at(self, group: GroupRecord) -> None:
        self._foreign += group.schema_version == 0
        self._eval += group.phase == Phase.EVAL
        first = group.rollouts[0].conversation[:1] if group.rollouts else []
        self._asks_to_think += any(m["role"] == "system" and "<think>" in m["content"] for m in first)

    def tell(self) -> None:
        notes = self._result.notes
        if self._eval:
            notes.append(
                f"CONTAMINATED: {self._eval} evaluation groups were taken because --include-eval asked for them. "
                "A policy trained on this set cannot be evaluated on those questions any more."
            )
        if self._foreign:
            notes.append(
                f"{self._foreign} groups come from plain Atropos files, which know a score only, after the length "
                "penalty: it stands for base score and reward. Violations, scorer failures, truncation, step and "
                "tokens are unknown there, so nothing was left out for them; whether a group is an evaluation's is "
                "taken from the file's name."
            )
        if self._asks_to_think and self._result.common.think is Think.DROP:
            notes.append(
                "Think blocks were dropped from the responses, but system prompts that ask for one are still there."
            )
