from __future__ import annotations

import io

import polars as pl
import pytest
from rich.console import Console

from rg_env.analysis import compare, counts, measure, statistics
from rg_env.analysis.tables import (
    SHOWN,
    headline,
    render_comparison,
    render_counts,
    render_details,
    render_table,
)
from rg_env.base.choices import By
from rg_env.dump import Attempt, open_run, write_manifest
from rg_env.dump.manifest import end_manifest
from tests.analysis.samples import ledger_rows, write_ledger, write_texts
from tests.dump.records import RUN_ID, group, rollout, violating


def printed(*tables, width=80):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(*tables)
    return console.export_text()


@pytest.fixture
def rows(tmp_path):
    members = [
        group(
            f"{phase}-{k}",
            [rollout(1.0, 0, score=0.5, truncated=True), *([violating(1)] if k % 3 else [rollout(0.0, 1)] * 3)],
            task=task,
            step=k,
            phase=phase,
        )
        for phase in ("train", "eval")
        for k in range(1, 7)
        for task in (["spell_backward", "a_task_with_a_long_name"][k % 2],)
    ]
    return ledger_rows(tmp_path, members)


@pytest.mark.parametrize("by", [*By, "step,task"])
def test_every_row_is_there_and_fits_80_columns(rows, by):
    frame = statistics(rows, by)
    text = printed(render_table(frame, totals=statistics(rows, "phase")))
    for row in frame.iter_rows(named=True):
        assert any({str(row["groups"]), f"{row['solve_rate']:.0%}"} <= set(line.split()) for line in text.splitlines())
    assert RUN_ID not in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("by", ["task", "step"])
def test_tables_need_no_more_than_is_read_for_them(rows, by):
    whole, less = measure(rows), measure(rows, names=SHOWN)
    first, second = ((statistics(found, by), statistics(found, "phase")) for found in (whole, less))
    assert second[0].width < first[0].width
    assert printed(render_table(first[0], totals=first[1])) == printed(render_table(second[0], totals=second[1]))


def test_the_section_has_the_totals_of_its_phase(rows):
    lines = printed(render_table(statistics(rows), totals=statistics(rows, "phase"))).splitlines()
    (train,) = (line.split() for line in lines if line.startswith("train"))
    assert train[:3] == ["train", "6", "38%"]


def test_environments_have_sections_of_their_own(tmp_path):
    made = [
        group(f"{k}{name}", [s, 0.0], environment=name)
        for name, s in (("gsm8k", 0.0), ("rg_dump", 1.0))
        for k in (0, 1)
    ]
    rows = ledger_rows(tmp_path, made)
    frame, totals = statistics(rows), statistics(rows, "phase")
    compared = compare(rows, rows, "phase"), compare(rows, rows)
    for table in (
        render_table(frame, totals=totals),
        render_comparison(*compared),
    ):
        heads = [line.strip() for line in printed(table).splitlines() if line.startswith("train")]
        assert [head.split()[:2] for head in heads] == [["train", "gsm8k"], ["train", "rg_dump"]]
    assert [line.split()[:4] for line in printed(render_table(totals)).splitlines()[-2:]] == [
        ["train", "gsm8k", "2", "0%"],
        ["train", "rg_dump", "2", "50%"],
    ]


def test_what_would_say_nothing_is_left_out(tmp_path):
    text = printed(render_table(statistics(ledger_rows(tmp_path, [group(0, step=None)]))))
    assert "cut" not in text
    assert "first" not in text
    assert text.count("score") == 1


def test_details_have_every_figure(rows):
    frame = statistics(rows, "phase")
    text = printed(*render_details(frame, {}, {}))
    for name, value in frame.row(0, named=True).items():
        if value is not None and not name.endswith(("_low", "_high", "_left_out")):
            assert name in text or name in ("run_id", "phase", "environment")
    assert "pass_at_4_left_out" in text and "pass_at_2_left_out" not in text


def test_a_comparison_has_totals_first_and_fits_80_columns(rows, tmp_path):
    other = ledger_rows(tmp_path / "other", [group(f"train-{k}", [1.0, 1.0], task="spell_backward") for k in (2, 6)])
    frames = compare(rows, other, "phase"), compare(rows, other)
    lines = printed(render_comparison(*frames)).splitlines()
    assert max(map(len, lines)) <= 80
    rates = [line.split()[:5] for line in lines if line.startswith(("  solve_rate ", "  spell_backward"))]
    assert rates == [[name, "2", "33%", "100%", "-67"] for name in ("solve_rate", "spell_backward")]
    assert not any("mean_reward" in line for line in lines)  # it equals the score
    assert "mean_reward" in printed(render_comparison(*frames, measures=["solve_rate", "mean_reward"]))


