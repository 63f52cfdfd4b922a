from __future__ import annotations

import math
import random
from statistics import fmean, stdev

import msgspec
import polars as pl
import pytest
from hypothesis import assume, given, settings

from rg_env.analysis import compare, counts, measure, statistics
from rg_env.analysis.estimates import t_quantile
from rg_env.analysis.scores import render, summarize
from rg_env.base.choices import By
from rg_env.base.errors import DumpError
from rg_env.dump import Attempt, Dump, DumpWriter, FileKind, open_run, write_manifest
from rg_env.dump.files import batch_name
from rg_env.dump.schema import answered
from rg_env.page import build_report
from rg_env.scoring.types import Status
from tests.analysis.recount import recount, recount_kinds
from tests.analysis.reports import Report
from tests.analysis.samples import groups, ledger_dump, ledger_rows, write_ledger, write_texts
from tests.dump.records import RUN_ID, group, manifest, rollout, violating


@settings(max_examples=3)
@given(members=groups())
def test_figures_agree_with_a_plain_recount(tmp_path_factory, members):
    assume(any(answered(member.rollouts) for member in members))
    found = measure(ledger_rows(tmp_path_factory.mktemp("dump"), members))
    for by in (*By, "step,task", "category,level"):
        _check(statistics(found, by), recount(members, by), by)
    kinds = counts(found, "phase")
    keys = ("phase", "environment", "kind", "value")
    assert {tuple(row[key] for key in keys): row["rollouts"] for row in kinds.iter_rows(named=True)} == recount_kinds(
        members
    )
    of_phase = {row["phase"]: row["rollouts"] for row in statistics(found, "phase").iter_rows(named=True)}
    assert all(row["share"] == row["rollouts"] / of_phase[row["phase"]] for row in kinds.iter_rows(named=True))


def _check(frame, expected, by):
    keys = list(dict.fromkeys(("phase", "environment", *(key for one in by.split(",") for key in By(one).columns))))
    assert {tuple(row[key] for key in keys) for row in frame.iter_rows(named=True)} == set(expected)
    for row in frame.iter_rows(named=True):
        for name, value in expected[tuple(row[key] for key in keys)].items():
            if value is None:
                assert row[name] is None, name
            else:
                assert row[name] is not None, name
                assert math.isclose(row[name], value, abs_tol=1e-9), (name, row[name], value)
    counted = set(next(iter(expected.values())))
    assert set(frame.columns) == {"run_id", *keys, *counted, "solve_rate_change"}


def test_a_solve_rate_of_nine_tenths_reads_nine_tenths(tmp_path):
    """The reference keeps no all-correct group's score after the penalty, and so reads far less from its dumps."""
    solved = [
        group(k, [rollout(1.0, j, score=0.0, reward=0.0, penalty_factor=0.0, truncated=True) for j in range(4)])
        for k in range(9)
    ]
    (row,) = statistics(ledger_rows(tmp_path, [*solved, group(9, [0.0] * 4)])).iter_rows(named=True)
    assert (row["solve_rate"], row["all_correct"], row["all_failed"]) == (0.9, 0.9, 0.1)
    assert (row["mean_score"], row["no_signal"], row["penalized"]) == (0.0, 1.0, 0.9)


def test_learning_shows_in_the_trend(tmp_path):
    members = [group(f"{s}-{k}", [1.0] * s + [0.0] * (8 - s), step=s) for s in range(1, 9) for k in range(5)]
    (row,) = statistics(ledger_rows(tmp_path, members)).iter_rows(named=True)
    assert row["solve_rate_first"] == (1 + 2) / 16
    assert row["solve_rate_last"] == (7 + 8) / 16
    assert row["solve_rate_change"] == 12 / 16


def test_conditions_choose_rows_and_unwhole_groups_have_no_pass_at_k(tmp_path):
    members = [group(k, [1.0, 0.0], step=k, task="gcd" if k % 2 else "lcm") for k in range(8)]
    dump = ledger_dump(tmp_path, members)
    (row,) = statistics(dump.where(["task = 'gcd'", "step >= 3"]).scan()).iter_rows(named=True)
    assert (row["task"], row["groups"], row["pass_at_2"]) == ("gcd", 3, 1.0)
    part = dump.where(["base_score = 1"])
    (row,) = statistics(part, "phase").iter_rows(named=True)
    assert (row["rollouts"], row["solve_rate"], row["pass_at_1"], row["no_signal"]) == (8, 1.0, None, None)


