"""What is refused before a scorer sees it. Runs in the trainer's process; answers are read, never evaluated.

Invariant: `check` returns for every text, in time linear in its length; what a scorer that evaluates gets to see can do
nothing but build a list or compute a number of bounded size. Refused for every task: NUL and lone surrogates, which no
tokenizer's vocabulary writes on purpose and which break files and pipes further on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rg_env.scoring.guard import eval_tasks as evaluating
from rg_env.scoring.guard import loopholes as closing
from rg_env.scoring.guard import plans

EVALUATING_TASKS = frozenset(evaluating.RULES)
"""Tasks whose scorer in reasoning-gym 0.1.25 runs the answer as code."""

GUARDED_TASKS = EVALUATING_TASKS | frozenset(closing.RULES) | frozenset(plans.RULES)
"""Tasks with a check of their own."""

_RULES = {**evaluating.RULES, **closing.RULES, **plans.RULES}
_SURROGATE = re.compile("[\ud800-\udfff]")


def check(entry: Mapping[str, Any], answer: str) -> str | None:
    """Why the answer may not reach the scorer of this entry's task, in words for people; None if it may.

    Args:
        entry: the item as reasoning-gym made it; `metadata.source_dataset` names the task. An entry of a guarded task
            that lacks what its check reads has all answers refused.
    """
    if "\0" in answer:
        return "the answer contains a NUL character"
    if not answer.isascii() and _SURROGATE.search(answer):
        return "the answer contains half of a surrogate pair, which is no character"
    task = entry["metadata"]["source_dataset"]
    rule = _RULES.get(task)
    if rule is None:
        return None
    try:
        return rule(entry, answer)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return f"the entry is no item of {task} as reasoning-gym makes it: {type(error).__name__}: {error}"


def longest(entry: Mapping[str, Any], limit: int) -> int:
    """Characters that an answer to this entry may have: `limit`, or twice the item's own answer where that is more."""
    return max(limit, 2 * len(str(entry.get("answer") or "")))
