"""Today's scorer over what was recorded: nothing changes where nothing has changed, and each change is counted."""

from __future__ import annotations

import json
import math
import re

import msgspec
import pytest
from typer.testing import CliRunner

from rg_env.analysis.rescore import has_changed, question_of, rescore
from rg_env.base.errors import ConfigError, DumpError
from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, open_run, write_manifest
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.scoring import Status, Violation
from rg_env.tasks import Item
from tests.analysis.recorded import dump_of, item, recorded, response
from tests.dump.records import RUN_ID, group

CONFIG = RGDumpConfig()
CONFIG.scorer.timeout = 30.0
ONE = ["--workers", "1"]


def _edited(group, k, **changes):
    rollouts = list(group.rollouts)
    rollouts[k] = msgspec.structs.replace(rollouts[k], **changes)
    return msgspec.structs.replace(group, rollouts=rollouts)


@pytest.fixture
def groups(scorer):
    right = [response(item("chain_sum").entry["answer"]), response("-1"), "nothing", response("")]
    attack = [response("zorp(1)"), response("[[0]]")]
    return [recorded(scorer, "chain_sum", right, CONFIG, 0), recorded(scorer, "n_queens", attack, CONFIG, 1)]


def test_nothing_changes_where_nothing_has_changed(groups, tmp_path):
    seen = []
    dump = dump_of(tmp_path, groups, CONFIG)
    result = rescore(dump, workers=1, each=lambda group, scores: seen.append((group, scores)))
    assert result.changed == 0
    assert [group for group, _ in seen] == list(dump.groups())
    assert not any(has_changed(*pair) for group, scores in seen for pair in zip(group.rollouts, scores, strict=True))
    assert sum(task.rollouts for task in result.tasks.values()) == 6


def test_items_of_a_level_are_judged_with_the_options_of_their_level(scorer, tmp_path):
    rows = ReasoningGymDataset({"chain_sum": {"config": {"min_digits": 1}}}, size=4, complexity="random")
    items = [Item.from_extra_info(rows.row(k)["extra_info"]) for k in range(4)]
    assert len({one.config_json for one in items}) > 1
    made = [
        recorded(scorer, "chain_sum", [response(one.entry["answer"]), response("-1")], CONFIG, k, one)
        for k, one in enumerate(items)
    ]
    assert all(g.level and g.rollouts[0].base_score == 1.0 for g in made)
    dump = dump_of(tmp_path, made, CONFIG)
    assert rescore(dump, workers=1).changed == 0
    for g, one in zip(dump.groups(), items, strict=True):
        _, options = question_of(g)
        assert options == json.loads(one.config_json)
        assert json.loads(g.level).keys() and g.complexity == one.complexity


def test_every_kind_of_change_is_counted_and_named(groups, tmp_path):
    sums, queens = groups
    sums = _edited(sums, 0, raw_score=0.5, base_score=0.5, tagged_score=0.5)
    sums = _edited(sums, 1, raw_score=1.0, tagged_score=0.0, base_score=1.0)
    sums = _edited(sums, 2, violation=Violation.UNCLOSED_THINK)
    queens = _edited(queens, 0, status=Status.TIMEOUT)
    result = rescore(dump_of(tmp_path, [sums, queens], CONFIG), workers=1)
    changes = result.tasks["chain_sum"]
    assert (changes.raised, changes.lowered, changes.changed) == (1, 1, 3)
    assert changes.examples == [sums.group_id]
    assert result.changed == 4


def test_outcomes_are_judged_by_the_runs_own_threshold(scorer, tmp_path):
    strict = RGDumpConfig(solved_at=0.0)
    strict.scorer.timeout = 30.0
    one = recorded(scorer, "chain_sum", [response("-1")], strict)  # all_failed, by the default threshold
    result = rescore(dump_of(tmp_path, [one], strict), workers=1)
    assert (result.changed, result.tasks["chain_sum"].outcomes) == (0, 1)


@pytest.mark.parametrize(
    ("setting", "text"),
    [({"prefilled_think": True}, "so</think><answer>{}</answer>"), ({"format": "lenient"}, "<ANSWER>{}</ANSWER>")],
)
def test_prompt_and_format_are_known_from_the_manifest(setting, text, scorer, tmp_path):
    config = RGDumpConfig(**setting)
    config.scorer.timeout = 30.0
    group = recorded(scorer, "chain_sum", [text.format(item("chain_sum").entry["answer"])], config)
    assert group.rollouts[0].base_score == 1.0
    assert rescore(dump_of(tmp_path / "a", [group], config), workers=1).changed == 0
    unknown = rescore(dump_of(tmp_path / "b", [group], None), workers=1, timeout=30.0)
    assert (unknown.changed, unknown.without_settings) == (1, 1)


