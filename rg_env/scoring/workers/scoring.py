"""What a worker does for Reasoning Gym's tasks: score both forms of an answer."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import reasoning_gym

from rg_env.scoring.types import Form
from rg_env.scoring.workers.worker import number_of, reason_for
from rg_env.tasks.soundness import check_audited


def make_scorer(task: str, options: dict[str, Any]) -> Callable[[bytes], list[Form] | str]:
    """What scores answers to this task: pickled (pickled entry, raw, tagged) → both forms. Raises if there is none.

    If the scorer raises on an answer and on the item's own as well, the item is at fault, and the reply is the reason.
    Otherwise the answer is. The scorers of seven tasks read the options of their dataset; none reads its items, so the
    size is 1.
    """
    check_audited()
    dataset = reasoning_gym.create_dataset(task, **{**options, "size": 1, "seed": 0})

    def score(arguments: bytes) -> list[Form] | str:
        entry, raw, tagged = pickle.loads(arguments)
        try:
            own = pickle.loads(entry).get("answer")
        except Exception as error:  # the entry has something that this process cannot make
            return reason_for(error)
        forms = [score_form(dataset, pickle.loads(entry), text) for text in (raw, tagged)]
        if any(isinstance(form, str) for form in forms):
            own_form = score_form(dataset, pickle.loads(entry), own if isinstance(own, str) else "")
            if isinstance(own_form, str):
                return f"it raises on the item's own answer, too: {own_form}"
        return forms

    return score


def score_form(dataset: Any, entry: dict[str, Any], text: str) -> Form:
    """Score one form of an answer; the scorer may change the entry. Returns for every exception, even SystemExit."""
    try:
        return as_score(dataset.score_answer(text, entry))
    except BaseException as error:
        return reason_for(error)


def as_score(value: Any) -> Form:
    """A scorer's result as a float in [0, 1], or why it is none. Numbers beyond the range are clamped.

    >>> as_score(1.0000000000000002), as_score(True), as_score(float("nan"))
    (1.0, 1.0, 'the scorer returned nan, which is not a score')
    """
    number = number_of(value)
    return f"the scorer returned {value!r:.60}, which is not a score" if number is None else min(1.0, max(0.0, number))
