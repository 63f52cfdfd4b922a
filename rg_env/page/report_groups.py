"""The groups in the report's browser.

Invariant: the selection depends only on the ledger: all groups, or the maximum number, evenly spaced in the order run,
phase, step. The same dump gives the same selection. The texts are read once. If they are too large, only every second
group, then every fourth, … keeps its text; the numbers of all are kept. Memory grows with the selection, not with the
dump.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import msgspec
import polars as pl

from rg_env.analysis.stats import Measured, threshold
from rg_env.base.wording import storable
from rg_env.dump import Dump, FileKind, GroupRecord, Phase
from rg_env.dump.files import raw_lines
from rg_env.dump.frames import GROUP_SCHEMA, ROLLOUT_SCHEMA
from rg_env.dump.run_files import Run
from rg_env.dump.schema import BadLineError, NewerSchemaError, TrainedRecord, from_line

FOLD = 1000
"""Maximum number of characters of a message that the model was shown between its turns."""
MAX_TEXT = 20_000
"""Maximum number of characters of a message; the middle of longer ones is omitted."""
TEXT_BUDGET = 30_000_000
"""Maximum number of characters of all texts; compressed, they take about a third of that in the file."""

Text = str | tuple[str, int, str]
"""A message, or its beginning, the number of characters omitted, and its end."""

Group = dict[str, Any]
"""A group as the page expects it: the ledger's keys, rollouts as a list of objects; with its text also `prompt`,
`expected`, `task_config` and, for each rollout, `text`, `answer`, `detail`."""


def groups_to_show(
    dump: Dump, measured: Measured, most: int, *, solved_at: float | None = None, budget: int = TEXT_BUDGET
) -> tuple[list[Group], int]:
    """Return at most `most` groups in the order run, phase, step, and n: every n-th has its text if it was kept.

    Args:
        measured: what was measured of the dump, with `solved_at` and `to_match`.
        budget: maximum number of characters of all texts.
    """
    # Chosen from the ledger alone, so that the same dump gives the same groups; the texts come last.
    in_training = pl.col("phase") == Phase.TRAIN.value
    every = measured.groups.sort("run_id", ~in_training, "step", maintain_order=True).select("run_id", "group_id")
    chosen = every
    if every.height > most:
        chosen = every[[k * every.height // most for k in range(most)]]
    # Words as texts, not categories.
    groups = ledger_groups(dump, chosen.cast(pl.String), solved_at)
    add_advantages(groups, dump.trained())
    return groups, _add_texts(groups, dump, budget)


def ledger_groups(dump: Dump, chosen: pl.DataFrame, solved_at: float | None = None) -> list[Group]:
    """Return the groups with these `run_id` and `group_id`, in this order, without their texts."""
    rollouts = dump.frame_of(set(chosen["group_id"])).with_columns(solved_at=threshold(dump, solved_at))
    by_group = rollouts.group_by("run_id", "group_id", maintain_order=True)
    ledger = by_group.agg(
        pl.exclude(*ROLLOUT_SCHEMA, "text_file", "text_at").first(), rollouts=pl.struct(list(ROLLOUT_SCHEMA))
    )
    # They have the order of the files; the page wants that of the selection.
    in_order = chosen.select("run_id", "group_id").join(ledger, on=("run_id", "group_id"), maintain_order="left")
    return in_order.to_dicts()


def recorded_group(record: GroupRecord, solved_at: float) -> Group:
    """Return a group with its text."""
    group = {name: getattr(record, name) for name in GROUP_SCHEMA if hasattr(record, name)}
    text = _text_of(record)
    of_repetition = text.pop("rollouts")
    rollouts = []
    for rollout in record.rollouts:
        facts = {name: getattr(rollout, name) for name in ROLLOUT_SCHEMA}
        rollouts.append(facts | of_repetition[rollout.repetition])
    return group | text | {"rollouts": rollouts, "solved_at": solved_at}


def add_advantages(groups: Iterable[Group], trained: Iterable[TrainedRecord]) -> None:
    """Give each rollout the `advantage` with which it was trained, where that was recorded; the last, if it was trained
    several times.

    Args:
        trained: may also be about other groups.
    """
    wanted = {group["group_id"]: group for group in groups}
    for record in trained:
        if group := wanted.get(record.group_id):
            of_repetition = dict(zip(record.repetition, record.advantage, strict=False))
            for rollout in group["rollouts"]:
                if rollout["repetition"] in of_repetition:
                    rollout["advantage"] = of_repetition[rollout["repetition"]]


def trained_on(runs: Iterable[Run], run_id: str, group_id: str) -> Iterator[TrainedRecord]:
    """Return what a run trained on a group. Only lines with its id are decoded, as there is one for every group."""
    mark = msgspec.json.encode(group_id)
    for file in chain.from_iterable(run.files_of(FileKind.TRAINED) for run in runs if run.run_id == run_id):
        for _, _, line in raw_lines(file):
            if isinstance(line, bytes) and mark in line:
                with suppress(BadLineError, NewerSchemaError):
                    yield from_line(TrainedRecord, line)


def _add_texts(groups: list[Group], dump: Dump, budget: int) -> int:
    """Add the texts to every group, or to every n-th if they are too large; returns n."""
    kept: dict[int, Group] = {}
    sizes: dict[int, int] = {}
    size, stride = 0, 1
    for k, group in enumerate(groups):
        if k % stride != 0:
            continue
        record = dump.text(group["run_id"], group["group_id"])
        if record is None:
            continue
        kept[k] = _text_of(record)
        sizes[k] = _size(kept[k])
        size += sizes[k]
        # Too much: every second of those kept loses its text, and as many of those to come are not read.
        while size > budget and len(kept) > 1:
            stride *= 2
            kept = {k: text for k, text in kept.items() if k % stride == 0}
            size = sum(sizes[k] for k in kept)
    # Only now does a group get its text, since any of them may have lost it above.
    for k, text in kept.items():
        of_repetition = text.pop("rollouts")
        groups[k] |= text
        for rollout in groups[k]["rollouts"]:
            rollout |= of_repetition.get(rollout["repetition"], {})
    return stride


def _text_of(record: GroupRecord) -> Group:
    """Return the texts of a group, those of its rollouts by repetition."""
    messages = record.rollouts[0].prompt if record.rollouts else []
    rollouts = {}
    for rollout in record.rollouts:
        rollouts[rollout.repetition] = {
            "text": _shorten(rollout.transcript(FOLD)),
            "answer": _shorten(rollout.answer),
            "detail": _shorten(rollout.detail),
        }
    return {
        "prompt": [{"role": message["role"], "content": _shorten(message["content"])} for message in messages],
        "expected": _shorten(storable(record.expected_answer or "")),
        "task_config": _shorten(record.task_config),
        "rollouts": rollouts,
    }


def _size(value: Any) -> int:
    """Return the number of characters in all texts of a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(_size, value))
    return 0


def _shorten(text: str) -> Text:
    half = MAX_TEXT // 2
    if len(text) <= MAX_TEXT:
        return text
    return (text[:half], len(text) - 2 * half, text[-half:])