def test_the_sample_in_the_repository_is_scored_as_it_was():
    result = rescore(open_run("dumps/sample"), workers=1, timeout=30.0)
    assert (result.changed, set(result.tasks)) == (0, {"leg_counting", "spell_backward"})


def test_a_dump_of_others_is_scored_where_it_has_the_question(scorer, tmp_path):
    """An import knows a score at most: what it lacks is no change, and what had no score gets one."""
    answer = item("chain_sum").entry["answer"]
    texts = [response(answer), response("-1"), response(answer), f"so</think> <answer>{answer}</answer>"]
    made = recorded(scorer, "chain_sum", texts, CONFIG)
    entry = json.loads(made.entry)
    del entry["metadata"]["source_dataset"]
    rollouts = [msgspec.structs.replace(rollout, raw_score=None, tagged_score=None) for rollout in made.rollouts]
    rollouts[2] = msgspec.structs.replace(
        rollouts[2], status=Status.UNSCORED, base_score=math.nan, score=math.nan, reward=math.nan
    )
    rollouts[3] = msgspec.structs.replace(rollouts[3], violation="", base_score=1.0)  # its prompt had opened the block
    made = msgspec.structs.replace(made, environment="imported", entry=json.dumps(entry), rollouts=rollouts)
    dump_of(tmp_path, [made, group(1, entry="{}")], None)
    write_manifest(tmp_path, RUN_ID, Attempt(attempt=1, imported={"from": "trl"}))
    result = rescore(open_run(tmp_path), workers=1, timeout=30.0)
    changes = result.tasks["chain_sum"]
    assert (changes.rollouts, changes.changed, changes.newly_scored, changes.lowered) == (4, 1, 1, 0)
    assert (result.without_question, result.without_settings, result.lenient) == (1, 1, 1)
    done = CliRunner().invoke(app, ["dumps", "rescore", str(tmp_path), *ONE])
    assert "1 group scored with the current default settings, 1 of them in the lenient format" in done.stdout


def test_lines_without_questions_cannot_be_scored_again(tmp_path):
    dump = dump_of(tmp_path, [group(0)], None)
    with pytest.raises(DumpError, match="do not contain their questions"):
        rescore(dump, workers=1)


def test_the_command(groups, tmp_path):
    sums = _edited(groups[0], 1, raw_score=1.0, tagged_score=0.0, base_score=1.0)
    dump_of(tmp_path / "dump", [sums], CONFIG)
    out = tmp_path / "out.jsonl"
    done = CliRunner().invoke(app, ["dumps", "rescore", str(tmp_path / "dump"), "--out", str(out), "--json", *ONE])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["tasks"]["chain_sum"]["lowered"] == 1
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["changed"] for line in lines] == [False, True, False, False]
    assert (lines[1]["old"]["base_score"], lines[1]["new"]["base_score"]) == (1.0, 0.0)
    assert {path.name for path in tmp_path.iterdir()} == {"dump", "out.jsonl"}

    shown = CliRunner().invoke(app, ["dumps", "rescore", str(tmp_path / "dump"), *ONE])
    assert "4 rollouts scored again, 1 changed" in shown.stdout
    assert sums.group_id in shown.stdout


@pytest.mark.parametrize("setting", ["imports", "reward", "experiment_class"])
def test_nothing_that_a_dump_names_is_imported(setting, scorer, tmp_path, monkeypatch):
    """A module beside the lines, which the manifest names as a module of tasks, is code that came with data."""
    folder = tmp_path / "dumps" / "sample"
    named = ["dumps.sample.evil"] if setting == "imports" else "dumps.sample.evil.run"
    config = RGDumpConfig(**{setting: named})
    group = msgspec.structs.replace(recorded(scorer, "chain_sum", [response("1")], CONFIG), task="mine", item_id="mine")
    dump_of(folder, [group], config)
    (folder / "evil.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    for command in (["rescore", "--workers", "1"], ["stats"], ["show", "--plain"], ["validate"], ["signs"]):
        done = CliRunner().invoke(app, ["dumps", command[0], "dumps/sample", *command[1:]])
        if command[0] == "rescore":
            assert isinstance(done.exception, ConfigError)
            says = "cannot score mine: .*the run imported dumps.sample.evil.*: add --imports MODULE"
            assert re.search(says, str(done.exception))
    assert not (tmp_path / "ran").exists()
