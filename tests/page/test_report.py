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
from rg_env.analysis.stats import measure
from rg_env.base.errors import DumpError
from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, FileKind, open_run, write_manifest
from rg_env.dump.files import batch_name
from rg_env.page import build_report
from rg_env.page.figures import MAX_POINTS
from rg_env.page.page import page
from rg_env.page.report_groups import MAX_TEXT, groups_to_show
from tests.analysis.reports import Report, dump_of, random_groups, rows, said, step_records
from tests.analysis.samples import write_ledger
from tests.dump.records import RUN_ID, group, rollout, unanswered

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "dumps" / "sample"
OTHER_RUN = "20261122-060000-cd34"


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
    return next(section for section in report.summary["sections"] if section["phase"] == phase)


def close(a, b):
    return a == b if a is None or b is None or isinstance(a, str) else math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12)


def test_headline_tasks_and_curves_are_those_of_stats(dump, report):
    assert [section["phase"] for section in report.summary["sections"]] == ["train", "eval"]
    for row in statistics(dump.scan(), "phase").iter_rows(named=True):
        shown = section(report, row["phase"])["headline"]
        assert {"solve_rate_low", "mean_reward", "pass_at_4"} <= shown.keys()
        assert shown.pop("solved_at") == [0.99]
        assert all(close(value, row[name]) for name, value in shown.items())
    tables = [("tasks", statistics(dump.scan(), "task")), ("steps", statistics(dump.scan(), "step"))]
    for name, expected in tables:
        shown = rows(section(report)[name])
        of_train = expected.filter(phase="train").rows(named=True)
        assert len(shown) == len(of_train) > 0
        for row, values in zip(shown, of_train, strict=True):
            assert all(close(value, values["step" if key == "last_step" else key]) for key, value in row.items())


def test_evaluations_are_never_merged_and_have_no_signal_to_lack(tmp_path):
    made = [group(s, [1.0, 1.0], step=s, phase="eval") for s in range(MAX_POINTS + 5)]
    evaluated = section(Report(build_report(dump_of(tmp_path, made))), "eval")
    assert len(evaluated["steps"]["step"]) == MAX_POINTS + 5
    assert evaluated["headline"]["no_signal"] is None


def test_notes_say_what_figures_lack(tmp_path):
    made = [group(0, [0.8, 0.0]), group(1, [rollout(1.0), unanswered(1)]), group(2, [0.5])]
    notes = Report(build_report(dump_of(tmp_path, made))).summary["notes"]
    assert "1 rollout left out of all figures: no response, or unscored." in notes


def test_many_steps_are_put_together_and_every_rollout_still_counts_once(tmp_path):
    steps = MAX_POINTS * 2 + 10
    made = [group(s, [1.0] * (s % 3) + [0.0], step=s * 10) for s in range(steps)]
    numbers = {s * 10: {"policy/grad_norm": float(s), "policy/policy_kl": None, "lr": 1.0} for s in range(steps)}
    dump = dump_of(tmp_path, made, numbers=step_records(numbers))
    report = Report(build_report(dump))
    curve = rows(section(report)["steps"])
    assert len(curve) == math.ceil(steps / 3) <= MAX_POINTS
    assert sum(row["groups"] for row in curve) == steps
    assert (curve[1]["step"], curve[1]["last_step"]) == (30, 50)
    solved = [r.base_score >= 0.99 for g in made[3:6] for r in g.rollouts]
    assert close(curve[1]["solve_rate"], sum(solved) / len(solved))
    trainer = rows(report.summary["trainer"])
    assert {(row["name"], row["run_id"]) for row in trainer} == {("gradient norm", RUN_ID)}
    assert [(row["step"], row["last_step"]) for row in trainer] == [(row["step"], row["last_step"]) for row in curve]
    assert [trainer[1][name] for name in ("value", "low", "high")] == [4.0, 3.0, 5.0]
    part = Report(build_report(dump.where(["step BETWEEN 20 AND 40"])))
    assert [row["value"] for row in rows(part.summary["trainer"])] == [2.0, 3.0, 4.0]