def test_what_solved_means_follows_from_the_group_else_from_the_call_else_from_the_attempts_settings(tmp_path):
    made = [
        group(0, [0.5, 0.4], step=1),
        group(1, [0.5, 0.4], step=1, environment="gsm8k", solved_at=0.4),
        group(2, [0.5], step=2, attempt=2),
    ]
    dump = ledger_dump(tmp_path, made)
    assert statistics(dump)["solve_rate"].to_list() == [1.0, 0.0]
    (row,) = statistics(dump, solved_at=0.5).filter(environment="rg_dump").iter_rows(named=True)
    assert (row["solve_rate"], row["pass_at_1"]) == (2 / 3, 0.75)
    write_manifest(tmp_path, RUN_ID, Attempt.read(manifest(solved_at=0.4)))
    write_manifest(tmp_path, RUN_ID, Attempt.read(manifest(solved_at=0.7) | {"attempt": 2}))
    dump = open_run(tmp_path)
    assert statistics(dump)["solve_rate"].to_list() == [1.0, 2 / 3]
    assert statistics(dump, solved_at=0.5)["solve_rate"].to_list() == [1.0, 2 / 3]
    of_report = Report(build_report(dump))
    ours = next(section["headline"] for section in of_report.summary["sections"] if section["environment"] == "rg_dump")
    assert (ours["solve_rate"], ours["solved_at"]) == (round(2 / 3, 7), [0.4, 0.7])
    assert [shown["solved_at"] for shown in of_report.groups] == [0.4, 0.4, 0.7]


def test_every_figure_of_an_evaluation_is_of_the_last_one_but_for_the_trend(tmp_path):
    """The first evaluation has another format, and pays nothing."""
    members = [group(f"0-{k}", [violating(0), violating(1)], phase="eval", step=0) for k in range(6)]
    members += [group(f"8-{k}", [1.0, 0.0], phase="eval", step=8) for k in range(4)]
    members += [group(f"t-{k}", [1.0, 1.0], step=9) for k in range(3)]
    found = measure(ledger_rows(tmp_path, members))
    row = statistics(found, "phase").row(0, named=True)
    last = statistics(found, "step").row(1, named=True)
    assert (row["groups"], row["evaluation_step"], row["format_rate"], row["solve_rate_first"]) == (4, 8, 1.0, 0.0)
    trend = {"steps", "solve_rate_first", "solve_rate_last", "solve_rate_change"}
    for name, value in row.items():
        if name.removesuffix("_low").removesuffix("_high") not in trend:
            assert value == last[name], name
    assert counts(found)["value"].to_list() == ["ok", "ok"]
    assert statistics(found, "phase").row(1, named=True)["evaluation_step"] is None


def test_a_question_in_many_rows_is_as_much_as_one_with_many_samples(tmp_path):
    """AIME as verl has it: every question stands in it 32 times. Ten questions, of which the policy solves five."""
    often = [group(f"{k}-{n}", [float(k < 5)], item=f"q{k}", phase="eval") for k in range(10) for n in range(32)]
    sampled = [group(k, [float(k < 5)] * 32, item=f"q{k}", phase="eval") for k in range(10)]
    old = [msgspec.structs.replace(g, item="", uid=f"u{g.item}") for g in often]  # the id of the prompt
    rows = []
    for name, members in (("often", often), ("sampled", sampled), ("old", old)):
        dump = ledger_dump(tmp_path / name, members)
        rows += statistics(dump).rows(named=True)
        headline = Report(build_report(dump)).summary["sections"][0]["headline"]
        assert headline["solve_rate_high"] == pytest.approx(rows[-1]["solve_rate_high"], abs=1e-6)
    for name in ("solve_rate", "solve_rate_low", "solve_rate_high", "mean_reward_low"):
        assert rows[0][name] == pytest.approx(rows[1][name]) == rows[2][name], name
    assert (rows[0]["solve_rate_high"] - rows[0]["solve_rate_low"]) / 2 == pytest.approx(0.30, abs=0.005)
    assert (rows[0]["groups"], rows[1]["groups"]) == (320, 10)
    assert rows[0]["pass_at_1_low"] == pytest.approx(rows[1]["pass_at_1_low"])


