"""Answers that are rejected before they reach a scorer. Runs in the trainer's process; answers are never evaluated.

Invariant: `check` returns for every text, in linear time. An answer that passes to a scorer that evaluates code can
only build a list or compute an expression of bounded size. `calls_code` is False only if evaluating it calls nothing
that the text names, so that the process may score other answers (docs/security.md lists which do). NUL characters and
lone surrogates are rejected for every task, because they break files and pipes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rg_env.scoring.guard import eval_tasks as evaluating
from rg_env.scoring.guard import loopholes as closing
from rg_env.scoring.guard import one_answer, plans

EVALUATING_TASKS = frozenset(evaluating.RULES)
"""Tasks whose scorer in reasoning-gym 0.1.25 runs the answer as code."""

CALLING_TASKS = evaluating.CALLING
"""Those of them whose answers may contain names and calls, not only literals or arithmetic with numbers."""

calls_code = evaluating.calls_code

GUARDED_TASKS = EVALUATING_TASKS | frozenset(closing.RULES) | frozenset(plans.RULES) | frozenset(one_answer.RULES)
"""Tasks with a specific check."""

_RULES = {**evaluating.RULES, **closing.RULES, **plans.RULES, **one_answer.RULES}
_SURROGATE = re.compile("[\ud800-\udfff]")


def check(entry: Mapping[str, Any], answer: str) -> str | None:
    """The reason why the answer is rejected, as a sentence to display; None if it may be scored.

    Args:
        entry: the item as made by reasoning-gym; `metadata.source_dataset` names the task. If an entry of a guarded
            task lacks a field that the check reads, all answers to it are rejected.
    """
    if "\0" in answer:
        return "the answer contains a NUL character"
    if not answer.isascii() and _SURROGATE.search(answer):
        return "the answer contains a lone surrogate, which is not a character"
    task = entry["metadata"]["source_dataset"]
    rule = _RULES.get(task)
    if rule is None:
        return None
    try:
        return rule(entry, answer)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return f"the entry is not a valid {task} item: {type(error).__name__}: {error}"


def longest(entry: Mapping[str, Any], limit: int) -> int:
    """Maximum answer length in characters: `limit`, or twice the length of the stored answer if that is more."""
    return max(limit, 2 * len(str(entry.get("answer") or "")))
