from __future__ import annotations

import random

import pytest

from rg_env.analysis import compare, statistics
from tests.analysis.samples import ledger_dump
from tests.dump.records import group


def run(folder, rates, groups=40):
    draw = random.Random(str(folder.name))
    members = [
        group(f"{task}-{k}", [float(draw.random() < rate) for _ in range(4)], task=task)
        for task, rate in rates.items()
        for k in range(groups)
    ]
    return ledger_dump(folder, members)


def test_differences_are_those_of_the_two_sides_and_clear_where_they_are_large(tmp_path):
    a = run(tmp_path / "a", {"gcd": 0.9, "lcm": 0.5, "mine": 0.5})
    b = run(tmp_path / "b", {"gcd": 0.3, "lcm": 0.5, "theirs": 0.5})
    rows = {row["task"]: row for row in compare(a, b).filter(measure="solve_rate").iter_rows(named=True)}
    mine, theirs = ({row["task"]: row for row in statistics(side).iter_rows(named=True)} for side in (a, b))
    for task in ("gcd", "lcm"):
        here, there = mine[task]["solve_rate"], theirs[task]["solve_rate"]
        assert (rows[task]["value"], rows[task]["other"]) == (here, there)
        assert rows[task]["difference"] == pytest.approx(here - there)
        assert rows[task]["low"] < here - there < rows[task]["high"]
    assert (rows["gcd"]["clear"], rows["lcm"]["clear"]) == (True, False)
    assert (rows["mine"]["groups"], rows["mine"]["groups_other"], rows["mine"]["difference"]) == (40, None, None)
    assert (rows["theirs"]["value"], rows["theirs"]["groups_other"]) == (None, 40)


def test_a_run_does_not_differ_from_itself(tmp_path):
    dump = run(tmp_path / "a", {"gcd": 0.7})
    frame = compare(dump, dump, "phase")
    assert set(frame["difference"].drop_nulls()) == {0.0}
    assert not frame["clear"].any()
    assert {"solve_rate", "mean_score", "pass_at_4", "pass_hat_2", "no_signal"} <= set(frame["measure"])


def test_the_other_way_round_is_the_same_with_the_sign_changed(tmp_path):
    a, b = run(tmp_path / "a", {"gcd": 0.9}), run(tmp_path / "b", {"gcd": 0.6})
    there, back = (compare(*sides).filter(measure="pass_at_2").row(0, named=True) for sides in ((a, b), (b, a)))
    assert there["low"] == pytest.approx(-back["high"])
    assert there["high"] == pytest.approx(-back["low"])
