"""The items of a file of questions.

Invariant: the item of an index is a pure function of (seed, split, task, index) and of the file's bytes. Splits share
no question. An item's id carries the row's number and a hash of the file, so that it names no other question after the
file has changed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from loguru import logger

from rg_env.choices import Split
from rg_env.errors import ConfigError
from rg_env.tasks.entry_json import encode_entry
from rg_env.tasks.item import SCORER_KEY, Item, ItemId
from rg_env.tasks.items import hash64, split_of
from rg_env.tasks.mix import TaskMix
from rg_env.tasks.question_file import OWN_SCORERS, QuestionFile, Row, Rows, read_rows
from rg_env.wording import counted

_MARK_DIGITS = 8


class QuestionStream:
    """The questions of a file that belong to a split.

    Args:
        task: the name that the mix gives the file.
        seed: of the order of the rows.
        prompt_length: (task, question) → length of the prompt in tokens; None: any length is accepted.
        max_prompt_length: in tokens.

    Raises:
        ConfigError: a row is wrong or its prompt is too long, or there is no row for this split.
    """

    def __init__(
        self,
        task: str,
        file: QuestionFile,
        seed: int,
        split: Split,
        *,
        prompt_length: Callable[[str, str], int] | None = None,
        max_prompt_length: int | None = None,
    ) -> None:
        self.task, self.file, self.seed, self.split = task, file, seed, split
        read = read_rows(task, file, split)
        self._mark = read.sha256[:_MARK_DIGITS]
        self.rows = _rows_of_split(task, file, split, read)
        if prompt_length is not None and max_prompt_length is not None:
            self._check_lengths(prompt_length, max_prompt_length)

    def __len__(self) -> int:
        return len(self.rows)

    def item(self, index: int, *, alone: bool) -> Item:
        """Return the item of an index, which is an integer of at least 0.

        Args:
            alone: no other task is in the mix: all rows come before one comes again, each time in another order.
                Otherwise the row is drawn by hash.
        """
        if alone:
            turn, position = divmod(index, len(self.rows))
            return self.at(self._order(turn)[position])
        return self.at(hash64("question", self.seed, self.split, self.task, index) % len(self.rows))

    def at(self, position: int) -> Item:
        """Return the item of a position in the file's order, counted from 0."""
        row = self.rows[position]
        entry = {"question": row.question, "answer": self._answer(row), "metadata": self._metadata(row)}
        split = self.split.value
        item_id = ItemId(self.task, split, seed=0, number=row.number, options=self._mark)
        return Item(
            id=str(item_id),
            task=self.task,
            split=split,
            index=row.number,
            seed=0,  # as in the id: a question of a file is the same for every seed
            entry=entry,
            entry_json=encode_entry(entry),
            config=None,
            config_json=encode_entry({}),
        )

    def of_id(self, parts: ItemId) -> Item:
        """Return the item that an id names.

        Raises:
            ConfigError: the file has no such row, or has changed.
        """
        path = self.file.of_split(self.split)
        # The row of this number may be another question now.
        if parts.options != self._mark:
            raise ConfigError(f"{parts}: {path} has changed since this id was given; its hash is now {self._mark}")
        for position, row in enumerate(self.rows):
            if row.number == parts.number:
                return self.at(position)
        raise ConfigError(f"{parts}: {path} has no row {parts.number} in the {self.split} split")

    def _answer(self, row: Row) -> str:
        """Return the right answer; of a choice by its place, from 0, its letter."""
        value = row.columns.get(self.file.answer)
        if self.file.scorer == "choice" and isinstance(value, int) and 0 <= value < len(ascii_uppercase):
            return ascii_uppercase[value]
        return row.answer

    def _metadata(self, row: Row) -> dict[str, Any]:
        metadata = {"source_dataset": self.task, "source_index": row.number, SCORER_KEY: self.file.scorer}
        if self.file.scorer == "exact" and isinstance(row.columns.get(self.file.answer), (int, float)):
            metadata["answer_is_number"] = True  # 27.0 and 27 are the same then
        if self.file.scorer == "choice":
            metadata["options"] = row.columns.get("options", row.columns.get("choices"))
        if self.file.scorer == "number":
            metadata["tolerance"] = self.file.tolerance
        if self.file.scorer not in OWN_SCORERS:
            # As JSON has it, also in training: the function gets the same from a dump or the server.
            metadata["row"] = json.loads(json.dumps(row.columns, default=str))
        return metadata

    @functools.lru_cache(maxsize=2)  # noqa: B019  (two lists, for as long as the stream lives)
    def _order(self, turn: int) -> Sequence[int]:
        """Return the places of all rows in the order of a pass."""
        # Two are kept: rows of a pass may be asked for after the next one has begun.
        key = functools.partial(hash64, "pass", self.seed, self.split, self.task, turn)
        return sorted(range(len(self.rows)), key=key)

    def _check_lengths(self, prompt_length: Callable[[str, str], int], limit: int) -> None:
        too_long = [row for row in self.rows if prompt_length(self.task, row.question) > limit]
        if too_long:
            tokens = prompt_length(self.task, too_long[0].question)
            more = ""
            if len(too_long) > 1:
                more = f" (and {counted(len(too_long) - 1, 'more row')})"
            raise ConfigError(
                f"tasks.{self.task}.file: {self.file.of_split(self.split)}: row {too_long[0].number}: its prompt has "
                f"{tokens} tokens, more than trainer.max_prompt_length={limit}{more}"
            )


