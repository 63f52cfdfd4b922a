"""Comparison of two runs: agreement with a plain recount, coverage by simulation."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import cycle

import pytest
from hypothesis import assume, given, settings

from rg_env.analysis import compare, flips, statistics
from rg_env.analysis.compare import Unit, differing_suites, differing_tasks, unit_of
from rg_env.dump import open_run, write_manifest
from rg_env.dump.schema import answered
from tests.analysis.samples import groups, ledger_rows, write_ledger
from tests.dump.records import group


@settings(max_examples=15)
@given(mine=groups(), other=groups())
def test_paired_rows_agree_with_a_plain_recount(tmp_path_factory, mine, other):
    assume(all(any(answered(member.rollouts) for member in side) for side in (mine, other)))
    folder = tmp_path_factory.mktemp("dumps")
    found = compare(ledger_rows(folder / "a", mine), ledger_rows(folder / "b", other))
    sides = [_by_question(side) for side in (mine, other)]
    for row in found.filter(measure="solve_rate").iter_rows(named=True):
        keys = [{item for p, t, item in side if (p, t) == (row["phase"], row["task"])} for side in sides]
        shared = keys[0] & keys[1]
        enough = len(shared) >= 2 and 2 * len(shared) >= min(map(len, keys))
        assert row["paired"] == enough
        if not enough:
            continue
        values = [[side[row["phase"], row["task"], item] for item in sorted(shared)] for side in sides]
        means = [sum(map(sum, side)) / sum(map(len, side)) for side in values]
        assert row["questions"] == len(shared)
        assert (row["value"], row["other"]) == (pytest.approx(means[0]), pytest.approx(means[1]))
        assert row["difference"] == pytest.approx(means[0] - means[1])
        assert row["low"] - 1e-9 <= row["difference"] <= row["high"] + 1e-9


def _by_question(members):
    found = defaultdict(list)
    for g in members:
        for r in answered(g.rollouts):
            found[g.phase, g.task, g.item].append(float(r.base_score >= 0.99))
    return found


SETTINGS = {
    "5 questions": (5, 4, 0.1, 0.0, 0.4),
    "20 questions, one sample": (20, 1, 0.1, 0.0, 0.4),
    "50 easy or impossible questions": (50, 1, 0.3, 0.0, 0.2),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_paired_interval_covers_the_truth_and_is_narrower(tmp_path, name):
    """Simulated: the questions' difficulties are drawn from a beta distribution, and each side is better or worse."""
    count, size, up, down, spread = SETTINGS[name]
    draw = random.Random(3)

    def rates():
        easy = draw.betavariate(spread / 2, spread / 2)
        return [min(1.0, max(0.0, easy + shift)) for shift in (up, down)]

    truth = sum(a - b for a, b in (rates() for _ in range(100_000))) / 100_000
    sides = ([], [])
    for run in range(160):  # simulated runs as tasks of one dump
        for question in range(count):
            for side, rate in zip(sides, rates(), strict=True):
                scores = [float(draw.random() < rate) for _ in range(size)]
                side.append(group(f"{run}-{question}", scores, task=f"t{run}"))
    a, b = (ledger_rows(tmp_path / str(k), side) for k, side in enumerate(sides))
    paired = compare(a, b).filter(measure="solve_rate")
    independent = compare(a, b, unmatched=paired["task"].to_list()).filter(measure="solve_rate")
    assert paired["paired"].all()
    assert not independent["paired"].any()
    covered = ((paired["low"] <= truth) & (paired["high"] >= truth)).mean()
    assert covered >= 0.9
    assert covered <= 0.99 or count == 5  # 5 questions: wide rather than too narrow
    width, wider = ((frame["high"] - frame["low"]).mean() for frame in (paired, independent))
    assert width < 0.85 * wider


def test_a_difference_in_every_question_has_a_width(tmp_path):
    a, b = (ledger_rows(tmp_path / n, [group(k, [s] * 4) for k in range(6)]) for n, s in (("a", 1.0), ("b", 0.0)))
    (row,) = compare(a, b).filter(measure="solve_rate").iter_rows(named=True)
    assert (row["difference"], row["clear"], row["high"]) == (1.0, True, 1.0)
    assert row["low"] < 0.9


def test_several_evaluations_of_a_question_are_one_question(tmp_path):
    a = ledger_rows(tmp_path / "a", [group(f"{k}-{s}", [1.0], item=f"q{k}", step=s) for k in range(4) for s in (1, 2)])
    b = ledger_rows(tmp_path / "b", [group(k, [0.0], item=f"q{k}") for k in range(4)])
    (row,) = compare(a, b).filter(measure="solve_rate").iter_rows(named=True)
    assert (row["questions"], row["questions_other"], row["difference"]) == (4, 4, 1.0)


def test_files_without_question_ids_are_compared_as_independent_runs(tmp_path):
    a, b = (ledger_rows(tmp_path / n, [group(k, [1.0, 0.0], item="") for k in range(6)]) for n in "ab")
    assert not compare(a, b)["paired"].any()
    assert flips(a, b).is_empty()


