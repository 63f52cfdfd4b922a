"""What stands in a report: figures, sample, texts, and nothing that could run. How it looks: `test_report_browser`."""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections import defaultdict
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from rg_env.analysis import statistics
from rg_env.analysis.report import build_report
from rg_env.analysis.report.figures import MAX_POINTS
from rg_env.analysis.report.groups import MAX_TEXT, groups_to_show
from rg_env.analysis.report.page import page
from rg_env.analysis.stats import measure_dump
from rg_env.cli import app
from rg_env.dump import DumpPolicy, open_run, write_manifest
from rg_env.errors import DumpError
from tests.analysis.reports import Report, dump_of, random_groups, rows, said
from tests.analysis.samples import write_ledger
from tests.dump.records import RUN_ID, group, rollout

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "dumps" / "sample"
TASKS = 3


@pytest.fixture(scope="module")
def groups():
    return random_groups()


@pytest.fixture(scope="module")
def dump(groups, tmp_path_factory):
    return dump_of(tmp_path_factory.mktemp("dump"), groups)


@pytest.fixture(scope="module")
def report(dump):
    return Report(build_report(dump))


def section(report, phase="train"):
    return next(one for one in report.summary["sections"] if one["phase"] == phase)


def close(a, b):
    return a == b if a is None or b is None or isinstance(a, str) else math.isclose(a, b, abs_tol=1e-6)


def test_headline_and_tasks_are_those_of_stats(dump, report):
    assert [one["phase"] for one in report.summary["sections"]] == ["train", "eval"]
    for row in statistics(dump.scan(), "phase").iter_rows(named=True):
        shown = section(report, row["phase"])["headline"]
        assert all(close(shown[name], value) for name, value in row.items())
    by_task = statistics(dump.scan(), "task").filter(phase="train")
    shown = rows(section(report)["tasks"])
    assert len(shown) == TASKS
    for row, expected in zip(shown, by_task.iter_rows(named=True), strict=True):
        assert all(close(value, expected[name]) for name, value in row.items())


def test_curves_are_those_of_stats_by_step(dump, report):
    expected = {row["step"]: row for row in statistics(dump.scan(), "step").filter(phase="train").iter_rows(named=True)}
    curve = rows(section(report)["steps"])
    assert [row["step"] for row in curve] == sorted(expected)
    for row in curve:
        assert row["last_step"] == row["step"]
        for name in ("groups", "mean_reward", "solve_rate", "solve_rate_low", "format_rate", "no_signal_high"):
            assert close(row[name], expected[row["step"]][name]), name


def test_evaluations_are_never_merged_and_have_no_signal_to_lack(tmp_path):
    made = [group(s, [1.0, 1.0], step=s, phase="eval") for s in range(MAX_POINTS + 5)]
    evaluated = section(Report(build_report(dump_of(tmp_path, made))), "eval")
    assert len(evaluated["steps"]["step"]) == MAX_POINTS + 5
    assert evaluated["headline"]["no_signal"] is None


def test_groups_above_the_threshold_by_partial_credit_alone_are_said(tmp_path):
    report = Report(build_report(dump_of(tmp_path, [group(0, [0.8, 0.0]), group(1, [1.0]), group(2, [0.5])])))
    assert "1 group above the threshold, none solved: by partial credit alone." in report.summary["notes"]


def test_many_steps_are_put_together_and_every_rollout_still_counts_once(tmp_path):
    steps = MAX_POINTS * 2 + 10
    made = [group(s, [1.0] * (s % 3) + [0.0], step=s * 10) for s in range(steps)]
    report = Report(build_report(dump_of(tmp_path, made)))
    curve = rows(section(report)["steps"])
    assert len(curve) == math.ceil(steps / 3) <= MAX_POINTS
    assert sum(row["groups"] for row in curve) == steps
    assert (curve[1]["step"], curve[1]["last_step"]) == (30, 50)
    solved = [r.base_score >= 0.99 for g in made[3:6] for r in g.rollouts]
    assert close(curve[1]["solve_rate"], sum(solved) / len(solved))


