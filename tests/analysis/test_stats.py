from __future__ import annotations

import io
import math
import random
from collections import defaultdict

import pytest
from rich.console import Console

from rg_env.analysis import render_table, statistics
from rg_env.dump import DumpWriter, open_run
from rg_env.errors import DumpError
from rg_env.scoring.types import Status, Violation
from tests.dump.records import RUN_ID, group, rollout, violating


def _dump(folder, groups):
    with DumpWriter(folder, RUN_ID, 1) as writer:
        assert writer.submit(groups).result(5)
    return open_run(folder)


def _random_groups(count=120):
    draw = random.Random(0)

    def one(k):
        if draw.random() < 0.2:
            return violating(k, draw.choice(list(Violation)))
        if draw.random() < 0.1:
            status = draw.choice([s for s in Status if s is not Status.OK])
            return rollout(0.0, k, status=status, raw_score=None, tagged_score=None)
        base = draw.choice([0.0, 0.3, 0.99, 1.0])
        factor = draw.choice([1.0, 0.5])
        return rollout(
            base, k, score=base * factor, reward=base - 0.1, penalty_factor=factor, truncated=draw.random() < 0.3
        )

    return [
        group(
            uid,
            [one(k) for k in range(draw.choice([1, 4]))],
            task=draw.choice(["chain_sum", "gcd"]),
            step=draw.choice([None, *range(1, 12)]),
            phase=draw.choice(["train", "train", "eval"]),
        )
        for uid in range(count)
    ]


def _recount(groups, by):
    """The same figures in plain Python, slowly."""
    rows = defaultdict(list)
    for g in groups:
        rows[(g.phase, getattr(g, by))].append(g)

    def mean(values):
        values = list(values)
        return sum(values) / len(values) if values else None

    result = {}
    for key, members in rows.items():
        rs = [r for g in members for r in g.rollouts]
        steps = sorted({g.step for g in members if g.step is not None})
        quarter = max(1, len(steps) // 4)
        trend = {"first": steps[:quarter], "last": steps[-quarter:]} if len(steps) >= 2 else {"first": [], "last": []}
        row = {
            "groups": len(members),
            "rollouts": len(rs),
            "steps": len(steps),
            "mean_base_score": mean(r.base_score for r in rs),
            "mean_score": mean(r.score for r in rs),
            "mean_reward": mean(r.reward for r in rs),
            "solve_rate": mean(r.base_score >= 0.99 for r in rs),
            "format_rate": mean(r.violation is None for r in rs),
            "solve_given_format": mean(r.base_score >= 0.99 for r in rs if r.violation is None),
            "mean_response_tokens": mean(r.response_tokens for r in rs),
            "truncated": mean(r.truncated for r in rs),
            "all_correct": mean(g.outcome == "all_correct" for g in members),
            "all_failed": mean(g.outcome == "all_failed" for g in members),
            "mixed": mean(g.outcome == "mixed" for g in members),
            "no_signal": mean(g.no_signal for g in members),
            "scorer_failures": mean(r.status in ("timeout", "crashed", "error") for r in rs),
            "rejected": mean(r.status == "rejected" for r in rs),
            **{f"violation_{v}": mean(r.violation == v for r in rs) for v in Violation},
            **{
                f"solve_rate_{end}": mean(r.base_score >= 0.99 for g in members if g.step in part for r in g.rollouts)
                for end, part in trend.items()
            },
        }
        result[key] = row
    return result


@pytest.mark.parametrize("by", ["task", "step", "phase", "outcome"])
def test_figures_agree_with_a_plain_recount(tmp_path, by):
    groups = _random_groups()
    frame = statistics(_dump(tmp_path, groups), by)
    expected = _recount(groups, by)
    assert {(row["phase"], row[by]) for row in frame.iter_rows(named=True)} == set(expected)
    for row in frame.iter_rows(named=True):
        for name, value in expected[row["phase"], row[by]].items():
            if value is None:
                assert row[name] is None, name
            else:
                assert math.isclose(row[name], value, abs_tol=1e-12), (name, row[name], value)
    assert set(frame.columns) == {"run_id", "phase", by, *next(iter(expected.values()))}


def test_a_solve_rate_of_nine_tenths_reads_nine_tenths(tmp_path):
    """The reference keeps no all-correct group's score after the penalty, and so reads far less from its dumps."""
    solved = [
        group(k, [rollout(1.0, j, score=0.0, reward=0.0, penalty_factor=0.0, truncated=True) for j in range(4)])
        for k in range(9)
    ]
    frame = statistics(_dump(tmp_path, [*solved, group(9, [0.0] * 4)]))
    assert frame["solve_rate"].to_list() == [0.9]
    assert frame["all_correct"].to_list() == [0.9]
    assert frame["all_failed"].to_list() == [0.1]
    assert frame["mean_score"].to_list() == [0.0]
    assert frame["no_signal"].to_list() == [1.0]


def test_learning_shows_in_the_trend(tmp_path):
    groups = [group(s, [1.0] * s + [0.0] * (8 - s), step=s) for s in range(1, 9)]
    frame = statistics(_dump(tmp_path, groups))
    assert frame["solve_rate_first"].to_list() == [(1 + 2) / 16]
    assert frame["solve_rate_last"].to_list() == [(7 + 8) / 16]


def test_an_unknown_grouping_is_refused(tmp_path):
    with pytest.raises(DumpError, match="use one of task, step, phase, outcome"):
        statistics(_dump(tmp_path, [group(0)]), "colour")


@pytest.mark.parametrize("by", ["task", "step", "phase", "outcome"])
def test_the_table_shows_every_row(tmp_path, by):
    frame = statistics(_dump(tmp_path, _random_groups()), by)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render_table(frame, title="of tests"))
    text = console.export_text()
    assert "of tests" in text
    for row in frame.iter_rows(named=True):
        shown = [str(row["groups"]), f"{row['solve_rate']:.0%}", f"{row['format_rate']:.0%}"]
        assert any(set(shown) <= set(line.split()) for line in text.splitlines())
    assert RUN_ID not in text
    assert "…" not in text
