"""The items of a file of questions.

Invariant: the item of an index is a pure function of (seed, split, task, index), of the files of the mix and of the
rows that are left out. Splits share no question, whichever file and task of the mix has it (`same_question`). An item's
id carries the row's number and a hash of the file and of what is asked of it, so that it names no other question after
either has changed.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from loguru import logger

from rg_env.base.choices import Split
from rg_env.base.errors import ConfigError
from rg_env.base.wording import counted
from rg_env.tasks.entry_json import encode_entry
from rg_env.tasks.item import SCORER_KEY, Item, ItemId, hash64, same_question, split_of_row
from rg_env.tasks.mix import TaskMix
from rg_env.tasks.question_file import OWN_SCORERS, QuestionFile
from rg_env.tasks.question_rows import KEPT_READ, Row, read_rows

_MARK_DIGITS = 8


class QuestionStream:
    """The questions of a file that belong to a split.

    Args:
        task: the name that the mix gives the file.
        seed: of the order of the rows.
        files: those of the mix, by task: what any of them evaluates is not trained on.
        left_out: numbers of rows that are not asked (`rg_env.scoring.audit`).
        prompt_length: (task, question) → length of the prompt in tokens; None: any length is accepted.
        max_prompt_length: in tokens.

    Attributes:
        left_out: how many rows of the split are not asked. If these are all, there are no items: `EvalSet` takes such a
            stream, `item` does not.

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
        files: Mapping[str, QuestionFile] | None = None,
        left_out: Collection[int] = (),
        prompt_length: Callable[[str, str], int] | None = None,
        max_prompt_length: int | None = None,
    ) -> None:
        self.task, self.file, self.seed, self.split = task, file, seed, split
        read = read_rows(task, file, split)
        self._mark = hashlib.sha256(f"{read.sha256} {file.question}".encode()).hexdigest()[:_MARK_DIGITS]
        self.rows = _rows_of_split(task, file, split, files or {})
        of_split = len(self.rows)
        self.rows = [row for row in self.rows if row.number not in left_out]
        self.left_out = of_split - len(self.rows)
        if prompt_length is not None and max_prompt_length is not None:
            self._check_lengths(prompt_length, max_prompt_length)

    def __len__(self) -> int:
        return len(self.rows)

    def item(self, index: int, *, alone: bool) -> Item:
        """Return the item of an index, which is an integer of at least 0.

        Args:
            alone: no other task is in the mix: all rows come before one comes again, each time in another order.
                Otherwise the row is drawn by hash.

        Raises:
            ConfigError: all rows of the split are left out.
        """
        if not self.rows:
            raise ConfigError(
                f"tasks: {self.task}: every row of its {self.split} split is left out; `rg-env tasks RECIPE` says why"
            )
        if alone:
            turn, position = divmod(index, len(self.rows))
            return self.at(self._order(turn)[position])
        return self.at(hash64("question", self.seed, self.split, self.task, index) % len(self.rows))

    def at(self, position: int) -> Item:
        """Return the item of a position in the file's order, counted from 0."""
        row = self.rows[position]
        entry = entry_of(self.task, self.file, row)
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
            raise ConfigError(
                f"{parts}: {path}, or `question` of its task, has changed since this id was given; the mark of its ids "
                f"is now {self._mark}"
            )
        for position, row in enumerate(self.rows):
            if row.number == parts.number:
                return self.at(position)
        raise ConfigError(f"{parts}: {path} has no row {parts.number} in the {self.split} split")

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


def entry_of(task: str, file: QuestionFile, row: Row) -> dict[str, Any]:
    """Return a row as an entry of Reasoning Gym, with what its scorer needs in the metadata."""
    metadata: dict[str, Any] = {"source_dataset": task, "source_index": row.number, SCORER_KEY: row.scorer}
    if row.scorer == "number":
        metadata["tolerance"] = file.tolerance
    if len(row.answers) > 1:
        metadata["answers"] = list(row.answers)
    if row.scorer == "exact" and row.is_number:
        metadata["answer_is_number"] = True  # 27.0 and 27 are the same then
    if row.scorer == "choice":
        metadata["options"] = dict(row.options) or row.columns.get("options", row.columns.get("choices"))
    if row.scorer not in OWN_SCORERS:
        # As JSON has it, also in training: the function gets the same from a dump or the server.
        metadata["row"] = json.loads(json.dumps(row.columns, default=_as_text))
    return {"question": row.question, "answer": row.answer, "metadata": metadata}


def _as_text(value: object) -> str:
    """Return what JSON lacks as text; of bytes, such as those of an image, only how many there are."""
    return counted(len(value), "byte") if isinstance(value, bytes) else str(value)


def _rows_of_split(task: str, file: QuestionFile, split: Split, files: Mapping[str, QuestionFile]) -> Sequence[Row]:
    name_of_file, rows = file.of_split(split), list(read_rows(task, file, split).rows)
    if split is Split.EVAL:
        evaluated = _evaluated(task, file)
        kept = [row for row in rows if same_question(row.question) in evaluated]
        if not kept:
            right = "set `hub.eval_split`" if file.hub else "set `eval_path`"
            too_few = f"has too few rows ({len(rows)}) to set any apart for evaluation: {right}"
            raise ConfigError(f"tasks.{task}.file: {name_of_file} {too_few}")
        return kept
    # Its own comes first: without `eval_path`, it is expected that a part of its rows is held out.
    for name, other in ({task: file} | dict(files)).items():
        evaluated = _evaluated(name, other)
        kept = [row for row in rows if same_question(row.question) not in evaluated]
        if len(kept) < len(rows) and (name != task or file.evaluates_elsewhere):
            _say_shared(task, len(rows) - len(kept), name_of_file, other.of_split(Split.EVAL))
        rows = kept
    if not rows:
        raise ConfigError(
            f"tasks.{task}.file: every question of {name_of_file} is evaluated, so none is left to train on: name "
            "other questions for evaluation (`eval_path`)"
        )
    return rows


@functools.lru_cache(KEPT_READ)
def _evaluated(task: str, file: QuestionFile) -> frozenset[str]:
    """Return the questions that a file evaluates: all of `eval_path`, or a part of `path`."""
    questions = {same_question(row.question) for row in read_rows(task, file, Split.EVAL).rows}
    if not file.evaluates_elsewhere:
        # The same rule as for drawn items takes a part of the rows.
        return frozenset(question for question in questions if split_of_row(question) is Split.EVAL)
    return frozenset(questions)


@functools.cache  # once per process, however many data sets have the same mix
def _say_shared(task: str, count: int, path: str, eval_path: str) -> None:
    line = "task {}: {} rows of {} are evaluated ({}), and are not trained on"
    logger.warning(line, task, count, path, eval_path)


def hashes_of(tasks: Any, before: Mapping[str, Any] | None = None) -> dict[str, dict[str, str]]:
    """Return the SHA-256 of each file of a task mix, by task and split, for the manifest of a run.

    Args:
        tasks: as of `TaskMix.parse`.
        before: what was returned when the run began, if it is continued.

    Raises:
        ConfigError: a file has changed since the run began, so that its questions would be others.
    """
    hashes = {}
    for task, file in TaskMix.parse(tasks).files.items():
        hashes[task] = {split.value: read_rows(task, file, split).sha256 for split in Split}
        # A file that is new in the mix does not change an old one.
        if before and before.get(task) not in (None, hashes[task]):
            raise ConfigError(
                f"tasks.{task}.file: {file.of_split(Split.TRAIN)} or what it evaluates has changed since this run "
                "began: give it its old content, or start anew under another name"
            )
    return hashes