def test_runs_that_differ_in_seeds_alone_have_points_of_the_same_steps(tmp_path):
    for seed, steps in ((1, MAX_POINTS), (2, MAX_POINTS + 1)):
        run_id = f"20261122-06000{seed}-cd34"
        write_manifest(tmp_path, run_id, Attempt.read({"model": "m", "settings": {"trainer": {"seed": seed}}}))
        dump = dump_of(tmp_path, [group(s, step=s, run_id=run_id) for s in range(steps)], run_id=run_id)
    shorter, longer = (rows(each["steps"]) for each in Report(build_report(dump)).summary["sections"])
    points = [[(row["step"], row["last_step"]) for row in curve] for curve in (shorter, longer)]
    assert points[0] == points[1][:-1] and points[0][0] == (0, 1)


def test_heat_trouble_and_lengths_agree_with_a_plain_recount(groups, report):
    of_cell, of_step, lengths = defaultdict(list), defaultdict(list), defaultdict(list)
    for g in groups:
        for r in g.rollouts if g.phase == "train" else ():
            is_right = r.base_score >= 0.99
            of_cell[g.task, g.step].append(is_right)
            of_step[g.step].append(r.violation or (None if r.status == "ok" else f"scorer: {r.status}"))
            lengths["right" if is_right else "wrong"].append(r.response_tokens)
    shown = section(report)
    heat = {(row["task"], row["step"]): row["solve_rate"] for row in rows(shown["heat"])}
    assert heat.keys() == of_cell.keys()
    assert all(close(heat[key], sum(values) / len(values)) for key, values in of_cell.items())
    kinds = {"violation": "", "status": "scorer: "}
    shares = {(row["step"], kinds[row["kind"]] + row["value"]): row["share"] for row in rows(shown["trouble"])}
    assert shares.keys() == {(step, kind) for step, kinds in of_step.items() for kind in kinds if kind}
    assert all(close(shares[step, what], of_step[step].count(what) / len(of_step[step])) for step, what in shares)
    for kind, values in lengths.items():
        for bar in rows(shown["lengths"]):
            inside = sum(bar["from"] <= value < bar["to"] for value in values)
            assert close(bar[kind] or 0.0, inside / len(values))


def test_the_browser_has_every_group_in_order_with_all_its_numbers_and_texts(groups, report):
    order = [(shown["phase"] != "train", shown["step"]) for shown in report.groups]
    assert order == sorted(order)
    of_id = {shown["group_id"]: shown for shown in report.groups}
    assert of_id.keys() == {g.group_id for g in groups}
    for g in groups:
        shown = of_id[g.group_id]
        assert (shown["task"], shown["step"], shown["phase"], shown["outcome"]) == (g.task, g.step, g.phase, g.outcome)
        assert shown["expected"] == "1"
        assert shown["prompt"] == list(g.rollouts[0].conversation[:-1])
        for row, r in zip(shown["rollouts"], g.rollouts, strict=True):
            assert row["text"] == r.conversation[-1]["content"]
            for name in ("score", "reward", "base_score", "raw_score", "violation", "status", "answer", "detail"):
                assert row[name] == getattr(r, name), name


def test_a_sample_is_even_over_the_steps_and_the_same_every_time(dump, groups):
    text = build_report(dump, max_groups=30)
    assert text == build_report(dump, max_groups=30)
    report = Report(text)
    assert len(report.groups) == 30
    train = [shown["step"] for shown in report.groups if shown["phase"] == "train"]
    assert {sum(low < step <= low + 10 for step in train) for low in (0, 10, 20)} == {9}
    assert any("30 of 120 groups" in note for note in report.summary["notes"])
    assert section(report)["headline"]["groups"] == sum(g.phase == "train" for g in groups)


def test_groups_without_text_are_there_with_the_reason(tmp_path):
    made = [group(0, [1.0, 0.0]), group(1, [0.5, 0.0])]
    report = Report(build_report(dump_of(tmp_path, made, RGDumpConfig(dump_other_rollouts=False))))
    kept, left = sorted(report.groups, key=lambda shown: shown["item"])
    assert "prompt" in kept
    assert "prompt" not in left
    assert left["text_reason"] == "dump_other_rollouts_off"
    assert [row["base_score"] for row in left["rollouts"]] == [0.5, 0.0]
    assert any("all 2 groups, 1 of them with their text" in note for note in report.summary["notes"])


