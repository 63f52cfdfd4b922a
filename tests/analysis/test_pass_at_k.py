from __future__ import annotations

from itertools import combinations
from math import comb

import pytest

from rg_env.analysis import pass_at_k
from rg_env.analysis.pass_at_k import tries_up_to

CASES = [(n, c, k) for n in range(1, 8) for c in range(n + 1) for k in range(1, n + 1)]


@pytest.mark.parametrize("n", range(1, 8))
def test_the_formulas_are_the_shares_of_all_draws(n):
    for _, c, k in (case for case in CASES if case[0] == n):
        draws = list(combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
        assert pass_at_k(n, c, k) == pytest.approx(1 - comb(n - c, k) / comb(n, k))


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 5, 1), (4, -1, 1), (4, 1, 0)])
def test_what_was_never_tried_has_no_value(n, c, k):
    with pytest.raises(ValueError, match="needs 1 <= k <= n"):
        pass_at_k(n, c, k)


def test_tries_go_up_to_the_group():
    assert [tries_up_to(n) for n in (0, 1, 2, 3, 8, 9)] == [[], [1], [1, 2], [1, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8, 9]]
