"""The probability that one of k responses to a prompt is correct (pass@k): an unbiased estimate.

Invariant: k never exceeds the number of recorded responses; a smaller group has no value.
"""

from __future__ import annotations

from math import comb


def pass_at_k(n: int, c: int, k: int) -> float:
    """The probability that k of the n tries, drawn without replacement, include a success: 1 − C(n−c, k)/C(n, k).

    From Chen et al., Evaluating Large Language Models Trained on Code, 2021.

    Args:
        n: tries, at least k; c: successes among them, 0 to n; k: at least 1.

    Raises:
        ValueError: a number outside its range.

    >>> pass_at_k(8, 2, 1), pass_at_k(8, 2, 8), pass_at_k(4, 1, 2)
    (0.25, 1.0, 0.5)
    """
    _check(n, c, k)
    return 1 - comb(n - c, k) / comb(n, k)


def tries_up_to(n: int) -> list[int]:
    """1, 2, 4, … and n itself.

    >>> tries_up_to(8), tries_up_to(6)
    ([1, 2, 4, 8], [1, 2, 4, 6])
    """
    powers = [2**e for e in range(n.bit_length()) if 2**e < n]
    return [*powers, n] if n > 0 else []


def _check(n: int, c: int, k: int) -> None:
    if not (1 <= k <= n and 0 <= c <= n):
        raise ValueError(f"pass@{k} of {n} tries with {c} successes: needs 1 <= k <= n and 0 <= c <= n")
