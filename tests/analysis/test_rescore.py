"""Today's scorer over what was recorded: nothing changes where nothing has changed, and each change is counted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from rg_env.analysis.rescore import find_group, question_of, rescore, rescore_group
from rg_env.cli import app
from rg_env.config import LengthPenaltyConfig, RGDumpConfig, ScorerConfig
from rg_env.dataset import ReasoningGymDataset
from rg_env.dump import open_run
from rg_env.errors import DumpError
from rg_env.scoring import Status, Violation
from rg_env.tasks import Item
from tests.analysis.recorded import dump_of, item, recorded, response
from tests.dump.records import RUN_ID, group

CONFIG = RGDumpConfig()
CONFIG.scorer.timeout = 30.0
ONE = ["--workers", "1"]


def _edited(group, k, **changes):
    rollouts = list(group.rollouts)
    rollouts[k] = replace(rollouts[k], **changes)
    return replace(group, rollouts=rollouts)


@pytest.fixture
def groups(scorer):
    right = [response(item("chain_sum").entry["answer"]), response("-1"), "nothing", response("")]
    attack = [response("__import__('os').system('true')"), response("[[0]]")]
    return [recorded(scorer, "chain_sum", right, CONFIG, 0), recorded(scorer, "n_queens", attack, CONFIG, 1)]


def test_nothing_changes_where_nothing_has_changed(groups, tmp_path):
    seen = []
    dump = dump_of(tmp_path, groups, CONFIG)
    result = rescore(dump, workers=1, each=lambda old, new: seen.append((old, new)))
    assert result.changed == 0
    assert all([r.reward for r in old.rollouts] == [r.reward for r in new.rollouts] for old, new in seen)
    assert [old for old, _ in seen] == list(dump.groups())
    assert sum(task.rollouts for task in result.tasks.values()) == 6


def test_items_of_a_level_are_judged_with_the_options_of_their_level(scorer, tmp_path):
    rows = ReasoningGymDataset({"chain_sum": {"config": {"min_digits": 1}}}, size=4, complexity_mode="random")
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
        assert rescore_group(dump, g.group_id).differences == 0


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


def test_a_prompt_that_opened_the_think_block_is_known_from_the_manifest(scorer, tmp_path):
    prefilled = RGDumpConfig(prefilled_think=True)
    prefilled.scorer.timeout = 30.0
    text = f"so</think><answer>{item('chain_sum').entry['answer']}</answer>"
    group = recorded(scorer, "chain_sum", [text], prefilled)
    assert group.rollouts[0].base_score == 1.0
    assert rescore(dump_of(tmp_path / "a", [group], prefilled), workers=1).changed == 0
    unknown = rescore(dump_of(tmp_path / "b", [group], None), workers=1, timeout=30.0)
    assert (unknown.changed, unknown.without_settings) == (1, 1)


def test_the_lenient_format_is_known_from_the_manifest(scorer, tmp_path):
    lenient = RGDumpConfig(format="lenient")
    lenient.scorer.timeout = 30.0
    text = f"<ANSWER>{item('chain_sum').entry['answer']}</ANSWER>"
    group = recorded(scorer, "chain_sum", [text], lenient)
    assert (group.rollouts[0].base_score, group.rollouts[0].violation) == (1.0, None)
    assert rescore(dump_of(tmp_path / "a", [group], lenient), workers=1).changed == 0
    strict = rescore(dump_of(tmp_path / "b", [group], None), workers=1, timeout=30.0)
    assert strict.changed == 1


def test_the_sample_in_the_repository_is_scored_as_it_was():
    result = rescore(open_run("dumps/sample"), workers=1, timeout=30.0)
    assert (result.changed, set(result.tasks)) == (0, {"leg_counting", "spell_backward"})


def test_atropos_files_cannot_be_scored_again(tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_text('{"item_id": "gcd", "rollouts": [{"conversation": [], "score": 1}]}\n')
    with pytest.raises(DumpError, match="do not contain their questions, as in files written by Atropos"):
        rescore(open_run(path), workers=1)


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


# -- one group


def _config(**changes):
    return RGDumpConfig(scorer=ScorerConfig(timeout=30.0), **changes)


def _right(count):
    return [response(item("chain_sum").entry["answer"])] * count


def _value(result, k, name):
    return next(value for value in result.rollouts[k] if value.name == name)


@pytest.mark.parametrize(
    "config",
    [
        _config(),
        _config(length_penalty=LengthPenaltyConfig(kind="dapo", weight=0.5), format_bonus=0.2),
        _config(length_penalty=LengthPenaltyConfig(kind="kimi")),
        _config(length_penalty=LengthPenaltyConfig(kind="atropos", max_length=32, threshold=0.5)),
        _config(length_penalty=LengthPenaltyConfig(kind="none")),
    ],
)
def test_what_was_recorded_is_decided_again(scorer, tmp_path, config):
    answers = [*_right(4), "no tags", response("-1")]
    groups = [recorded(scorer, "chain_sum", answers, config, 0), recorded(scorer, "chain_sum", _right(5), config, 1)]
    dump = dump_of(tmp_path, groups, config)
    for one in groups:
        result = rescore_group(dump, one.group_id)
        assert result.differences == 0
        assert not result.remarks


def test_differences_are_marked_where_they_are(scorer, tmp_path):
    one = recorded(scorer, "chain_sum", _right(2), _config())
    changed = replace(one.rollouts[1], reward=0.25, answer="17")
    one = replace(one, rollouts=[one.rollouts[0], changed])
    result = rescore_group(dump_of(tmp_path, [one], _config()), one.group_id)
    marked = [(k, value.name) for k, values in enumerate(result.rollouts) for value in values if value.differs]
    assert marked == [(1, "answer"), (1, "reward")]
    assert result.differences == 2  # `no_signal` as recorded is that of the rewards as they are now


def test_without_a_manifest_what_needs_settings_is_not_compared(scorer, tmp_path):
    one = recorded(scorer, "chain_sum", _right(4), _config())
    result = rescore_group(dump_of(tmp_path, [one], None), one.group_id, timeout=30.0)
    assert result.differences == 0
    assert not _value(result, 3, "reward").compared
    assert ["default settings" in remark or "length limit" in remark for remark in result.remarks] == [True, True]


def test_settings_that_the_manifest_lacks_are_named(scorer, tmp_path):
    one = recorded(scorer, "chain_sum", _right(1), _config())
    dump = dump_of(tmp_path, [one], _config())
    (path,) = tmp_path.glob("*manifest*")
    path.write_text(path.read_text().replace('"solved_at"', '"solved"').replace('"threshold"', '"free"'))
    result = rescore_group(open_run(tmp_path), one.group_id)
    assert dump.runs
    assert "rg_dump.solved_at" in result.remarks[0]
    assert "rg_dump.length_penalty.threshold" in result.remarks[0]


def test_groups_are_found_by_what_is_theirs_alone(tmp_path):
    groups = [group(uid, [score]) for uid, score in (("alpha", 1.0), ("alpine", 1.0), ("beta", 0.0))]
    unkept = group("gamma", [1.0, 0.5], phase="eval")
    dump_of(tmp_path, [*groups, unkept], None)
    for path in tmp_path.glob("*eval*"):
        path.unlink()
    dump = open_run(tmp_path)
    assert find_group(dump, "beta").uid == "beta"
    assert find_group(dump, groups[0].group_id).uid == "alpha"
    for name, says in [
        (RUN_ID, "4 groups match"),
        ("zzz", "0 groups match 'zzz'; there are .*alpha"),
        ("gamma", "text of group .*gamma is missing"),
    ]:
        with pytest.raises(DumpError, match=says) as error:
            find_group(dump, name)
        assert "\n" not in str(error.value)
    with pytest.raises(DumpError, match="does not contain the question"):
        rescore_group(dump, "beta")


def test_the_command_for_one_group(scorer, tmp_path):
    one = recorded(scorer, "chain_sum", [*_right(1), response("\x1b[2J\ud83d\x9b")], _config())
    dump_of(tmp_path, [one], _config())

    def shown(*args):
        return CliRunner().invoke(app, ["dumps", "rescore", str(tmp_path), "--group", one.uid, *args])

    done = shown()
    assert done.exit_code == 0
    assert "all values as recorded" in done.stdout
    assert "␛[2J<U+D83D><U+009B>" in done.stdout
    assert "\x1b[2J" not in done.stdout
    found = json.loads(shown("--json").stdout)
    assert found["expected"] == item("chain_sum").entry["answer"]
    names = [value["name"] for value in found["rollouts"][0]["values"]]
    assert (names[0], names[-1]) == ("violation", "reward")
