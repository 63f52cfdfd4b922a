"""Reasoning Gym's scorers, as the runner's children call them (`make_scorer`)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from rg_env.runner.child_process import number_of
from rg_env.runner.failures import LONGEST_REASON, describe
from rg_env.scoring.types import is_out_of_range
from rg_env.tasks.soundness import AUDITED_TASKS, check_audited, installed_version

# Read before the server forks: a worker in its sandbox may not be able to read the files of packages, and Python 3.13
# imports what reads them as late as this.
installed_version()

FormScore = float | str
"""The score in [0, 1] of one form of an answer (bare, or in tags), or one line saying how the scorer raised."""


def make_scorer(task: str, options: dict[str, Any]) -> Callable[[bytes], list[FormScore] | str]:
    """Make the scorer of a task: pickled (entry, raw, tagged) → the scores of both forms. Raises if there is none.

    If the scorer raises on an answer and on the item's own as well, the item is at fault, and the reply is the reason.
    Otherwise the answer is. The scorers of seven tasks read the options of their dataset; none reads its items, so the
    size is 1.
    """
    from rg_env.tasks.upstream.slim_import import reasoning_gym

    # Here, since the caller may never have imported reasoning-gym.
    check_audited()
    if task not in reasoning_gym.factory.DATASETS:
        raise ValueError(
            "no module registers it: import one that does before the first answer (not as the main script), or name "
            "it in `imports` (--imports)"
        )
    dataset = reasoning_gym.create_dataset(task, **{**options, "size": 1, "seed": 0})
    clamp = task in AUDITED_TASKS

    def score(request: bytes) -> list[FormScore] | str:
        try:
            entry, raw, tagged = pickle.loads(request)
        except Exception as error:  # the entry has something that this process cannot make
            return describe(error, LONGEST_REASON)
        # Taken before the scorer gets the entry, which it may change.
        own = entry.get("answer")
        # A scorer may change the entry, so each form gets a new one.
        entry_of_tagged, _, _ = pickle.loads(request)
        forms = [score_form(dataset, entry, raw, clamp), score_form(dataset, entry_of_tagged, tagged, clamp)]
        if any(isinstance(form, str) for form in forms):
            entry_of_own, _, _ = pickle.loads(request)
            own_form = score_form(dataset, entry_of_own, own if isinstance(own, str) else "", clamp)
            if isinstance(own_form, str):
                return f"it raises on the item's own answer, too: {own_form}"
        return forms

    return score


def score_form(dataset: Any, entry: dict[str, Any], text: str, clamp: bool = True) -> FormScore:
    """Score one form of an answer. Returns for every exception, even SystemExit.

    Args:
        clamp: numbers beyond [0, 1] are clamped, as Reasoning Gym's own scorers need it; otherwise they are no score.
    """
    try:
        value = dataset.score_answer(text, entry)
        number = number_of(value)
        if number is None or (is_out_of_range(number) and not clamp):
            return f"the scorer returned {value!r:.60}, which is not a number from 0 to 1"
        return min(1.0, max(0.0, number))
    # A scorer that calls `exit` must not end the worker.
    except BaseException as error:
        return describe(error, LONGEST_REASON)
