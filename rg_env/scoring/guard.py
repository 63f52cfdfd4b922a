"""What is refused before a scorer sees it. Runs in the trainer's process; answers are read, never evaluated.

Refused for every task: NUL and lone surrogates, which no tokenizer's vocabulary writes on purpose and which break files
and pipes further on.

**Limit.** The scorers of `EVALUATING_TASKS` run the answer as Python. Nothing here keeps code out of them yet. What
holds is isolation (`rg_env.scoring.worker`): such an answer runs in a process of its own that ends with it, without the
trainer's environment variables, within limits of time and memory, so that it can neither hang, crash or poison what
comes after it. What does not hold: within that process it may read files, use the network, and give *itself* a score.
"""

from __future__ import annotations

import re

EVALUATING_TASKS = frozenset(
    {
        # eval()
        "binary_matrix",
        "n_queens",
        "spiral_matrix",
        "string_insertion",
        # sympy's parse_expr(), which is eval() behind a tokenizer
        "countdown",
        "intermediate_integration",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
    }
)
"""Tasks whose scorer in reasoning-gym 0.1.25 runs the answer as code."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def check(task: str, answer: str) -> str | None:
    """Why the answer may not reach the scorer of this task, in words for people; None if it may.

    `task` makes no difference yet: rules per task come with the full guard.
    """
    if "\0" in answer:
        return "the answer contains a NUL character"
    if not answer.isascii() and _SURROGATE.search(answer):
        return "the answer contains half of a surrogate pair, which is no character"
    return None