def test_texts_are_thinned_out_evenly_where_they_would_outgrow_the_file(tmp_path):
    made = [group(k, [rollout(1.0, conversation=said("?", "x" * 10_000))], step=k) for k in range(64)]
    dump = dump_of(tmp_path, made)
    shown, stride = groups_to_show(dump, measure(dump, to_match=True), 64, budget=200_000)
    assert len(shown) == 64
    assert stride == 4
    assert [number for number, one in enumerate(shown) if "prompt" in one] == list(range(0, 64, 4))


def test_of_a_long_text_both_ends_are_kept_and_said(tmp_path):
    text = "<think>" + "a" * 1_000_000 + "</think><answer>1</answer>"
    report = Report(build_report(dump_of(tmp_path, [group(0, [rollout(1.0, conversation=said("?", text))])])))
    head, left_out, tail = report.groups[0]["rollouts"][0]["text"]
    assert head + "a" * left_out + tail == text
    assert len(head) + len(tail) == MAX_TEXT
    assert any("(1 of them)" in note for note in report.summary["notes"])


def test_conditions_decide_title_runs_and_groups(tmp_path):
    dump_of(tmp_path, [group(0, [1.0, 0.0], step=4)], numbers=step_records({4: {"policy/final_loss": 0.5}}))
    numbers = step_records({4: {"policy/final_loss": 0.25}}, OTHER_RUN)
    dump = dump_of(tmp_path, [group(1, [1.0], run_id=OTHER_RUN, step=4)], run_id=OTHER_RUN, numbers=numbers)
    both = Report(build_report(dump))
    assert both.title == "2 runs"
    assert both.summary["trainer"]["value"] == [0.5, 0.25]
    condition = f"run_id = '{RUN_ID}' AND base_score = 1"
    out = tmp_path / "r.html"
    assert run(tmp_path, "--out", out, "--where", condition).exit_code == 0
    report = Report(out.read_text())
    assert report.title == f"Run {RUN_ID}"
    assert [run["run_id"] for run in report.summary["runs"]] == [RUN_ID]
    assert [section["run_id"] for section in report.summary["sections"]] == [RUN_ID]
    assert report.summary["trainer"]["value"] == [0.5]
    assert report.summary["notes"][0] == f"Only rollouts with {condition}."
    (shown,) = report.groups
    assert [(row["base_score"], row["text"][:8]) for row in shown["rollouts"]] == [(1.0, "<think>0")]


def test_a_renamed_file_with_the_lines_of_two_runs_has_both(tmp_path):
    path = write_ledger(tmp_path, [group(0), group(1, run_id=OTHER_RUN)])
    report = Report(build_report(open_run(path.rename(tmp_path / batch_name(FileKind.LEDGER, "mine", 0)))))
    assert {run["run_id"] for run in report.summary["runs"]} == {RUN_ID, OTHER_RUN}
    assert {section["run_id"] for section in report.summary["sections"]} == {RUN_ID, OTHER_RUN}


def test_it_says_what_ran_and_not_where(tmp_path):
    trainer = {"algorithm": {"advantage_estimator": "rloo", "use_kl_loss": True}, "train_batch_size": 16, "seed": 7}
    content = {"attempt": 1, "model": "/home/somebody/models/nano", "host": "secret", "settings": {"trainer": trainer}}
    write_manifest(tmp_path, RUN_ID, Attempt.read(content))
    text = build_report(dump_of(tmp_path, [group(0)]))
    (run,) = Report(text).summary["runs"]
    assert run["model"] == "nano"
    assert dict(run["settings"]) == {"algorithm": "rloo", "prompts per step": "16", "KL loss": "yes", "seed": "7"}
    assert "somebody" not in text
    assert "secret" not in text