def test_heat_trouble_and_lengths_agree_with_a_plain_recount(groups, report):
    mine = [g for g in groups if g.phase == "train"]
    of_cell, of_step, lengths = defaultdict(list), defaultdict(list), defaultdict(list)
    for g in mine:
        for r in g.rollouts:
            of_cell[g.task, g.step].append(r.base_score >= 0.99)
            of_step[g.step].append(
                f"violation_{r.violation}" if r.violation else f"status_{r.status}" if r.status != "ok" else None
            )
            lengths["right" if r.base_score >= 0.99 else "wrong"].append(r.response_tokens)
    found = section(report)
    heat = {(row["task"], row["step"]): row["solve_rate"] for row in rows(found["heat"])}
    assert heat.keys() == of_cell.keys()
    assert all(close(heat[key], sum(values) / len(values)) for key, values in of_cell.items())
    for row in rows(found["trouble"]):
        kinds = of_step[row["step"]]
        assert close(row["share"], sum(kind == row["what"] for kind in kinds) / len(kinds))
    assert {row["what"] for row in rows(found["trouble"])} == {k for kinds in of_step.values() for k in kinds if k}
    for kind, values in lengths.items():
        for bar in rows(found["lengths"]):
            inside = sum(bar["from"] <= value < bar["to"] for value in values)
            assert close(bar[kind] or 0.0, inside / len(values))


def test_the_browser_has_every_group_with_all_its_numbers_and_texts(groups, report):
    shown = {one["group_id"]: one for one in report.groups}
    assert shown.keys() == {g.group_id for g in groups}
    for g in groups:
        one = shown[g.group_id]
        assert (one["task"], one["step"], one["phase"], one["outcome"]) == (g.task, g.step, g.phase, g.outcome)
        assert one["expected"] == "1"
        assert one["prompt"] == list(g.rollouts[0].conversation[:-1])
        for row, r in zip(one["rollouts"], g.rollouts, strict=True):
            assert row["text"] == r.conversation[-1]["content"]
            for name in ("score", "reward", "base_score", "raw_score", "violation", "status", "answer", "detail"):
                assert row[name] == getattr(r, name), name


def test_train_comes_before_eval_and_steps_in_their_order(report):
    order = [(one["phase"] != "train", one["step"]) for one in report.groups]
    assert order == sorted(order)


def test_the_same_record_gives_the_same_bytes(dump):
    assert build_report(dump, max_groups=50) == build_report(dump, max_groups=50)


def test_a_sample_is_even_over_the_steps_and_said(dump, groups):
    report = Report(build_report(dump, max_groups=30))
    assert len(report.groups) == 30
    train = [one["step"] for one in report.groups if one["phase"] == "train"]
    assert {sum(low < step <= low + 10 for step in train) for low in (0, 10, 20)} == {9}
    assert any("30 of 120 groups" in note for note in report.summary["notes"])
    assert section(report)["headline"]["groups"] == sum(g.phase == "train" for g in groups)


def test_groups_without_text_are_there_with_the_reason(tmp_path):
    made = [group(0, [1.0, 0.0]), group(1, [0.5, 0.0])]
    report = Report(build_report(dump_of(tmp_path, made, DumpPolicy())))
    kept, left = sorted(report.groups, key=lambda one: one["item"])
    assert "prompt" in kept
    assert "prompt" not in left
    assert left["text_reason"] == "dump_other_rollouts_off"
    assert [row["base_score"] for row in left["rollouts"]] == [0.5, 0.0]
    assert any("all 2 groups, 1 of them with their text" in note for note in report.summary["notes"])


