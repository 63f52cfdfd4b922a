"""What the real programs wrote (`make_files`) becomes a dump that says what it lacks; a bad one costs itself only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.dump import open_run
from rg_env.dump.validate import validate
from rg_env.errors import RGEnvError

FILES = Path(__file__).parent / "files"
ATIF = {
    "schema_version": "ATIF-v1.6",
    "agent": {"name": "a", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "What?"},
        {
            "step_id": 2,
            "source": "agent",
            "message": [{"type": "text", "text": "I look."}, {"type": "image", "source": {}}],
            "reasoning_content": "Where?",
            "tool_calls": [{"function_name": "ls", "arguments": {"path": "/"}}],
            "observation": {"results": [{"source_call_id": "1", "content": "bin"}]},
        },
        {"step_id": 3, "source": "agent", "message": "Done."},
    ],
    "final_metrics": {"total_completion_tokens": 12},
}


def dumps(*args):
    done = CliRunner().invoke(app, ["dumps", *map(str, args)])
    if isinstance(done.exception, RGEnvError):
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.output.split())


def imported(name, source, out):
    """The groups, the rewards of each, and what was said."""
    code, said = dumps("import", name, source, "--out", out)
    assert code == 0, said
    assert validate(out).good
    assert dumps("stats", out)[0] == 0
    groups = list(open_run(out).groups())
    return groups, [[rollout.reward for rollout in group.rollouts] for group in groups], said


def test_skyrl(tmp_path):
    groups, rewards, said = imported("skyrl", FILES / "skyrl", tmp_path / "out")
    assert said == (
        "4 rollouts in 2 groups; no raw and tagged scores, no policy version, no length in tokens; "
        "reward of 1 unknown: status unscored"
    )
    assert rewards[0] == [1.0, 0.0] and rewards[1][0] == 0.5 and groups[1].rollouts[1].status == "unscored"
    assert groups[1].rollouts[1].truncated
    (first, second) = groups
    assert (first.task, first.item, first.step, first.phase) == (
        "spell_backward",
        "spell_backward-eval-42-0",
        4,
        "eval",
    )
    assert first.expected_answer == "cal" and second.expected_answer == "enuer"
    code, said = dumps("rescore", tmp_path / "out", "--json")
    assert code == 1, said  # "b" was paid 1, "c" .5
    assert json.loads(said)["tasks"]["spell_backward"]["lowered"] == 2


def test_trl(tmp_path):
    groups, rewards, said = imported("trl", FILES / "trl", tmp_path / "out")
    assert said == (
        "4 rollouts in 1 group; no reference answer, no raw and tagged scores, no policy version, no stop reason, "
        "no length in tokens; 1 group formed by equal prompts"
    )
    (group,) = groups
    assert (group.step, group.phase, group.task, len(rewards[0])) == (1, "train", "imported", 4)
    assert [message["role"] for message in group.rollouts[0].conversation] == ["system", "user", "assistant"]


def test_verl(tmp_path):
    groups, rewards, said = imported("verl", FILES / "verl", tmp_path / "out")
    assert rewards == [[1.0, 0.0], [1.0, 1.0]]
    assert [(group.uid, group.step, group.outcome, group.expected_answer) for group in groups] == [
        ("q7", 3, "mixed", "2"),
        ("q8", 3, "all_correct", "4"),
    ]
    assert "equal prompts" not in said


def test_verifiers(tmp_path):
    groups, rewards, said = imported("verifiers", FILES / "verifiers", tmp_path / "out")
    assert said == "3 rollouts in 2 groups; no raw and tagged scores; reward of 1 unknown: status unscored"
    first, second = groups
    assert (first.uid, second.uid, first.item, first.task) == ("g", "sum-1", "sum-1", "sums")
    assert (first.phase, first.step, first.expected_answer) == ("train", 7, "2")
    assert rewards[0] == [1.5, 0.0] and second.rollouts[0].status == "unscored"
    several = first.rollouts[1]
    assert (several.turns, several.response_tokens, several.stop_reason, several.truncated) == (2, 10, "length", True)
    assert several.policy_version == "6-7"
    assert [message["content"] for message in several.conversation] == [
        "What is 1+1?",
        '<think>Hm.</think>\n[tool_call {"id": "c", "type": "function", "name": "add", "arguments": "{\\"a\\": 1}"}]',
        "2",
        "It is 2",
    ]


def test_the_same_questions_of_two_programs_are_compared(tmp_path):
    (tmp_path / "outputs").mkdir()
    with (tmp_path / "outputs" / "traces.jsonl").open("w") as file:
        for line in (FILES / "skyrl" / "global_step_4_evals" / "spell_backward.jsonl").read_text().splitlines():
            info = json.loads(line)["env_extras"]["extra_info"]
            nodes = [{"message": {"role": "assistant", "content": "x"}, "sampled": True}]
            task = {"data": {"id": info["item"], "item": json.dumps(info)}}
            trace = {"version": 1, "task": task, "nodes": nodes, "ok": True, "rewards": {"right": {"score": 0.0}}}
            file.write(json.dumps({"traces": [trace]}) + "\n")
    imported("skyrl", FILES / "skyrl", tmp_path / "skyrl")
    imported("verifiers", tmp_path / "outputs", tmp_path / "verifiers")
    code, said = dumps("stats", tmp_path / "skyrl", "--against", tmp_path / "verifiers", "--json")
    assert code == 0, said
    compared = json.loads(said)
    assert (compared["questions_this"], compared["questions_other"], compared["questions_shared"]) == (2, 2, 2)
    assert [(flip["item"], flip["this"], flip["other"]) for flip in compared["flips"]] == [
        ("spell_backward-eval-42-0", 0.5, 0.0)
    ]


def test_a_trajectory_of_another_agent(tmp_path):
    (tmp_path / "jobs" / "1").mkdir(parents=True)
    (tmp_path / "jobs" / "1" / "trajectory.json").write_text(json.dumps(ATIF, indent=2))
    (tmp_path / "jobs" / "more.jsonl").write_text(json.dumps(ATIF | {"extra": {"reward": 0.5}}))
    (group,), _, said = imported("atif", tmp_path / "jobs", tmp_path / "out")
    assert "2 rollouts in 1 group;" in said and "reward of 1 unknown: status unscored; 1 group formed by" in said
    first, second = group.rollouts
    assert (first.status, second.status, second.score, first.turns) == ("unscored", "ok", 0.5, 2)
    assert first.response_tokens == 12
    assert [message["content"] for message in first.conversation] == [
        "What?",
        '<think>Where?</think>\nI look.\n[image]\n[tool_call {"function_name": "ls", "arguments": {"path": "/"}}]',
        "bin",
        "Done.",
    ]


DEEP = "[" * 100_000
NAMES = {"trl": "completions_1.parquet", "verifiers": "traces.jsonl"}
BAD = {
    "another version": (
        "atif",
        json.dumps(ATIF | {"schema_version": "ATIF-v2.0"}),
        "version ATIF-v2.0: ATIF-v1 is read",
    ),
    "another format": ("verl", json.dumps(ATIF), "has no `input`"),
    "an array": ("skyrl", "[]", "not an object"),
    "torn": ("atif", json.dumps(ATIF)[:-20], "not JSON"),
    "deep": ("verl", DEEP, "not JSON"),
    "bytes": ("verl", "\0\x1b[2J", "not JSON"),
    "empty": ("skyrl", "", "has no rollout of SkyRL"),
    "no agent": ("atif", json.dumps(ATIF | {"steps": ATIF["steps"][:1]}), "has no step of the agent"),
    "a run id that is a path": (
        "atif",
        json.dumps(ATIF | {"extra": {"rl": {"group": {"run_id": "../x"}, "rollout": {}, "roles": []}}}),
        "the values of rg_env's record do not fit",
    ),
    "a later trace": ("verifiers", '{"traces": [{"version": 2}]}', "trace of version 2: 1 is read"),
    "a circle": ("verifiers", '{"traces": [{"version": 1, "nodes": [{"parent": 0}]}]}', "are no graph"),
    "no parquet": ("trl", "PAR1", "is not a whole parquet file"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_source_without_a_rollout_is_one_line_and_nothing_is_written(case, tmp_path):
    name, text, why = BAD[case]
    path = tmp_path / NAMES.get(name, "a.jsonl")
    path.write_text(text)
    code, said = dumps("import", name, tmp_path, "--out", tmp_path / "out")
    assert code == 2 and why in said and len(said) < 400 and "\n" not in said
    assert not (tmp_path / "out").exists()


def test_mixed_and_torn_lines_are_left_out_and_named(tmp_path):
    shutil.copy(FILES / "verl" / "3.jsonl", tmp_path / "3.jsonl")
    with (tmp_path / "3.jsonl").open("a") as file:
        file.write(json.dumps(ATIF) + '\n{"input": "torn')
    code, said = dumps("import", "verl", tmp_path / "3.jsonl", "--out", tmp_path / "out")
    assert code == 1 and "4 rollouts in 2 groups" in said
    assert "3.jsonl, line 5: has no `input`; left out" in said
    assert "3.jsonl, line 6: not JSON" in said


def test_scattered_rollouts_of_one_prompt_are_one_group(tmp_path):
    rows = [{"input": f"q{k % 3}", "output": "a", "score": k / 9} for k in range(9)]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    _, rewards, said = imported("verl", tmp_path, tmp_path / "out")
    assert sorted(rewards) == [[k / 9, (k + 3) / 9, (k + 6) / 9] for k in range(3)]
    assert "3 groups formed by equal prompts" in said


def test_an_export_replaces_nothing_unasked(tmp_path):
    (tmp_path / "a.jsonl").write_text("mine")
    for out, says in [(tmp_path / "a.jsonl", "--force"), (tmp_path, "is not empty")]:
        code, said = dumps("export", "atif", FILES.parents[2] / "dumps" / "sample", "--out", out)
        assert code == 2 and says in said
    assert (tmp_path / "a.jsonl").read_text() == "mine"
