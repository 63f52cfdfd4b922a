from __future__ import annotations

import random
from itertools import combinations

import polars as pl
import pytest

from rg_env.analysis.estimates import moments, pass_at_k, t_quantile, tries_up_to, with_intervals


def test_pass_at_k_is_the_share_of_all_draws():
    cases = [(n, c, k) for n in range(1, 8) for c in range(n + 1) for k in range(1, n + 1)]
    for n, c, k in cases:
        draws = list(combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 5, 1), (4, -1, 1), (4, 1, 0)])
def test_what_was_never_tried_has_no_value(n, c, k):
    with pytest.raises(ValueError, match="needs 1 <= k <= n"):
        pass_at_k(n, c, k)


def test_tries_go_up_to_the_group():
    assert [tries_up_to(n) for n in (0, 1, 2, 3, 8, 9)] == [[], [1], [1, 2], [1, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8, 9]]


def interval(totals, counts, bounded=True, **options):
    groups = pl.DataFrame({"m:total": totals, "m:count": counts}, schema={"m:total": pl.Float64, "m:count": pl.Int64})
    table = groups.select(moments("m"))
    return with_intervals(table, {"m": pl.lit(bounded)}, **options).row(0)


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (5, 2.5706), (9, 2.2622), (30, 2.0423), (1000, 1.9623)],
)
def test_students_t_as_in_the_tables(degrees, quantile):
    assert t_quantile(degrees) == pytest.approx(quantile, rel=0.005)


def test_independent_values_get_wilsons_interval_but_for_t():
    """Groups of one: 30 of 100. Wilson's interval is 0.2189 … 0.3958; t for z and G−1 for G widen it a little."""
    mean, low, high = interval([1.0] * 30 + [0.0] * 70, [1] * 100)
    assert (mean, low, high) == (pytest.approx(0.3), pytest.approx(0.2189, abs=2e-3), pytest.approx(0.3958, abs=2e-3))


def test_rollouts_that_agree_within_their_group_count_as_one():
    _, *of_groups = interval([8.0] * 30 + [0.0] * 70, [8] * 100)
    _, *of_rollouts = interval([1.0] * 30 + [0.0] * 70, [1] * 100)
    assert of_groups == pytest.approx(of_rollouts)


def test_all_alike_keeps_a_width_and_one_group_has_none():
    mean, low, high = interval([8.0] * 10, [8] * 10)
    assert (mean, high) == (1.0, 1.0)
    assert 0.6 < low < 0.8
    assert interval([2.0], [8]) == (0.25, None, None)
    assert interval([], []) == (None, None, None)
    assert interval([2.0, 0.0], [8, 0]) == (0.25, None, None)


def test_the_effective_number_is_never_above_the_number_of_rollouts():
    """Groups that are more alike than chance would make them: the interval is that of independent rollouts."""
    alike = interval([4.0, 4.0, 4.0, 5.0] * 5, [8] * 20)
    independent = interval([1.0] * 85 + [0.0] * 75, [1] * 160)
    assert alike[0] == independent[0]
    assert alike[1] < independent[1] + 2e-3 and alike[2] > independent[2] - 2e-3


SETTINGS = {
    "prompts alike": (0.5, 200.0, 40, 8),
    "prompts of every difficulty": (0.5, 1.0, 40, 8),
    "hard, few": (0.15, 1.5, 20, 8),
    "easy or impossible": (0.6, 0.2, 60, 4),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("bounded", [True, False])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(name, bounded):
    """Simulated: each prompt's own solve rate is drawn from a beta distribution of mean p, its rollouts from that."""
    p, spread, count, size = SETTINGS[name]
    draw = random.Random(1)
    runs, covered, naive = 800, 0, 0
    rows = []
    for run in range(runs):
        for _ in range(count):
            rate = draw.betavariate(p * spread, (1 - p) * spread)
            rows.append((run, sum(draw.random() < rate for _ in range(size)), size))
    groups = pl.DataFrame(rows, schema=["run", "m:total", "m:count"], orient="row")
    table = groups.group_by("run").agg(moments("m"))
    for mean, low, high in with_intervals(table, {"m": pl.lit(bounded)}).select("m", "m_low", "m_high").iter_rows():
        covered += low <= p <= high
        naive += abs(mean - p) <= 1.96 * (mean * (1 - mean) / (count * size)) ** 0.5
    assert (
        (0.92 if bounded else 0.9) <= covered / runs <= 0.98
    )  # Wilson's bends with a lopsided spread, ± t·√V does not
    if spread <= 1.5:
        assert naive / runs < 0.85  # rollouts taken for independent: what clustering is for