def _rows_of_split(task: str, file: QuestionFile, split: Split, read: Rows) -> Sequence[Row]:
    if file.eval_path is None:
        # Without a file for evaluation, the same rule as for drawn items takes a part of the rows.
        rows = [row for row in read.rows if split_of(task, row.question) is split]
        if not rows and split is Split.EVAL:
            raise ConfigError(
                f"tasks.{task}.file: none of the {len(read.rows)} rows of {file.path} falls into the part for "
                "evaluation; name a file for it as `eval_path`"
            )
        if not rows:
            raise ConfigError(f"tasks.{task}.file: all rows of {file.path} fall into the part for evaluation")
        return rows
    if split is Split.EVAL:
        return read.rows
    # By their questions: the same answer may be written in two ways.
    evaluated = {row.question.strip() for row in read_rows(task, file, Split.EVAL).rows}
    rows = [row for row in read.rows if row.question.strip() not in evaluated]
    if len(rows) < len(read.rows):
        _say_shared(task, len(read.rows) - len(rows), file.path, file.eval_path)
    if not rows:
        raise ConfigError(f"tasks.{task}.file: every question of {file.path} is also in {file.eval_path}")
    return rows


@functools.cache  # once per process, however many data sets have the same mix
def _say_shared(task: str, count: int, path: str, eval_path: str) -> None:
    logger.warning("task {}: {} rows of {} are also in {}, and are not trained on", task, count, path, eval_path)


def hashes_of(tasks: Any, manifest: Mapping[str, Any] | None = None) -> dict[str, dict[str, str]]:
    """Return the SHA-256 of each file of a task mix, by task and split, for the manifest of a run.

    Args:
        tasks: as of `TaskMix.parse`.
        manifest: that of the run, if it is continued.

    Raises:
        ConfigError: a file has changed since the run began, so that its questions would be others.
    """
    before = (manifest or {}).get("question_files")
    hashes = {}
    for task, file in TaskMix.parse(tasks).files.items():
        hashes[task] = {split.value: read_rows(task, file, split).sha256 for split in Split}
        # A file that is new in the mix is no change of an old one.
        if isinstance(before, Mapping) and before.get(task) not in (None, hashes[task]):
            raise ConfigError(
                f"tasks.{task}.file: {file.path} or its eval_path has changed since this run began: give it its old "
                "content, or start anew under another name"
            )
    return hashes