@settings(max_examples=20)
@given(text=st.text(st.characters(), max_size=80), number=st.floats())
@example(text="</script><script>alert(1)</script><!--", number=math.nan)
@example(text="\u202e\u2028\0$title", number=math.inf)
@example(text="", number=1.7976931348623157e308)
def test_any_text_comes_back_and_none_is_markup(text, number):
    report = Report(page({"title": text, text: text, "number ": number}, [{text: text, "number ": number}]))
    assert report.groups == [{text: text, "number ": number if math.isfinite(number) else None}]
    shown = report.summary.pop("number ")
    assert report.summary == {"title": text, text: text}
    if math.isfinite(number) and shown is not None:
        assert shown == pytest.approx(number, rel=1e-6)
    assert len(report.scripts) == 3


def test_the_policy_allows_these_scripts_and_no_network(report):
    allowed = set(re.findall(r"'sha256-([^']+)'", report.policy))
    assert allowed == {b64encode(sha256(script.encode()).digest()).decode() for script in report.scripts}
    assert report.policy.startswith("default-src 'none';")
    assert "http" not in report.policy
    assert all(address.startswith(("#", "data:")) for address in report.addresses)


def test_vendored_libraries_have_the_listed_versions_and_their_license(report):
    folder = files("rg_env.page") / "assets" / "vendor"
    noted = re.findall(r"\| `([\w.]+)` \| \S+ ([\d.]+) \| ISC \| `(\w{64})` \|", (folder / "README.md").read_text())
    assert {name for name, *_ in noted} == {file.name for file in folder.iterdir() if file.name.endswith(".js")}
    for (name, version, digest), script in zip(noted, report.scripts, strict=False):
        code = (folder / name).read_bytes()
        assert sha256(code).hexdigest() == digest
        assert f"v{version} Copyright".encode() in code[:200]
        assert code.decode() in script
        assert "Permission to use, copy, modify, and/or distribute" in script


# -- the command


def run(*args):
    return CliRunner().invoke(app, ["dumps", "report", *map(str, args)])


def test_the_command_writes_one_file_and_replaces_none_unless_asked(tmp_path):
    out = tmp_path / "r.html"
    done = run(SAMPLE, "--out", out)
    assert done.exit_code == 0
    assert "MB" in done.stdout
    assert Report(out.read_text()).summary["sections"]
    assert list(tmp_path.iterdir()) == [out]
    out.write_text("mine")
    assert "--force" in str(run(SAMPLE, "--out", out).exception)
    assert out.read_text() == "mine"
    assert run(SAMPLE, "--out", out, "--force").exit_code == 0
    assert out.read_text() != "mine"


def test_of_a_foreign_file_it_says_what_was_skipped(tmp_path):
    path = tmp_path / batch_name(FileKind.LEDGER, "foreign", 0)
    path.write_text('{"text": "hello"}\n')
    with pytest.raises(
        DumpError, match=r"no rollout in .*the first of 1 corrupt lines: .*_ledger_foreign_0000\.jsonl, line 1"
    ):
        build_report(open_run(path))


def test_damaged_ledger_lines_are_no_groups_of_the_report_and_said(tmp_path):
    path = write_ledger(tmp_path, [group(k, step=k) for k in range(60)])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line, name in zip(lines[2:], 8 * ["base_score", "outcome", "status"], strict=False):
        line[name] = {"no": "value"}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = Report(build_report(open_run(path)))
    left = [0, 1, *range(26, 60)]
    assert [shown["step"] for shown in report.groups] == left
    assert section(report)["headline"]["groups"] == len(left)
    assert statistics(open_run(path).scan())["groups"].to_list() == [len(left)]
    notes = report.summary["notes"]
    assert sum(note.endswith("; skipped.") for note in notes) == 3
    assert "… and 21 more: 24 corrupt lines were skipped; `rg-env dumps validate` lists them." in notes


def test_open_hands_the_file_to_a_browser_or_says_that_there_is_none(dump, tmp_path, monkeypatch):
    opened = []
    for is_there in (True, False):
        monkeypatch.setattr("webbrowser.open", lambda address, is_there=is_there: opened.append(address) or is_there)
        out = tmp_path / f"{is_there}.html"
        done = CliRunner().invoke(
            app, ["dumps", "report", str(dump.runs[0].files[0].path.parent), "--out", str(out), "--open"]
        )
        assert done.exit_code == 0
        assert opened[-1] == out.as_uri()
        assert ("no browser can be started here" in done.stderr) is not is_there