def test_texts_are_thinned_out_evenly_where_they_would_outgrow_the_file(tmp_path):
    made = [group(k, [rollout(1.0, conversation=said("?", "x" * 100))], step=k) for k in range(64)]
    dump = dump_of(tmp_path, made)
    sample = groups_to_show(dump, measure_dump(dump), 64, budget=2_000)
    kept = [number for number, one in enumerate(sample.groups) if "prompt" in one]
    assert len(sample.groups) == 64
    assert sample.thinned == 4
    assert kept == list(range(0, 64, 4))


def test_of_a_long_text_both_ends_are_kept_and_said(tmp_path):
    text = "<think>" + "a" * 1_000_000 + "</think><answer>1</answer>"
    report = Report(build_report(dump_of(tmp_path, [group(0, [rollout(1.0, conversation=said("?", text))])])))
    head, left_out, tail = report.groups[0]["rollouts"][0]["text"]
    assert len(head) + left_out + len(tail) == len(text)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) == MAX_TEXT
    assert any("(1 of them)" in note for note in report.summary["notes"])


def test_the_worst_tasks_come_first_with_rollouts_that_went_wrong(report):
    train = section(report)
    assert [one["solve_rate"] for one in train["worst"]] == sorted(one["solve_rate"] for one in train["worst"])
    at_end = dict(zip(train["tasks"]["task"], train["tasks"]["solve_rate_last"], strict=True))
    for worst in train["worst"]:
        assert close(worst["solve_rate"], at_end[worst["task"]])
        assert len(worst["examples"]) == 3
        for number, place in worst["examples"]:
            one = report.groups[number]
            assert (one["task"], one["phase"]) == (worst["task"], "train")
            assert one["rollouts"][place]["base_score"] == min(row["base_score"] for row in one["rollouts"]) < 0.99


def test_examples_are_of_the_environment_and_below_what_its_groups_count_as_solved(tmp_path):
    made = [
        group(0, [0.8, 0.6], environment="gsm8k", solved_at=0.75),
        group(1, [0.8, 0.9], environment="gsm8k", solved_at=0.75),
        group(2, [0.0, 1.0]),
    ]
    report = Report(build_report(dump_of(tmp_path, made)))
    found = {one["environment"]: one["worst"] for one in report.summary["sections"]}
    examples = {
        name: [(report.groups[number]["group_id"], place) for number, place in worst["examples"]]
        for name, (worst,) in found.items()
    }
    assert examples == {"gsm8k": [(made[0].group_id, 1)], "rg_dump": [(made[2].group_id, 0)]}


def test_it_says_what_ran_and_not_where(tmp_path):
    trainer = {"algorithm": {"advantage_estimator": "rloo", "use_kl_loss": True}, "train_batch_size": 16, "seed": 7}
    content = {"attempt": 1, "model": "/home/somebody/models/nano", "host": "secret", "settings": {"trainer": trainer}}
    write_manifest(tmp_path, RUN_ID, content)
    text = build_report(dump_of(tmp_path, [group(0)]))
    (run,) = Report(text).summary["runs"]
    assert run["model"] == "nano"
    assert dict(run["settings"]) == {"algorithm": "rloo", "prompts per step": "16", "KL loss": "yes", "seed": "7"}
    assert "somebody" not in text
    assert "secret" not in text


@settings(max_examples=50)
@given(text=st.text(st.characters(), max_size=80), number=st.floats())
@example(text="</script><script>alert(1)</script><!--", number=math.nan)
@example(text="\u202e\u2028\0$title", number=math.inf)
@example(text="", number=1.7976931348623157e308)
def test_any_text_comes_back_and_none_is_markup(text, number):
    report = Report(page(text, {text: text, "number ": number}, [{text: text, "number ": number}]))
    assert report.groups == [{text: text, "number ": number if math.isfinite(number) else None}]
    shown = report.summary.pop("number ")
    assert report.summary == {text: text}
    if math.isfinite(number) and shown is not None:
        assert shown == pytest.approx(number, rel=1e-9, abs=1e-6)
    assert len(report.scripts) == 3


