"""Wilson's interval of a share.

Invariant: uses arithmetic only, so that it takes numbers as well as the column expressions of `rg_env.analysis`.
"""

from __future__ import annotations

from typing import Any


def wilson(share: Any, effective: Any, quantile: Any) -> tuple[Any, Any]:
    """The lower and the upper bound (E. B. Wilson, Journal of the American Statistical Association 22, 1927).

    Args:
        share: in [0, 1].
        effective: number of independent values that the share was computed from, above 0.
        quantile: of the normal distribution or of Student's t, at least 0.

    >>> low, high = wilson(0.3, 100, 1.96)
    >>> round(low, 4), round(high, 4)
    (0.2189, 0.3958)
    """
    center = (share + quantile**2 / (2 * effective)) / (1 + quantile**2 / effective)
    spread = share * (1 - share) / effective + quantile**2 / (4 * effective**2)
    half = quantile / (1 + quantile**2 / effective) * spread**0.5
    return center - half, center + half