def test_intervals_of_repeated_questions_cover_the_truth(tmp_path):
    """Simulated: each of 30 questions stands in eight rows, with a solve rate drawn from a beta distribution."""
    draw, runs = random.Random(5), 300
    simulated = []
    for run in range(runs):
        for question in range(30):
            rate = draw.betavariate(0.5, 0.5)
            simulated += [(f"t{run}", f"{run}-{question}", float(draw.random() < rate)) for _ in range(8)]
    rows = pl.DataFrame(simulated, ["task", "item", "base_score"], orient="row").with_row_index("group_id")
    template = ledger_rows(tmp_path, [group(phase="eval")]).collect().head(1).drop(rows.columns)
    rows = rows.with_columns(pl.col("group_id").cast(pl.String)).join(template, how="cross")
    found = statistics(rows)
    low, high = found["solve_rate_low"], found["solve_rate_high"]
    assert found.height == runs
    assert 0.92 <= ((low <= 0.5) & (high >= 0.5)).mean() <= 0.98
    # Rows that are taken for independent: what clustering is for.
    naive = (found["solve_rate"] - 0.5).abs() <= 1.96 * (0.25 / 240) ** 0.5
    assert naive.mean() < 0.75


@pytest.mark.parametrize(("with_eight", "known"), [(8, False), (9, True), (10, True)])
def test_pass_at_k_needs_nine_tenths_of_the_groups(tmp_path, with_eight, known):
    members = [group(k, [1.0] + [0.0] * (7 if k < with_eight else 3)) for k in range(10)]
    (row,) = statistics(ledger_rows(tmp_path, members)).iter_rows(named=True)
    assert (row["pass_at_8"], row["pass_at_8_low"] is not None) == (1.0 if known else None, known)
    assert (row["pass_at_8_left_out"], row["pass_at_4_left_out"]) == (10 - with_eight, 0)
    assert row["pass_at_4"] is not None


def test_runs_are_kept_apart_in_the_order_read(tmp_path):
    frame = ledger_dump(tmp_path / "c", [group(0, run_id="z"), group(1, run_id="b")]).ledger_frame()
    for source in (frame, frame.lazy(), measure(frame)):
        assert statistics(source)["run_id"].to_list() == ["z", "b"]


def test_texts_give_the_figures_of_the_groups_that_were_kept(tmp_path):
    members = [group(k, [1.0, 0.0, 0.5], step=k) for k in range(5)]
    write_texts(tmp_path / "texts", members)
    from_texts = statistics(ledger_rows(tmp_path / "ledger", members))
    assert statistics(open_run(tmp_path / "texts").scan()).equals(from_texts)


def test_what_is_wanted_is_what_is_read(tmp_path):
    rows = ledger_rows(tmp_path, [group(k, [1.0, 0.3]) for k in range(3)])
    less, everything = (statistics(measure(rows, names=names)) for names in (["mean_base_score"], None))
    assert "mean_reward" not in less.columns
    assert less.equals(everything.select(less.columns))


def test_an_unknown_grouping_is_refused(tmp_path):
    with pytest.raises(DumpError, match="use one of task, category, step, phase, level, environment, or several"):
        statistics(ledger_rows(tmp_path, [group(0)]), "color")


def test_nothing_to_count_is_an_error(tmp_path):
    path = tmp_path / batch_name(FileKind.LEDGER, "log", 0)
    path.write_text('{"time": 1}\n' * 3)
    with pytest.raises(DumpError, match="there are no rollouts"):
        statistics(open_run(path).scan())
    failed = [group(0, [rollout(0.0, status=Status.NO_RESPONSE)])]
    with pytest.raises(DumpError, match="no rollout in these files"):
        measure(Dump(()))
    with pytest.raises(DumpError, match="every rollout is no_response or unscored"):
        statistics(ledger_rows(tmp_path / "failed", failed))


def test_groups_with_partial_credit_alone_are_told_apart(tmp_path):
    members = [group(0, [0.01] * 8), group(1, [0.8, 0.02]), group(2, [0.0, 0.0]), group(3, [1.0, 1.0])]
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert writer.submit(members).result(5)
    (row,) = statistics(open_run(tmp_path).scan(), By.TASK).iter_rows(named=True)
    assert (row["mixed"], row["partial_credit_only"]) == (0.5, 0.5)