def test_questions_that_flipped_come_with_groups_to_open(tmp_path):
    mine, other = [1.0, 1.0, 0.5, 0.0], [1.0, 0.0, 0.0, 1.0]
    a, b = (
        ledger_rows(tmp_path / str(n), [group(k, [s, s], run_id=f"r{n}", item=f"q{k}") for k, s in enumerate(side)])
        for n, side in enumerate((mine, other))
    )
    found = flips(a, b)
    assert found.select("item", "value", "other").rows() == [("q1", 1.0, 0.0), ("q3", 0.0, 1.0)]
    assert found.row(0, named=True)["group_id"] == "r0:1:train:0:1"
    assert found.row(0, named=True)["group_id_other"] == "r1:1:train:0:1"


def test_tasks_with_other_options_are_named(tmp_path):
    for name, options in (("a", {"gcd": {"config": {"n": 1}}, "lcm": {"config": {}}}), ("b", {"gcd": {"config": {}}})):
        write_ledger(tmp_path / name, [group(0)], name)
        write_manifest(tmp_path / name, name, {"task_mix": options})
    a, b = open_run(tmp_path / "a"), open_run(tmp_path / "b")
    assert differing_tasks(a, b) == ["gcd"]
    assert differing_tasks(a, a) == []


def test_other_suites_are_named(tmp_path):
    for name, fingerprint in (("a", "1"), ("b", "2"), ("c", None)):
        write_ledger(tmp_path / name, [group(0)], name)
        suite = {"suite": {"name": name, "fingerprint": fingerprint}} if fingerprint else {}
        write_manifest(tmp_path / name, name, suite)
    a, b, c = (open_run(tmp_path / name) for name in "abc")
    assert list(differing_suites(a, b)) == ["the runs answered different sets of questions: a (1) and b (2)"]
    assert list(differing_suites(a, a)) == list(differing_suites(a, c)) == []


def test_the_same_run_twice_differs_nowhere(tmp_path):
    dump = ledger_rows(tmp_path, [group(k, [float(k % 3 == 0), 0.0]) for k in range(30)])
    found = compare(dump, dump)
    assert set(found["difference"].drop_nulls()) == {0.0}
    assert not found["clear"].any()
    assert {"solve_rate", "mean_score", "pass_at_2", "no_signal"} <= set(found["measure"])


def run(folder, rates, groups=40):
    draw = random.Random(str(folder.name))
    members = [
        group(f"{task}-{k}", [float(draw.random() < rate) for _ in range(4)], task=task)
        for task, rate in rates.items()
        for k in range(groups)
    ]
    return ledger_rows(folder, members)


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
    assert (rows["mine"]["questions"], rows["mine"]["questions_other"], rows["mine"]["difference"]) == (40, None, None)
    assert (rows["theirs"]["value"], rows["theirs"]["questions_other"]) == (None, 40)
    back = {row["task"]: row for row in compare(b, a).filter(measure="solve_rate").iter_rows(named=True)}
    assert rows["gcd"]["low"] == pytest.approx(-back["gcd"]["high"])


def trained(folder, rates, spread=0.0, draw=random, environments=("rg_dump",)):
    """One training run for each rate; `spread` is how much seeds differ."""
    for number, rate in enumerate(rates):
        own = min(0.95, max(0.05, rate + draw.gauss(0, spread)))
        name = f"20261122-0000{number:02}-{folder.name:a<4.4}"
        members = [
            group(
                f"{folder.name}{k}",
                [float(draw.random() < own) for _ in range(4)],
                run_id=name,
                environment=environment,
            )
            for k, environment in zip(range(60), cycle(environments), strict=False)
        ]
        write_ledger(folder, members, name)
    return open_run(folder)


@pytest.mark.parametrize("environments", [("rg_dump",), ("rg_dump", "gsm8k")])
def test_training_rows_of_one_run_against_another_have_no_interval(tmp_path, environments):
    a, b = (
        trained(tmp_path / name, [rate], environments=environments) for name, rate in (("aaaa", 0.9), ("bbbb", 0.1))
    )
    assert unit_of(a, b) is Unit.ONE_RUN
    found = compare(a.scan(), b.scan(), unit=Unit.ONE_RUN).filter(measure="solve_rate")
    assert found["environment"].to_list() == sorted(environments)
    assert found["difference"].min() > 0.5
    assert found.select("low", "high", "clear").unique().rows() == [(None, None, False)]
    part = a.where(["step = 1"])
    assert unit_of(a, part) is Unit.QUESTION  # two parts of one run
    assert compare(a.scan(), b.scan()).filter(measure="solve_rate")["clear"].all()


def test_several_runs_on_each_side_are_compared_over_runs(tmp_path):
    """Seeds differ by more than the questions explain, and still only one in 20 equal sides differs clearly."""
    draw = random.Random(5)
    clear = {Unit.RUN: 0, Unit.QUESTION: 0}
    for trial in range(10):
        a, b = (trained(tmp_path / f"{trial:03}{side}", [0.5] * 3, spread=0.15, draw=draw) for side in "ab")
        assert unit_of(a, b) is Unit.RUN
        for unit in clear:
            found = compare(a.scan(), b.scan(), "phase", unit=unit)
            (row,) = found.filter(measure="solve_rate").iter_rows(named=True)
            clear[unit] += row["clear"]
            if unit is Unit.RUN:
                assert (row["questions"], row["questions_other"], row["paired"]) == (3, 3, False)
                means = [[*statistics(side.scan(), "phase")["solve_rate"]] for side in (a, b)]
                assert row["value"] == pytest.approx(sum(means[0]) / 3)
    assert clear[Unit.RUN] <= 2 < clear[Unit.QUESTION], clear
