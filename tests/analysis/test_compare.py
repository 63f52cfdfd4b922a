"""Comparison of two runs: agreement with a plain recount, coverage by simulation."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import assume, given, settings

from rg_env.analysis import compare, flips, statistics
from rg_env.analysis.comparison import differing_left_out, differing_tasks, question_sets
from rg_env.dump import Attempt, open_run, write_manifest
from rg_env.dump.schema import answered
from tests.analysis.samples import groups, ledger_rows, write_ledger
from tests.dump.records import group


@settings(max_examples=15)
@given(this=groups(), other=groups())
def test_rows_agree_with_a_plain_recount_of_shared_questions(tmp_path_factory, this, other):
    assume(all(any(answered(member.rollouts) for member in side) for side in (this, other)))
    folder = tmp_path_factory.mktemp("dumps")
    rows = ledger_rows(folder / "a", this), ledger_rows(folder / "b", other)
    sides = [_by_question(side) for side in (this, other)]
    shared = sides[0].keys() & sides[1].keys()
    assert totals_of(*rows) == (len(sides[0]), len(sides[1]), len(shared))
    found = compare(*rows).filter(measure="solve_rate")
    assert {(row["phase"], row["task"]) for row in found.iter_rows(named=True)} == {key[:2] for key in shared}
    for row in found.iter_rows(named=True):
        questions = sorted(key for key in shared if key[:2] == (row["phase"], row["task"]))
        values = [[side[question] for question in questions] for side in sides]
        means = [sum(map(sum, side)) / sum(map(len, side)) for side in values]
        assert row["questions"] == len(questions)
        assert (row["this"], row["other"]) == (pytest.approx(means[0]), pytest.approx(means[1]))
        assert row["difference"] == pytest.approx(means[0] - means[1])
        if row["phase"] == "train" or len(questions) == 1:
            assert (row["low"], row["high"], row["clear"]) == (None, None, False)
        else:
            assert row["low"] - 1e-9 <= row["difference"] <= row["high"] + 1e-9


def totals_of(*sides):
    return question_sets(*sides).select("this", "other", "shared").sum().row(0)


def _by_question(members):
    """The rollouts of each question with an id; of evaluations, those of the last one."""
    steps = {g.step for g in members if g.phase == "eval" and answered(g.rollouts)}
    last = max(steps - {None}, default=None)
    found = defaultdict(list)
    for g in members:
        if not g.item or (g.phase == "eval" and g.step != last):
            continue
        for r in answered(g.rollouts):
            found[g.phase, g.task, g.item].append(float(r.base_score >= 0.99))
    return found


SETTINGS = {
    "5 questions": (5, 4, 0.1, 0.0, 0.4),
    "20 questions, one sample": (20, 1, 0.1, 0.0, 0.4),
    "50 easy or impossible questions": (50, 1, 0.3, 0.0, 0.2),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_interval_covers_the_truth(tmp_path, name):
    """Simulated: the questions' difficulties are drawn from a beta distribution, and each side is better or worse."""
    count, size, up, down, spread = SETTINGS[name]
    draw = random.Random(3)

    def rates():
        easy = draw.betavariate(spread / 2, spread / 2)
        return [min(1.0, max(0.0, easy + shift)) for shift in (up, down)]

    truth = sum(a - b for a, b in (rates() for _ in range(100_000))) / 100_000
    sides = ([], [])
    for run in range(100):  # simulated runs as tasks of one dump
        for question in range(count):
            for side, rate in zip(sides, rates(), strict=True):
                scores = [float(draw.random() < rate) for _ in range(size)]
                side.append(group(f"{run}-{question}", scores, task=f"t{run}", phase="eval"))
    a, b = (ledger_rows(tmp_path / str(k), side) for k, side in enumerate(sides))
    found = compare(a, b).filter(measure="solve_rate")
    covered = ((found["low"] <= truth) & (found["high"] >= truth)).mean()
    assert covered >= 0.9
    assert covered <= 0.99 or count == 5  # 5 questions: wide rather than too narrow