def test_the_table_of_an_evaluation_counts_a_question_that_was_asked_again_once_as_statistics_do(tmp_path):
    lost = rollout(0.0, 1, status=Status.NO_RESPONSE)
    asked = [
        group(0, [rollout(1.0), lost], phase="eval", step=None, call=0),
        group(1, [rollout(1.0), lost], phase="eval", step=None, call=1),
        group(0, [0.0, 0.0], phase="eval", step=None, call=0, attempt=2),
    ]
    write_ledger(tmp_path, asked)
    write_manifest(tmp_path, RUN_ID, Attempt.read(manifest(solved_at=0.5)))
    summary = summarize(tmp_path, RUN_ID, "nano", 12)
    total, category, task = summary.rows
    assert (total["name"], category["name"], task["name"]) == ("total", "arithmetic", "chain_sum")
    (row,) = statistics(open_run(tmp_path)).iter_rows(named=True)
    for name in ("groups", "rollouts", "solve_rate", "mean_base_score"):
        assert total[name] == category[name] == task[name] == row[name]
    assert (total["groups"], total["rollouts"], summary.no_response) == (2, 3, 1)


def test_checkpoints_of_which_one_lost_responses_are_in_one_table(tmp_path):
    summaries = []
    for name, size in (("lost", 3), ("whole", 4)):
        write_ledger(tmp_path / name, [group(0, [1.0] * size, phase="eval", step=None)])
        summaries.append(summarize(tmp_path / name, RUN_ID, name, 4))
    table = render(summaries, 120)
    assert [str(column.header) for column in table.columns[-3:]] == ["pass@2", "pass@3", "pass@4"]
    assert [[*column.cells] for column in table.columns[-3:]] == [["100%", "100%"], ["100%", "–"], ["–", "100%"]]


def test_what_another_environment_does_not_say_is_unknown(tmp_path):
    """Not 0 with an interval; what is cut off is known where there is a stop reason."""
    for name, reason in (("without", ""), ("with", "length")):
        made = [rollout(1.0, k, stop_reason=reason, truncated=bool(reason)) for k in range(4)]
        rows = ledger_rows(tmp_path / name, [group(k, made, environment="gsm8k") for k in range(3)])
        (row,) = statistics(rows).iter_rows(named=True)
        for unknown in ("format_rate", "penalized", "scorer_failures", "rejected"):
            assert row[unknown] is None, unknown
        assert row["truncated"] == (1.0 if reason else None)


@pytest.mark.parametrize("rewards", [[-1.0, 1.0, -1.0, -1.0], [0.0, 10.0, 4.0, 8.0]])
def test_scores_of_another_environment_that_leave_0_to_1_have_intervals_of_their_own_size(tmp_path, rewards):
    """Also against a side that happens to stay within. Ours keep theirs."""
    sides = []
    for name, scores in (("a", rewards), ("b", [1.0] * 4)):
        made = [group(k, [score], environment="gym", phase="eval") for k, score in enumerate(scores)]
        made += [group(f"ours-{k}", [1.0], phase="eval") for k in range(4)]
        sides.append(ledger_rows(tmp_path / name, made))
    mean, half = fmean(rewards), t_quantile(3) * stdev(rewards) / 2
    gym, ours = statistics(sides[0], By.PHASE).iter_rows(named=True)
    for name in ("mean_base_score", "mean_score", "mean_reward"):
        assert gym[name] == pytest.approx(mean)
        assert (gym[f"{name}_low"], gym[f"{name}_high"]) == pytest.approx((mean - half, mean + half)), name
    assert 0 < ours["mean_base_score_low"] < ours["mean_base_score_high"] == 1
    gym, ours = compare(*sides, By.PHASE).filter(measure="mean_base_score").iter_rows(named=True)
    assert (gym["low"], gym["high"]) == pytest.approx((mean - 1 - half, mean - 1 + half))
    assert -1 < ours["low"] < ours["high"] < 1


def test_a_complexity_out_of_range_is_in_the_last_tenth(tmp_path):
    (row,) = statistics(ledger_rows(tmp_path, [group(0, complexity=1e300)]), By.LEVEL).iter_rows(named=True)
    assert row["complexity"] == "0.9-1.0"


def test_groups_of_two_runs_with_equal_ids_stay_apart(tmp_path):
    for name in ("a", "b"):
        write_ledger(tmp_path / name, [group(k, group_id=f"g{k}", run_id=name) for k in range(5)], name)
    rows = statistics(open_run(tmp_path / "a", tmp_path / "b"), By.PHASE).select("run_id", "groups").rows()
    assert rows == [("a", 5), ("b", 5)]
