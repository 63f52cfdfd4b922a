from __future__ import annotations

import io

import pytest
from rich.console import Console

from rg_env.analysis import compare, measure, statistics
from rg_env.analysis.tables import (
    headline,
    legend,
    render_comparison,
    render_details,
    render_runs,
    render_table,
)
from rg_env.choices import By
from tests.analysis.samples import ledger_rows
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
    text = printed(render_table(frame, "of tests", totals=statistics(rows, "phase")))
    assert text.splitlines()[0].strip() == "of tests"
    for row in frame.iter_rows(named=True):
        assert any({str(row["groups"]), f"{row['solve_rate']:.0%}"} <= set(line.split()) for line in text.splitlines())
    assert RUN_ID not in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("by", ["task", "step", "violation"])
def test_tables_need_no_more_than_is_read_for_them(rows, by):
    whole, less = measure(rows), measure(rows, details=False)
    first, second = ((statistics(found, by), statistics(found, "phase")) for found in (whole, less))
    assert second[0]["mean_reward"].null_count() == second[0].height
    assert printed(render_table(first[0], totals=first[1])) == printed(render_table(second[0], totals=second[1]))
    assert printed(*render_runs(*first, {})) == printed(*render_runs(*second, {}))


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
    for table in (render_table(frame, totals=totals), *render_runs(frame, totals, {}), render_comparison(*compared)):
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
    text = printed(*render_details(frame))
    for name, value in frame.row(0, named=True).items():
        if value is not None and not name.endswith(("_low", "_high")):
            assert name in text or name in ("run_id", "phase", "environment")


def test_a_comparison_has_totals_first_and_fits_80_columns(rows, tmp_path):
    other = ledger_rows(tmp_path / "other", [group(k, [1.0, 1.0], task="spell_backward") for k in range(20)])
    frames = compare(rows, other, "phase"), compare(rows, other, "category"), compare(rows, other)
    lines = printed(render_comparison(*frames)).splitlines()
    assert max(map(len, lines)) <= 80
    rates = [line.split()[:5] for line in lines if line.strip().startswith(("solve_rate", "spell_backward"))]
    assert ["solve_rate", "6", "0.375", "1.000", "-0.625"] in rates
    assert ["spell_backward", "3", "0.375", "1.000", "-0.625"] in rates
    first = [word for line in lines for word in line.split()[:1]]
    assert first.index("train") < first.index("solve_rate", first.index("train")) < first.index("spell_backward")
    assert len(printed(render_comparison(*frames, every_measure=True)).splitlines()) > len(lines)
    assert any("No shared questions: compared as independent runs" in line for line in legend(*frames))


def test_several_runs_stand_side_by_side_the_best_first_and_names_do_not_wrap(tmp_path):
    names = {f"{k}": f"a-model-with-a-name-{k}" for k in range(5)}
    made = [group(n, [1.0] * k + [0.0] * (4 - k), run_id=str(k)) for k in range(5) for n in range(3)]
    rows = ledger_rows(tmp_path, made)
    tables = [printed(one) for one in render_runs(statistics(rows, "category"), statistics(rows, "phase"), names)]
    assert max(len(line) for text in tables for line in text.splitlines()) <= 80
    assert [name for text in tables for name in text.split() if name in names.values()] == list(names.values())[::-1]
    totals = [
        word for text in tables for line in text.splitlines() if line.startswith("train") for word in line.split()
    ]
    assert [word for word in totals if "%" in word] == ["100%", "75%", "50%", "25%", "0%"]
    assert "0% ≤86" in tables[-1] and "100% ≥14" in tables[0]


def test_the_headline_says_how_much_of_what(rows):
    line = headline(measure(rows), from_ledger=True)
    assert line == f"run {RUN_ID} · 12 groups, 32 rollouts · steps 1 to 6 · every group, from the ledger"
    assert "not kept are missing" in headline(measure(rows), from_ledger=False)