def test_several_evaluations_of_a_question_are_one_question(tmp_path):
    a = ledger_rows(tmp_path / "a", [group(f"{k}-{s}", [1.0], item=f"q{k}", step=s) for k in range(4) for s in (1, 2)])
    b = ledger_rows(tmp_path / "b", [group(k, [0.0], item=f"q{k}") for k in range(4)])
    (row,) = compare(a, b).filter(measure="solve_rate").iter_rows(named=True)
    assert (row["questions"], row["difference"]) == (4, 1.0)


def test_of_evaluations_the_last_one_of_each_side_is_compared_unless_rows_are_by_step(tmp_path):
    scores = {"a": {0: 0.0, 8: 0.5}, "b": {0: 0.0, 30: 0.5, 60: 1.0}}
    sides = []
    for name, of_step in scores.items():
        made = [
            group(f"{s}-{k}", [score], item=f"q{k}", phase="eval", step=s)
            for s, score in of_step.items()
            for k in range(4)
        ]
        sides.append(ledger_rows(tmp_path / name, made))
    (row,) = compare(*sides).filter(measure="mean_base_score").iter_rows(named=True)
    assert (row["this"], row["other"], row["difference"], row["questions"]) == (0.5, 1.0, -0.5, 4)
    (row,) = compare(*sides, "step").filter(measure="mean_base_score").iter_rows(named=True)
    assert (row["step"], row["this"], row["other"]) == (0, 0.0, 0.0)


def test_pass_at_k_of_few_questions_is_not_compared(tmp_path):
    sides = []
    for name in "ab":
        made = [group(k, [1.0, 0.0] * (4 if k < 8 else 2), phase="eval") for k in range(10)]
        sides.append(ledger_rows(tmp_path / name, made))
    assert {"pass_at_4", "solve_rate"} <= {*compare(*sides)["measure"]}
    assert "pass_at_8" not in {*compare(*sides)["measure"]}


def test_only_shared_questions_count_and_none_without_an_id_or_of_another_task(tmp_path):
    a = ledger_rows(tmp_path / "a", [group(k, [1.0], item=f"q{k}") for k in range(4)] + [group("n", [0.0], item="")])
    b = ledger_rows(tmp_path / "b", [group(k, [0.0], item=f"q{k}") for k in range(3, 9)] + [group("n", [0.0], item="")])
    (row,) = compare(a, b, "phase").filter(measure="solve_rate").iter_rows(named=True)
    assert (row["questions"], row["this"], row["other"]) == (1, 1.0, 0.0)
    assert totals_of(a, b) == (4, 6, 1)
    assert question_sets(a, b).rows() == [("chain_sum", 4, 6, 1)]
    for found in (compare(a, b, unmatched=["chain_sum"]), flips(a, b, unmatched=["chain_sum"])):
        assert found.is_empty()


def test_questions_that_flipped_come_with_groups_to_open(tmp_path):
    mine, other = [1.0, 1.0, 0.5, 0.0], [1.0, 0.0, 0.0, 1.0]
    a, b = (
        ledger_rows(tmp_path / str(n), [group(k, [s, s], run_id=f"r{n}", item=f"q{k}") for k, s in enumerate(side)])
        for n, side in enumerate((mine, other))
    )
    found = flips(a, b)
    assert found.select("item", "this", "other").rows() == [("q1", 1.0, 0.0), ("q3", 0.0, 1.0)]
    assert found.row(0, named=True)["group_this"] == "r0:1:train:0:1"
    assert found.row(0, named=True)["group_other"] == "r1:1:train:0:1"


def test_tasks_with_other_options_are_named(tmp_path):
    for name, options in (("a", {"gcd": {"config": {"n": 1}}, "lcm": {"config": {}}}), ("b", {"gcd": {"config": {}}})):
        write_ledger(tmp_path / name, [group(0)], name)
        write_manifest(tmp_path / name, name, Attempt(task_mix=options))
    a, b = open_run(tmp_path / "a"), open_run(tmp_path / "b")
    assert differing_tasks(*a.runs, *b.runs) == ["gcd"]
    assert differing_tasks(*a.runs) == []


FILE = {"path": "a.csv", "question": "{question}", "scorer": "number"}


