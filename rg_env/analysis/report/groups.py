"""The groups in the report's browser.

Invariant: the selection depends only on the ledger: all groups, or the maximum number, evenly spaced in the order run,
phase, step. The same dump gives the same selection. If the texts are too large, only every second group, then every
fourth, … keeps its text; the numbers of all are kept. Memory grows with the selection, not with the dump.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from rg_env.analysis.stats import GROUP, Measured
from rg_env.dump import Dump, GroupRecord, Phase
from rg_env.dump.frames import ROLLOUT_SCHEMA

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


@dataclass(frozen=True)
class Shown:
    """Groups in the order run, phase, step.

    Attributes:
        total: number of groups in the dump.
        thinned: every `thinned`-th group may have its text; 1 if all may.
    """

    groups: list[Group]
    total: int
    thinned: int

    @property
    def with_text(self) -> int:
        return sum("prompt" in group for group in self.groups)

    @property
    def shortened(self) -> int:
        """Number of responses whose middle was omitted."""
        return sum(isinstance(rollout.get("text"), tuple) for group in self.groups for rollout in group["rollouts"])


def groups_to_show(dump: Dump, found: Measured, most: int, *, budget: int = TEXT_BUDGET) -> Shown:
    """Select at most `most` groups, with their texts if they were kept.

    Args:
        dump: its ledger is read once, and only the texts of selected groups.
        found: what was measured of it.
        budget: maximum number of characters of all texts.
    """
    by = (pl.col("run_id").cast(pl.String), pl.col("phase") != Phase.TRAIN.value)
    in_order = found.rollouts.select(GROUP, "run_id", "phase", "step").unique(GROUP, keep="first", maintain_order=True)
    every = in_order.sort(*by, "step", maintain_order=True)[GROUP].to_list()
    chosen = every if len(every) <= most else [every[k * len(every) // most] for k in range(most)]
    rank = {number: place for place, number in enumerate(chosen)}
    of_rollouts = list(ROLLOUT_SCHEMA)
    number = pl.col("group_id").hash().alias(GROUP)
    rows = dump.scan().with_columns(number).filter(pl.col(GROUP).is_in(chosen)).collect(engine="streaming")
    ledger = rows.group_by(GROUP, maintain_order=True).agg(
        pl.exclude(of_rollouts).first(), pl.struct(of_rollouts).alias("rollouts")
    )
    groups = {rank[one.pop(GROUP)]: one for one in ledger.iter_rows(named=True)}
    ids = {one["group_id"]: place for place, one in groups.items()}
    texts, stride = _texts(dump, ids, budget)
    joined = [_joined(groups[place], texts.get(place)) for place in sorted(groups)]
    return Shown(joined, len(every), stride)


def _joined(group: Group, texts: Group | None) -> Group:
    if texts is None:
        return group
    of_repetition = {rollout.pop("repetition"): rollout for rollout in texts["rollouts"]}
    rollouts = [numbers | of_repetition.get(numbers["repetition"], {}) for numbers in group["rollouts"]]
    return group | texts | {"rollouts": rollouts}


def _texts(dump: Dump, ids: dict[str, int], budget: int) -> tuple[dict[int, Group], int]:
    """The texts by rank of the group, and the stride of ranks that have one."""
    kept: dict[int, Group] = {}
    total, stride = 0, 1
    for record in dump.groups(ids=ids):
        number = ids[record.group_id]
        if number % stride:
            continue
        kept[number] = _text_of(record)
        total += _characters(kept[number])
        while total > budget and len(kept) > 1:
            stride *= 2
            kept = {number: texts for number, texts in kept.items() if number % stride == 0}
            total = sum(map(_characters, kept.values()))
    return kept, stride


def _text_of(record: GroupRecord) -> Group:
    prompt = record.rollouts[0].prompt if record.rollouts else []
    return {
        "prompt": [{"role": message["role"], "content": _shorten(message["content"])} for message in prompt],
        "expected": _shorten(record.expected_answer or ""),
        "task_config": _shorten(record.task_config),
        "rollouts": [
            {
                "repetition": rollout.repetition,
                "text": _shorten(rollout.transcript(FOLD)),
                "answer": _shorten(rollout.answer),
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