def test_the_policy_allows_these_scripts_and_no_network(report):
    allowed = set(re.findall(r"'sha256-([^']+)'", report.policy))
    assert allowed == {b64encode(sha256(script.encode()).digest()).decode() for script in report.scripts}
    assert report.policy.startswith("default-src 'none';")
    assert "http" not in report.policy
    assert all(address.startswith(("#", "data:")) for address in report.addresses)


def test_vendored_libraries_have_the_listed_versions_and_their_license(report):
    folder = files("rg_env.analysis.report") / "assets" / "vendor"
    noted = re.findall(r"\| `([\w.]+)` \| \S+ ([\d.]+) \| ISC \| `(\w{64})` \|", (folder / "README.md").read_text())
    assert {name for name, *_ in noted} == {one.name for one in folder.iterdir() if one.name.endswith(".js")}
    for (name, version, digest), script in zip(noted, report.scripts, strict=False):
        code = (folder / name).read_bytes()
        assert sha256(code).hexdigest() == digest
        assert f"v{version} Copyright".encode() in code[:200]
        assert code.decode() in script
        assert "Permission to use, copy, modify, and/or distribute" in script


def test_the_report_in_docs_is_what_the_code_makes_of_the_sample():
    kept = Report((ROOT / "docs" / "sample-report.html").read_text())
    made = Report(build_report(open_run(SAMPLE)))
    anew = "make it anew: rg-env dumps report dumps/sample --out docs/sample-report.html --force"
    assert kept.summary == made.summary, anew
    assert kept.groups == made.groups, anew
    assert kept.scripts == made.scripts, anew


# -- the command


def run(*args):
    return CliRunner().invoke(app, ["dumps", "report", *map(str, args)])


def test_the_command_writes_the_file_and_says_how_big(tmp_path):
    out = tmp_path / "r.html"
    done = run(SAMPLE, "--out", out)
    assert done.exit_code == 0
    assert "MB" in done.stdout
    assert Report(out.read_text()).summary["sections"]
    assert list(tmp_path.iterdir()) == [out]


def test_a_file_that_is_there_is_kept_unless_asked(tmp_path):
    out = tmp_path / "r.html"
    out.write_text("mine")
    refused = run(SAMPLE, "--out", out)
    assert isinstance(refused.exception, DumpError)
    assert "--force" in str(refused.exception)
    assert out.read_text() == "mine"
    assert run(SAMPLE, "--out", out, "--force").exit_code == 0
    assert out.read_text() != "mine"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("no/such/folder", "--out", "r.html"), "no/such/folder"),
        ((SAMPLE, "--out", "r.jsonl"), r"end in \.html"),
        ((SAMPLE, "--out", "no/such/r.html"), "no folder no/such"),
    ],
)
def test_what_a_person_can_mend_is_one_line(args, says):
    error = run(*args).exception
    assert isinstance(error, DumpError)
    assert re.search(says, str(error))
    assert "\n" not in str(error)


def test_of_a_foreign_file_it_says_what_was_skipped(tmp_path):
    path = tmp_path / "foreign.jsonl"
    path.write_text('{"text": "hello"}\n')
    with pytest.raises(DumpError, match=r"no rollout in .*the first of 1 problems: foreign\.jsonl, line 1"):
        build_report(open_run(path))


@pytest.mark.parametrize("name", ["base_score", "outcome", "status"])
def test_a_damaged_ledger_line_is_no_group_of_the_report(name, tmp_path):
    """Whichever columns a reader asks for."""
    path = write_ledger(tmp_path, [group(k, step=k) for k in range(6)])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[2][name] = {"no": "value"}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = Report(build_report(open_run(path)))
    assert [one["step"] for one in report.groups] == [0, 1, 3, 4, 5]
    assert report.summary["sections"][0]["headline"]["groups"] == 5
    assert statistics(open_run(path).scan())["groups"].to_list() == [5]