@pytest.mark.parametrize(
    ("file", "differs"),
    [
        ({**FILE, "path": "b.csv"}, False),  # ids tell whether its content is the same
        ({**FILE, "answer": "answer", "tolerance": 1e-6}, False),  # the defaults
        ({**FILE, "question": "{question}\n{options}"}, True),
        ({**FILE, "scorer": "math"}, True),
        ({**FILE, "answer_after": "####"}, True),
        ("a.csv", True),
    ],
)
def test_a_file_that_is_asked_or_scored_in_another_way_is_named(tmp_path, file, differs):
    for name, of_run in (("a", FILE), ("b", file)):
        write_ledger(tmp_path / name, [group(0)], name)
        write_manifest(tmp_path / name, name, Attempt(task_mix={"sums": {"file": of_run}}))
    a, b = open_run(tmp_path / "a"), open_run(tmp_path / "b")
    assert differing_tasks(*a.runs, *b.runs) == (["sums"] if differs else [])


def test_tasks_of_which_other_rows_are_left_out_are_named(tmp_path):
    left_out = {
        "a": {"sums": {"eval": [3]}, "same": {"eval": [1]}},
        "b": {"same": {"eval": [1], "train": [2]}},
        "c": None,
    }
    for name, rows in left_out.items():
        write_ledger(tmp_path / name, [group(0)], name)
        write_manifest(tmp_path / name, name, Attempt.read({} if rows is None else {"questions_left_out": rows}))
    runs = open_run(*(tmp_path / name for name in left_out)).runs
    assert differing_left_out(*runs) == ["sums"]
    assert differing_left_out(runs[0], runs[2]) == []  # nothing is known of the other


def test_the_same_run_twice_differs_nowhere(tmp_path):
    dump = ledger_rows(tmp_path, [group(k, [float(k % 3 == 0), 0.0]) for k in range(30)])
    found = compare(dump, dump)
    assert set(found["difference"].drop_nulls()) == {0.0}
    assert not found["clear"].any()
    assert {"solve_rate", "mean_score", "pass_at_2", "no_signal"} <= set(found["measure"])


def test_differences_are_those_of_the_two_sides_and_clear_where_they_are_large(tmp_path):
    draw = random.Random(7)

    def evaluated(folder, rates):
        scores = {(task, k): [float(draw.random() < rate) for _ in range(4)] for task, rate in rates for k in range(40)}
        members = [group(f"{task}-{k}", values, task=task, phase="eval") for (task, k), values in scores.items()]
        return ledger_rows(folder, members)

    a = evaluated(tmp_path / "a", [("gcd", 0.9), ("lcm", 0.5), ("mine", 0.5)])
    b = evaluated(tmp_path / "b", [("gcd", 0.3), ("lcm", 0.5), ("theirs", 0.5)])
    rows = {row["task"]: row for row in compare(a, b).filter(measure="solve_rate").iter_rows(named=True)}
    this, other = (
        {row["task"]: row["solve_rate"] for row in statistics(side).iter_rows(named=True)} for side in (a, b)
    )
    assert rows.keys() == {"gcd", "lcm"}
    for task, row in rows.items():
        assert (row["this"], row["other"]) == (this[task], other[task])
        assert row["low"] < row["difference"] < row["high"]
    assert (rows["gcd"]["clear"], rows["lcm"]["clear"]) == (True, False)
    back = {row["task"]: row for row in compare(b, a).filter(measure="solve_rate").iter_rows(named=True)}
    assert rows["gcd"]["low"] == pytest.approx(-back["gcd"]["high"])


def test_a_difference_in_every_question_has_a_width_and_rows_of_training_have_no_interval(tmp_path):
    kinds = [("eval", "rg_dump"), ("train", "rg_dump"), ("train", "gsm8k")]
    a, b = (
        ledger_rows(
            tmp_path / str(score),
            [group(f"{k}{kind}", [score] * 4, phase=kind[0], environment=kind[1]) for kind in kinds for k in range(6)],
        )
        for score in (1.0, 0.0)
    )
    evaluated, *trained = compare(a, b).filter(measure="solve_rate").iter_rows(named=True)
    assert (evaluated["difference"], evaluated["clear"], evaluated["high"]) == (1.0, True, 1.0)
    assert evaluated["low"] < 0.9
    for row in trained:
        assert (row["difference"], row["low"], row["high"], row["clear"]) == (1.0, None, None, False)
