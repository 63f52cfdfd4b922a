"""A group decided again: the same under every rule, and each decision that differs is marked where it was made."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from rg_env.analysis.replay import find_group, replay
from rg_env.cli import app
from rg_env.config import LengthPenaltyConfig, RGDumpConfig, ScorerConfig
from rg_env.dump import open_run
from rg_env.errors import DumpError
from rg_env.scoring import Status
from tests.analysis.recorded import dump_of, item, recorded, response
from tests.dump.records import RUN_ID, group


def _config(**changes):
    return RGDumpConfig(scorer=ScorerConfig(timeout=30.0), **changes)


def _right(count):
    return [response(item("chain_sum").entry["answer"])] * count


def _step(result, k, name):
    return next(step for step in result.rollouts[k].steps if step.name == name)


@pytest.mark.parametrize(
    "config",
    [
        _config(),
        _config(length_penalty=LengthPenaltyConfig(kind="dapo", weight=0.5), format_bonus=0.2),
        _config(length_penalty=LengthPenaltyConfig(kind="kimi"), binarize_at=0.5),
        _config(length_penalty=LengthPenaltyConfig(kind="atropos", max_length=32, threshold=0.5)),
        _config(length_penalty=LengthPenaltyConfig(kind="none")),
    ],
)
def test_what_was_recorded_is_decided_again(scorer, tmp_path, config):
    answers = [*_right(4), "no tags", response("-1")]
    groups = [recorded(scorer, "chain_sum", answers, config, 0), recorded(scorer, "chain_sum", _right(5), config, 1)]
    dump = dump_of(tmp_path, groups, config)
    for one in groups:
        result = replay(dump, one.group_id)
        assert result.differences == 0
        assert not result.remarks


def test_the_penalty_is_shown_with_its_numbers(scorer, tmp_path):
    one = recorded(scorer, "chain_sum", _right(4), _config())
    result = replay(dump_of(tmp_path, [one], _config()), one.group_id)
    last = _step(result, 3, "penalty_factor")
    assert "1 − clip((L − 48) / 16, 0, 1); L = 64" in last.why
    assert (last.recorded, last.recomputed) == (0.0, 0.0)
    assert _step(result, 3, "score").why == "1 × 0"


def test_guard_and_format_say_why(scorer, tmp_path):
    texts = [response("__import__('os').system('true')"), "<think>a</think><think>b</think>"]
    one = recorded(scorer, "n_queens", texts, _config())
    result = replay(dump_of(tmp_path, [one], _config()), one.group_id)
    refused = _step(result, 0, "status")
    assert refused.recomputed == Status.REJECTED
    assert "rule for n_queens rejected it" in refused.why
    assert "not called" in _step(result, 1, "status").why
    assert _step(result, 1, "violation").recomputed == "multiple_think"


def test_a_masked_rollout_and_a_reward_set_to_nothing_say_why(scorer, tmp_path):
    config = _config(on_scorer_failure="mask")
    one = recorded(scorer, "chain_sum", _right(5), config)
    result = replay(dump_of(tmp_path, [one], config), one.group_id)
    assert "zero_reward_on_non_stop" in _step(result, 4, "reward").why


def test_differences_are_marked_where_they_are(scorer, tmp_path):
    one = recorded(scorer, "chain_sum", _right(2), _config())
    changed = replace(one.rollouts[1], reward=0.25, answer="17")
    one = replace(one, rollouts=[one.rollouts[0], changed])
    result = replay(dump_of(tmp_path, [one], _config()), one.group_id)
    marked = [(r.repetition, step.name) for r in result.rollouts for step in r.steps if step.differs]
    assert marked == [(1, "answer"), (1, "reward")]
    assert result.differences == 2  # `no_signal` as recorded is that of the rewards as they are now


def test_without_a_manifest_what_needs_settings_is_not_compared(scorer, tmp_path):
    one = recorded(scorer, "chain_sum", _right(4), _config())
    result = replay(dump_of(tmp_path, [one], None), one.group_id, timeout=30.0)
    assert result.differences == 0
    assert not _step(result, 3, "reward").compared
    assert ["default settings" in remark or "length limit" in remark for remark in result.remarks] == [True, True]


def test_settings_that_the_manifest_lacks_are_named(scorer, tmp_path):
    one = recorded(scorer, "chain_sum", _right(1), _config())
    dump = dump_of(tmp_path, [one], _config())
    (path,) = tmp_path.glob("*manifest*")
    path.write_text(path.read_text().replace('"solved_at"', '"solved"').replace('"threshold"', '"free"'))
    result = replay(open_run(tmp_path), one.group_id)
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
        ("alpin", "similar: .*alpine"),
        ("zzz", "there are .*alpha"),
        ("gamma", "text of group .*gamma is missing"),
    ]:
        with pytest.raises(DumpError, match=says) as error:
            find_group(dump, name)
        assert "\n" not in str(error.value)
    with pytest.raises(DumpError, match="does not contain the question"):
        replay(dump, "beta")


def test_a_text_that_would_steer_the_terminal_is_shown_and_not_obeyed(scorer, tmp_path):
    one = recorded(scorer, "chain_sum", [response("\x1b[2J\ud83d\x9b")], _config())
    dump_of(tmp_path, [one], _config())
    done = CliRunner().invoke(app, ["dumps", "replay", str(tmp_path), one.uid])
    assert done.exit_code == 0
    assert "␛[2J<U+D83D><U+009B>" in done.stdout
    assert "\x1b[2J" not in done.stdout


def test_the_command(scorer, tmp_path):
    one = recorded(scorer, "chain_sum", _right(2), _config())
    dump_of(tmp_path, [one], _config())
    done = CliRunner().invoke(app, ["dumps", "replay", str(tmp_path), one.uid])
    assert done.exit_code == 0
    assert "all values as recorded" in done.stdout
    shown = json.loads(CliRunner().invoke(app, ["dumps", "replay", str(tmp_path), one.uid, "--json"]).stdout)
    assert shown["expected"] == item("chain_sum").entry["answer"]
    assert [step["name"] for step in shown["rollouts"][0]["steps"]][:3] == ["violation", "answer", "status"]
