"""The items that are attacked: of Reasoning Gym's tasks, of a user's, or of a file of questions.

Invariant: the same items in every run, but for how many beyond the fewest: that depends on how long they take.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from rg_env.base.errors import ConfigError
from rg_env.tasks import Split, TaskSpec, hash64
from rg_env.tasks.levels import base_options
from rg_env.tasks.question_file import QuestionFile
from rg_env.tasks.questions import QuestionStream
from rg_env.tasks.upstream import UnusableItemError
from rg_env.tasks.upstream.patched_dataset import UpstreamDataset

_DRAWING = 3.0
"""CPU seconds in which more items than the fewest are made."""

Entry = Mapping[str, Any]


def draw_entries(task: TaskSpec, fewest: int, most: int) -> list[Entry]:
    """Draw entries of a task. A file may have fewer than the fewest.

    Raises:
        ValueError: the task makes too few. Also whatever the generator of a user's task raises.
    """
    if task.file is not None:
        return list(itertools.islice(_draws_of_file(task.name, task.file), max(fewest, most)))
    # Bounded: a task that refuses every draw must not be asked for ever.
    draws = _draws(task.name, options_of(task), 10 * max(fewest, most))
    # The fewest whatever they take; more of them only as long as that is cheap.
    entries = list(itertools.islice(draws, fewest))
    if len(entries) < fewest:
        raise ValueError("it makes too few items")
    # CPU time, so that a busy machine does not draw fewer.
    end = time.process_time() + _DRAWING
    for entry in draws:
        if len(entries) >= most or time.process_time() > end:
            break
        entries.append(entry)
    return entries


def options_of(task: TaskSpec) -> dict[str, Any]:
    """Return the options of a task's items, as in training without a complexity."""
    return dict(task.options or base_options(task.name))


def _draws(task: str, options: Mapping[str, Any], tries: int) -> Iterator[Entry]:
    dataset = UpstreamDataset(task, options)
    for draw in range(tries):
        with suppress(UnusableItemError):
            yield dataset.make(hash64("attack", task, draw) % 2**32)


def _draws_of_file(task: str, file: QuestionFile) -> Iterator[Entry]:
    """Yield the questions for training, then those for evaluation, in an order of neither file."""
    for split in Split:
        try:
            stream = QuestionStream(task, file, 0, split)
        except ConfigError:  # there may be none of this split, but a file has a row
            continue
        for index in range(len(stream)):
            yield stream.item(index, alone=True).entry