def test_several_runs_have_sections_in_their_order_with_their_names(tmp_path):
    names = {f"{k}": f"a-model-with-a-name-{k}" for k in (3, 1, 4, 0, 2)}
    made = [
        group(f"{n}{s}", [1.0] * int(k) + [0.0] * (4 - int(k)), run_id=k, step=s)
        for k in names
        for s in (60, 0)
        for n in "ab"
    ]
    rows = ledger_rows(tmp_path, made)
    text = printed(render_table(statistics(rows, "step"), totals=statistics(rows, "phase"), names=names))
    assert max(map(len, text.splitlines())) <= 80
    lines = [line.split() for line in text.splitlines() if line.split()]
    heads = [line for line in lines if line[0] in names.values()]
    assert [line[0] for line in heads] == list(names.values())
    assert [line[3] for line in heads] == ["75%", "25%", "100%", "0%", "50%"]
    assert [line[0] for line in lines if line[0].isdigit()] == ["0", "60"] * 5
    by_phase = printed(render_table(statistics(rows, "phase"), names=names), width=120)
    assert [line.split()[0] for line in by_phase.splitlines() if " train " in line] == list(names.values())


def test_counts_are_shown_where_something_is_wrong(rows, tmp_path):
    measured = measure(rows.filter(pl.col("step") < 6))
    lines = [line.split() for line in printed(render_counts(counts(measured), {})).splitlines()]
    assert lines[2:] == [["eval"], ["no_answer", "1", "50.0%"], [], ["train"], ["no_answer", "4", "33.3%"]]
    assert render_counts(counts(measure(ledger_rows(tmp_path / "good", [group(0, [1.0])]))), {}) is None


def test_the_reward_has_a_column_where_it_differs_from_the_score(rows, tmp_path):
    members = [group(0, [rollout(1.0, 0, score=0.5, reward=0.5)])]
    assert "reward" in printed(render_table(statistics(ledger_rows(tmp_path / "b", members))))
    assert "reward" not in printed(render_table(statistics(rows)))


def test_all_columns_of_a_training_with_a_penalty_fit_80_columns(tmp_path):
    members = [
        group(k, [rollout(1.0, 0, score=0.5, reward=0.5), rollout(0.0, 1)], task="leg_counting", step=k)
        for k in range(1, 9)
    ]
    frame, totals = (statistics(ledger_rows(tmp_path / by, members), by) for by in ("task", "phase"))
    text = printed(render_table(frame, totals=totals))
    assert "0.500  0.250   100%" in text
    assert "  leg_counting " in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_row_of_evaluations_shows_the_last_one(tmp_path):
    scores = {0: [0.0, 0.0], 5: [0.0, 1.0], 10: [1.0, 1.0]}
    members = [
        group(f"{step} {k}", values, step=step, phase="eval") for step, values in scores.items() for k in range(4)
    ]
    rows = ledger_rows(tmp_path, members)
    text = printed(render_table(statistics(rows, "phase")))
    assert "eval after step 10" in text
    assert "100% ≥" in text
    assert "0%→100%" in text
    by_step = printed(render_table(statistics(rows, "step"), totals=statistics(rows, "phase"))).splitlines()
    assert [line.split()[:2] for line in by_step[3:]] == [["eval", "after"], ["0", "4"], ["5", "4"], ["10", "4"]]


def test_pass_at_k_is_of_the_largest_k_that_nearly_all_groups_have(tmp_path):
    """Of ten groups, one of eight says nothing about eight tries; one of seven does not hide them."""
    few = [group(0, [1.0] + [0.0] * 7), *(group(k, [0.0] * 4) for k in range(1, 10))]
    text = printed(render_table(statistics(ledger_rows(tmp_path / "few", few))))
    assert "5% @4 " in text and "out" not in text
    most = [group(0, [1.0] * 7), *(group(k, [float(k < 4)] * 8) for k in range(1, 10))]
    assert "33% @8 (1 out)" in printed(render_table(statistics(ledger_rows(tmp_path / "most", most))))


def test_the_headline_says_every_group_only_if_the_manifest_says_that_the_run_ended_whole(tmp_path):
    def said(name, manifest, **ended):
        path = write_ledger(tmp_path / name, [group(k, step=k) for k in (1, 2)])
        if manifest:
            write_manifest(path.parent, RUN_ID, Attempt(attempt=1))
            if ended:
                end_manifest(path.parent, RUN_ID, 1, **ended)
        dump = open_run(path.parent)
        return headline(measure(dump), dump).partition("steps 1 to 2 · ")[2]

    assert said("whole", True, missing_groups=0, ledger_lines={1: 2}) == "every group, from the ledger"
    assert said("unknown", False) == "from the ledger"  # neither "every group" nor "not every group"
    lost = {"missing_groups": 0, "ledger_lines": {1: 3}}
    for name, ended in (("killed", {}), ("full disk", {"missing_groups": 3}), ("lost file", lost)):
        assert said(name, True, **ended) == "from the ledger, not every group: see below"
    texts = open_run(write_texts(tmp_path / "texts", [group(1)]))
    assert "not kept are missing" in headline(measure(texts), texts)
