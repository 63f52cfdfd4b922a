"""Reasoning Gym's scorers, as the runner's children call them (`make_scorer`)."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rg_env.runner.child_process import number_of
from rg_env.runner.failures import LONGEST_REASON, describe, one_line
from rg_env.scoring import guard
from rg_env.scoring.base_score import base_score, cheap_answers
from rg_env.scoring.expressions import Refusal
from rg_env.scoring.types import AnswerScore, is_out_of_range
from rg_env.tasks.entry_json import as_made
from rg_env.tasks.soundness import AUDITED_TASKS, check_audited, installed_version
from rg_env.tasks.upstream.oracles import corrected, with_men

# Read before the server forks: a worker in its sandbox may not be able to read the files of packages, and Python 3.13
# imports what reads them as late as this.
installed_version()

FormScore = float | str
"""The score in [0, 1] of one form of an answer (bare, or in tags), or one line saying how the scorer raised."""


def make_scorer(task: str, options: dict[str, Any]) -> Callable[[bytes], FormScore | list[FormScore]]:
    """Make what scores answers to items of a task, and reads these items. Raises if there is no such scorer.

    A request is a pickle of (an entry as a pickle or as JSON, the answer); the reply is one of:

    - the scores of both forms
    - a list of one reason: the guard refuses the answer
    - a reason: the item cannot be scored. Its entry is broken, or the scorer raises on the answer and on the item's own
      as well; otherwise the answer is at fault.

    A request with None for the answer asks for the best score of the item's cheap policies.

    The scorers of seven tasks read the options of their dataset; none reads its items, so the size is 1.
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

    def score(request: bytes) -> FormScore | list[FormScore]:
        try:
            content, answer = pickle.loads(request)
            entry = corrected(with_men(read_entry(content, task), options))
            if answer is None:
                return best_cheap_score(dataset, task, entry)
            return score_forms(dataset, entry, answer, clamp)
        except Refusal as refusal:
            return [one_line(refusal, LONGEST_REASON)]
        except guard.BrokenEntry as broken:
            return one_line(broken, LONGEST_REASON)
        except Exception as error:  # the entry cannot be read or corrected, or has what this process cannot make
            return f"the entry cannot be used: {describe(error)}"[:LONGEST_REASON]

    return score


def read_entry(content: bytes, task: str) -> Mapping[str, Any]:
    """Return an entry as it was made. JSON may name no task, or another one than the caller."""
    if content.startswith(b"{"):
        entry = json.loads(content)
        if not isinstance(entry.get("metadata"), dict):
            entry["metadata"] = {}
        entry["metadata"]["source_dataset"] = task
        return as_made(entry)
    return as_made(pickle.loads(content), content)


def best_cheap_score(dataset: Any, task: str, entry: Mapping[str, Any]) -> float:
    """Return the best base score of an item's cheap policies, with the same rule of both forms as for answers."""
    best = 0.0
    for answer in cheap_answers(task, entry):
        with suppress(Refusal):
            scored = AnswerScore.of_forms(*score_forms(dataset, entry, answer, clamp=True))
            # Without a baseline, which this is.
            best = max(best, base_score(task, scored.raw or 0.0, scored.tagged or 0.0, 0.0))
    return best


def score_forms(dataset: Any, entry: Mapping[str, Any], answer: str, clamp: bool) -> list[FormScore]:
    """Score both forms of an answer. `clamp`: as for `score_form`. Raises Refusal or BrokenEntry."""
    admitted = pickle.dumps(guard.admit(entry, answer))
    # A scorer may change the entry, so each form gets a new one.
    forms = []
    for form in (1, 2):
        parts = pickle.loads(admitted)
        forms.append(score_form(dataset, parts[0], parts[form], clamp))
    if any(isinstance(form, str) for form in forms):
        fresh, _, _ = pickle.loads(admitted)
        own = fresh.get("answer")
        own_form = score_form(dataset, fresh, own if isinstance(own, str) else "", clamp)
        if isinstance(own_form, str):
            raise guard.BrokenEntry(f"it raises on the item's own answer, too: {own_form}")
    return forms


def score_form(dataset: Any, entry: dict[str, Any], text: str, clamp: bool = True) -> FormScore:
    """Score one form of an answer. Returns for every exception, even SystemExit.

    Args:
        clamp: numbers beyond [0, 1] are clamped, as Reasoning Gym's own scorers need it; otherwise they are not scores.
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
