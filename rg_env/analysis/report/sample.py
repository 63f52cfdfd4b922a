"""The groups in the report's browser.

Invariant: the selection depends only on the ledger: all groups, or the maximum number, evenly spaced in the order run,
phase, step. The same dump gives the same sample. If the texts are too large, only every second group, then every
fourth, … keeps its text; the numbers of all are kept. Memory grows with the sample, not with the dump.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from rg_env.dump.read.frames import GROUP_INDEX, ROLLOUT_SCHEMA
from rg_env.dump.schema import Phase

if TYPE_CHECKING:
    from rg_env.dump import Dump, GroupRecord

MAX_TEXT = 20_000
"""Maximum number of characters of a message; the middle of longer ones is omitted."""

TEXT_BUDGET = 30_000_000
"""Maximum number of characters of all texts; compressed, they take about a third of that in the file."""

Text = str | tuple[str, int, str]
"""A message, or its beginning, the number of characters omitted, and its end."""

Group = dict[str, Any]
"""A group as the page expects it: the ledger's keys, rollouts as a list of objects; with its text also `prompt`,
`expected`, `task_config` and, for each rollout, `text`, `answer`, `detail`."""


@dataclass(frozen=True)
class Sample:
    """Groups in the order run, phase, step.

    Attributes:
        numbers: the `GROUP_INDEX` of each.
        total: number of groups in the dump.
        thinned: every `thinned`-th group of the sample may have its text; 1 if all may.
    """

    groups: list[Group]
    numbers: list[int]
    total: int
    thinned: int

    @property
    def with_text(self) -> int:
        return sum("prompt" in group for group in self.groups)

    @property
    def shortened(self) -> int:
        """Number of responses whose middle was omitted."""
        return sum(isinstance(rollout.get("text"), tuple) for group in self.groups for rollout in group["rollouts"])

    def characters(self) -> pl.DataFrame:
        """`GROUP_INDEX`, `place` in the group and `characters` of the responses whose text is in the sample."""
        rows = [
            (number, place, _full_size(rollout["text"]))
            for number, group in zip(self.numbers, self.groups, strict=True)
            for place, rollout in enumerate(group["rollouts"])
            if "text" in rollout
        ]
        schema = {GROUP_INDEX: pl.Int64, "place": pl.Int64, "characters": pl.Int64}
        return pl.DataFrame(rows, schema=schema, orient="row")


def take_sample(dump: Dump, rollouts: pl.DataFrame, most: int, *, budget: int = TEXT_BUDGET) -> Sample:
    """Select at most `most` groups, with their texts if they were kept.

    Args:
        dump: from `open_run`; its ledger and its text files are read once.
        rollouts: those of `sample_of(dump)`.
        budget: maximum number of characters of all texts.
    """
    order = rollouts.select(GROUP_INDEX, "run_id", "phase", "step").unique(GROUP_INDEX, maintain_order=True)
    by = (pl.col("run_id").cast(pl.String), pl.col("phase") != Phase.TRAIN.value, pl.col("phase").cast(pl.String))
    every = order.sort(*by, "step", maintain_order=True)[GROUP_INDEX].to_list()
    chosen = every if len(every) <= most else [every[k * len(every) // most] for k in range(most)]
    found = {group.pop(GROUP_INDEX): group for group in _from_ledger(dump, chosen)}
    rank = {found[number]["group_id"]: place for place, number in enumerate(chosen)}
    texts, stride = _texts(dump.groups(ids=rank), rank, budget)
    groups = [_joined(found[number], texts.get(place)) for place, number in enumerate(chosen)]
    return Sample(groups, chosen, len(every), stride)


def _joined(group: Group, texts: Group | None) -> Group:
    if texts is None:
        return group
    pairs = zip(group["rollouts"], texts["rollouts"], strict=False)  # both in the order of the group
    return group | texts | {"rollouts": [numbers | text for numbers, text in pairs]}


def _from_ledger(dump: Dump, chosen: Sequence[int]) -> Iterator[Group]:
    """The groups with these `GROUP_INDEX`, which is among their keys."""
    of_rollouts = list(ROLLOUT_SCHEMA)
    frame = pl.concat(frame.filter(pl.col(GROUP_INDEX).is_in(chosen)) for frame in dump.frames())
    nested = frame.group_by(GROUP_INDEX, maintain_order=True).agg(
        pl.exclude(of_rollouts).first(), pl.struct(of_rollouts).alias("rollouts")
    )
    return nested.iter_rows(named=True)


def _texts(records: Iterable[GroupRecord], rank: dict[str, int], budget: int) -> tuple[dict[int, Group], int]:
    """The texts by rank of the group, and the stride of ranks that have one."""
    kept: dict[int, Group] = {}
    total, stride = 0, 1
    for record in records:
        number = rank.get(record.group_id)
        if number is None or number % stride:
            continue
        kept[number] = _text_of(record)
        total += _characters(kept[number])
        while total > budget and len(kept) > 1:
            stride *= 2
            kept = {number: texts for number, texts in kept.items() if number % stride == 0}
            total = sum(map(_characters, kept.values()))
    return kept, stride


def _text_of(record: GroupRecord) -> Group:
    conversation = record.rollouts[0].conversation if record.rollouts else []
    return {
        "prompt": [{"role": message["role"], "content": _shorten(message["content"])} for message in conversation[:-1]],
        "expected": _shorten(record.expected_answer or ""),
        "task_config": _shorten(record.task_config),
        "rollouts": [
            {
                "text": _shorten(rollout.response),
                "answer": None if rollout.answer is None else _shorten(rollout.answer),
                "detail": _shorten(rollout.detail),
            }
            for rollout in record.rollouts
        ],
    }


def _characters(texts: Group) -> int:
    messages = [message["content"] for message in texts["prompt"]]
    return sum(map(_size, [*messages, *(rollout["text"] for rollout in texts["rollouts"])]))


def _shorten(text: str) -> Text:
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return text[:half], len(text) - 2 * half, text[-half:]


def _size(text: Text) -> int:
    """Number of characters in the report."""
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[2])


def _full_size(text: Text) -> int:
    """Number of characters before shortening."""
    return _size(text) + (0 if isinstance(text, str) else text[1])
