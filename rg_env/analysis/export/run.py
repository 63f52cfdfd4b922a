"""Makes a data set file from a dump: reads the dump once, drops duplicates, balances tasks, writes.

Invariant: the file appears whole or not at all, followed by its card, and replaces an earlier one only with `force`.
Memory grows with the number of examples (about 200 bytes each), not with their texts, which are buffered on disk.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from hashlib import blake2b
from heapq import nsmallest
from pathlib import Path

import jsonlines
import orjson

from rg_env.analysis.export.card import CARD_NAME, card
from rg_env.analysis.export.kinds import Common, Exported, ExportError, Kind, Row
from rg_env.analysis.export.left_out import Reason
from rg_env.analysis.export.write import check_target, draft_folder, write_lines
from rg_env.analysis.select import select
from rg_env.choices import PerTask, Think
from rg_env.dump import Dump, GroupRecord, Phase
from rg_env.dump.run_settings import default_settings, settings_of_attempts

Draw = tuple[int, int]
"""A random number, and the position of an example among all."""


def export(
    dump: Dump,
    kind: Kind,
    out: Path,
    common: Common | None = None,
    *,
    force: bool = False,
) -> Exported:
    """Write a data set and its card, `README.md`, in the same folder.

    Args:
        dump: from `open_run`.
        kind: `Sft`, `Dpo` or `Grpo`.
        out: ends in `.jsonl` or `.parquet`, which sets the format. Its folder is created if needed.
        common: settings that all kinds share.
        force: replace an earlier export of this name.

    Returns:
        what was written and left out. If no example remains, `rows` is 0 and no file is written.

    Raises:
        ExportError: `out` cannot be written; nothing has been read.
        ConditionError: a condition of `common` is invalid, or nothing matches.
        DumpError: as `Dump.groups`.
    """
    common = common or Common()
    check_target(out, force)
    result = Exported(kind, common)
    try:
        with draft_folder(out) as folder:
            _export(select(dump, common.where), result, out, folder)
    except OSError as error:
        raise ExportError(f"{out} cannot be written ({error.strerror})") from None
    return result


def _export(dump: Dump, result: Exported, out: Path, folder: Path) -> None:
    draws: dict[str, list[Draw]] = defaultdict(list)
    with (folder / "examples").open("wb") as file, jsonlines.Writer(file, dumps=orjson.dumps) as lines:
        for place, (row, digest) in enumerate(_examples(dump, result)):
            lines.write(row)
            draws[row["task"]].append((_random(result.common.seed, digest), place))
    chosen = _choose(draws, result.common.per_task or result.kind.default_per_task)
    result.per_task.update({task: len(places) for task, places in chosen.items() if places})
    result.left_out[Reason.OVER_SHARE] += sum(map(len, draws.values())) - result.rows
    _count_without_text(dump, result)
    result.left_out[Reason.UNREADABLE] += len(dump.problems)
    if result.rows:
        kept = {place for places in chosen.values() for place in places}
        with (folder / "examples").open("rb") as examples:
            chosen_lines = (line for place, line in enumerate(examples) if place in kept)
            write_lines(chosen_lines, folder / "data", out.suffix, result.kind.schema)
        (folder / CARD_NAME).write_text(card(result, dump, out), encoding="utf-8")
        (folder / "data").replace(out)
        (folder / CARD_NAME).replace(out.parent / CARD_NAME)


def _examples(dump: Dump, result: Exported) -> Iterator[tuple[Row, bytes]]:
    """The examples of all tasks with their digests; counts what is left out."""
    seen: set[bytes] = set()
    seen_in_groups: Counter[str] = Counter()
    attempts, defaults = settings_of_attempts(dump.runs), default_settings()
    for group in dump.groups():
        result.groups += 1
        result.rollouts += len(group.rollouts)
        if group.phase == Phase.EVAL and not result.common.include_eval:
            result.left_out[Reason.EVALUATION] += 1
        elif not result.common.takes_task(group.task):
            result.left_out[Reason.OTHER_TASK] += 1
        else:
            seen_in_groups += _facts(group)
            config = attempts.get((group.run_id, group.attempt), defaults).config
            for row, identity in result.kind.rows(group, config, result.common.think, result.left_out):
                digest = blake2b(identity.encode(), digest_size=16).digest()
                if digest in seen:
                    result.left_out[Reason.DUPLICATE] += 1
                else:
                    seen.add(digest)
                    yield row, digest
    result.notes += _notes(seen_in_groups, result.common.think)


def _random(seed: int, digest: bytes) -> int:
    """A number that depends only on the example and the seed, not on the order of files."""
    return int.from_bytes(blake2b(digest, digest_size=8, salt=(seed % 2**64).to_bytes(8, "big")).digest(), "big")


def _choose(draws: dict[str, list[Draw]], per_task: PerTask | int) -> dict[str, list[int]]:
    """The positions of the examples that each task keeps."""
    sizes = sorted(map(len, draws.values())) or [0]
    if isinstance(per_task, PerTask):
        middle = (len(sizes) - 1) // 2
        share = {PerTask.ALL: sizes[-1], PerTask.MEDIAN: sizes[middle], PerTask.SMALLEST: sizes[0]}[per_task]
    else:
        share = per_task
    return {task: [place for _, place in nsmallest(share, drawn)] for task, drawn in draws.items()}


def _count_without_text(dump: Dump, result: Exported) -> None:
    for record in dump.ledger():
        wanted = record.phase != Phase.EVAL or result.common.include_eval
        if record.text is None and wanted and result.common.takes_task(record.task):
            result.left_out[Reason.NO_TEXT] += 1


def _facts(group: GroupRecord) -> Counter[str]:
    """The facts about a group that `_notes` reports."""
    first = group.rollouts[0].conversation[:1] if group.rollouts else []
    return Counter(
        atropos=group.schema_version == 0,
        evaluation=group.phase == Phase.EVAL,
        asks_to_think=any(message["role"] == "system" and "<think>" in message["content"] for message in first),
    )


def _notes(groups: Counter[str], think: Think) -> Iterator[str]:
    """What the exported groups do not record, and warnings about them."""
    if groups["evaluation"]:
        yield (
            f"CONTAMINATED: {groups['evaluation']} evaluation groups are included (--include-eval). "
            "A policy trained on this set can no longer be evaluated on those questions."
        )
    if groups["atropos"]:
        yield (
            f"{groups['atropos']} groups come from plain Atropos files, which hold only a score, after the length "
            "penalty: it is used as base score and reward. Violations, scorer failures, truncation, step and tokens "
            "are unknown, so nothing was left out because of them; the file name decides whether a group is an "
            "evaluation group."
        )
    if groups["asks_to_think"] and think is Think.DROP:
        yield "Think blocks were dropped from the responses, but some system prompts still ask for one."
