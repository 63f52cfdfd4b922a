"""What a scorer may see. Runs in the trainer's process; neither answers nor entries are ever evaluated.

Invariant: `admit` returns or raises `Refusal` or `BrokenEntry` for every entry that names its task and every text, in
linear time. What a scorer would evaluate (the answer in `EVALUATING_TASKS`, texts of the entry in `evaluated.ENTRIES`)
was made from what was read; the item's own answer is sent back unread only where the scorer compares it first. NUL
characters and lone surrogates are refused for every task, because they break files and pipes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rg_env.errors import describe
from rg_env.scoring.guard import evaluated, loopholes
from rg_env.scoring.guard.expressions import Refusal
from rg_env.tasks.soundness import AUDITED_TASKS

EVALUATING_TASKS = frozenset(evaluated.REWRITES)
"""Tasks whose scorer in reasoning-gym 0.1.25 runs a text as code."""

GUARDED_TASKS = EVALUATING_TASKS | frozenset(loopholes.RULES)
"""Tasks with a specific check."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_WITHOUT_ANSWER = frozenset({"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"})
"""Tasks whose items hold no answer, because there are many."""

_LONGEST_OWN_ANSWER = 1_000_000
"""Characters. The longest that reasoning-gym makes has 0.3 million (codeio)."""


class BrokenEntry(Exception):  # noqa: N818 (not an error of the program)
    """The item cannot be scored, whatever the answer: the reason, as one line to display."""


def admit(entry: Mapping[str, Any], answer: str) -> tuple[dict[str, Any], str, str]:
    """What the scorer gets for an answer: the entry, the bare answer, and the answer as `<answer>…</answer>`.

    Args:
        entry: the item as made by reasoning-gym, or damaged, or made by somebody hostile;
            `metadata.source_dataset` names the task.

    Raises:
        Refusal: the answer is rejected; the message is a sentence to display.
        BrokenEntry: the entry is not an item of its task.
    """
    if "\0" in answer:
        raise Refusal("the answer contains a NUL character")
    if not answer.isascii() and _SURROGATE.search(answer):
        raise Refusal("the answer contains a lone surrogate, which is not a character")
    task = entry["metadata"]["source_dataset"]
    try:
        own = entry.get("answer")
        if task in AUDITED_TASKS and not isinstance(own, str) and (own is not None or task not in _WITHOUT_ANSWER):
            raise BrokenEntry(f"the entry is not a valid {task} item: it has no answer")
        if isinstance(own, str) and len(own) > _LONGEST_OWN_ANSWER:
            raise BrokenEntry(f"the entry's own answer has more than {_LONGEST_OWN_ANSWER} characters")
        if task in evaluated.ENTRIES:
            entry = _with_safe_texts(entry, task)
        entry = dict(entry)
    except BrokenEntry:
        raise
    except Exception as error:  # an entry can hold anything
        raise BrokenEntry(f"the entry is not a valid {task} item: {describe(error):.200}") from None
    try:
        return entry, *_texts(task, entry, answer)
    except Refusal:
        raise
    except Exception as error:
        try:
            _texts(task, entry, own or "")
        except Refusal:
            pass
        except Exception:
            raise BrokenEntry(f"the entry is not a valid {task} item: {describe(error):.200}") from None
        raise Refusal(f"the answer cannot be read: {describe(error):.200}") from None


def _texts(task: str, entry: Mapping[str, Any], answer: str) -> tuple[str, str]:
    """The bare and the tagged form for the scorer. Raises Refusal, or anything if the entry is damaged."""
    if rewrite := evaluated.REWRITES.get(task):
        return rewrite(entry, answer), evaluated.UNREADABLE
    if (rule := loopholes.RULES.get(task)) and (reason := rule(entry, answer)):
        raise Refusal(reason)
    return answer, f"<answer>{answer}</answer>"


def _with_safe_texts(entry: Mapping[str, Any], task: str) -> Mapping[str, Any]:
    try:
        return evaluated.ENTRIES[task](entry)
    except Refusal as refusal:
        raise BrokenEntry(f"the entry is not a valid {task} item: {refusal}") from None


def longest(entry: Mapping[str, Any], limit: int) -> int:
    """Maximum answer length in characters: `limit`, or twice the length of the stored answer if that is more."""
    own = entry.get("answer")
    return max(limit, 2 * len(own)) if isinstance(own, str) else limit
