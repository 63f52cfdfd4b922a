"""What the real programs wrote (`make_files`, `make_traces`) becomes a dump that says what it lacks, and that every
command reads; a bad record costs itself only.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import polars as pl
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st
from loguru import logger
from typer.testing import CliRunner

from rg_env.base.errors import RGEnvError
from rg_env.cli import app
from rg_env.dump import DumpWriter, open_run
from rg_env.dump.validate import validate
from rg_env.formats import FORMATS, import_records
from rg_env.formats.records import Place

FILES = Path(__file__).parent / "files"
UUID = "6a1f0f3e-8a65-4d57-9f2c-000000000001"
ATIF = json.loads((FILES / "atif" / "1" / "trajectory.json").read_text())

_ASKED = {"input": [{"role": "developer", "content": "Add."}, {"role": "user", "content": "1+1?", "type": "message"}]}
_OUTPUT = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I call."}]},
    {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 1}'},
    {"type": "function_call_output", "call_id": "c", "output": "2"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 2."}]},
]
GYM = {
    "responses_create_params": _ASKED,
    "response": {"output": _OUTPUT, "usage": {"output_tokens": 9}, "incomplete_details": None},
    "reward": 1.0,
    "task_name": "sums",
    "expected_answer": 2,
}
"""A row as NeMo Gym saves it."""


def atropos(*scores, task="gcd"):
    conversation = [{"role": "user", "content": "é?", "more": 1}, {"role": "assistant", "content": "a\ud800"}]
    return json.dumps({"item_id": task, "rollouts": [{"conversation": conversation, "score": s} for s in scores]})


def dumps(*args):
    done = CliRunner().invoke(app, ["dumps", *map(str, args)])
    if isinstance(done.exception, RGEnvError):
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.output.split())


def imported(name, source, out, *options):
    """The groups, the rewards of each, and what was said."""
    code, said = dumps("import", name, source, "--out", out, *options)
    assert code == 0, said
    assert validate(out).good
    groups = list(open_run(out).groups())
    return groups, [[rollout.reward for rollout in group.rollouts] for group in groups], said


def contents(rollout):
    return [message["content"] for message in rollout.conversation]


def test_skyrl(tmp_path):
    groups, rewards, said = imported("skyrl", FILES / "skyrl", tmp_path / "out")
    assert said == (
        "8 rollouts in 4 groups; no raw and tagged scores, no policy version, no length in tokens; "
        "reward of 1 unknown: status unscored"
    )
    assert rewards[:2] == [[1, 0], [0, 1]] and rewards[3] == [0, 1]
    assert groups[2].rollouts[1].status == "unscored" and groups[3].rollouts[1].truncated
    facts = [(group.task, group.item, group.step, group.phase, group.expected_answer) for group in groups]
    assert facts[0] == ("spell_backward", "spell_backward-eval-42-0", 4, "eval", "cal")


def test_trl(tmp_path):
    (group,), (rewards,), said = imported("trl", FILES / "trl", tmp_path / "out")
    assert said == (
        "4 rollouts in 1 group; no reference answer, no raw and tagged scores, no policy version, no stop reason, "
        "no length in tokens; 1 group formed by equal prompts, because the records have no ids; "
        "no record says its phase: assumed train; --phase sets it"
    )
    assert (group.step, group.phase, group.task, rewards) == (1, "train", "imported", [0.25, 0.5, 0, 0.5])
    assert [message["role"] for message in group.rollouts[0].conversation] == ["system", "user", "assistant"]


def test_the_reward_of_several_functions_of_trl_is_unknown():
    row = {"prompt": "?", "completion": "a", "step": 1, "first": 0.5, "second": None, "advantage": 0.0}
    (read,) = FORMATS["trl"].rows(row, Place(Path("completions_1.parquet")))
    assert (read.rollout.status, read.rewards) == ("unscored", ("first", "second"))


def test_other_columns_of_trl_are_no_rewards(tmp_path):
    columns = {"prompt": ["?"] * 3, "completion": ["a", "b", None], "step": [1] * 3, "reward": [0.5, 1.0, 0.0]}
    others = {"note": ["x", None, ""], "parsed": [[1], None, []], "image": [b"\xff", None, b""]}
    pl.DataFrame(columns | others).write_parquet(tmp_path / "completions_1.parquet")
    result = import_records("trl", FORMATS["trl"], tmp_path, tmp_path / "out")
    assert result.left_out == ["completions_1.parquet, line 3: has no `completion`; left out"]
    (group,) = open_run(tmp_path / "out").groups()
    assert [rollout.reward for rollout in group.rollouts] == [0.5, 1.0]


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
    call = {"id": "c", "type": "function", "name": "add", "arguments": '{"a": 1}'}
    calls = f"<think>Hm.</think>\n[tool_call {json.dumps(call)}]"
    assert contents(several) == ["What is 1+1?", calls, "2", "It is 2"]


def test_the_id_of_a_task_of_verifiers_may_be_a_number(tmp_path):
    episode = json.loads((FILES / "verifiers" / "traces.jsonl").read_text().splitlines()[0])
    episode["traces"][0]["task"]["data"]["id"] = 17
    (read,) = FORMATS["verifiers"].rows(episode, Place(Path("traces.jsonl")))
    assert read.group.item == "17"


def test_vf_eval(tmp_path):
    groups, rewards, said = imported("verifiers", FILES / "vf-eval", tmp_path / "out")
    assert said == "8 rollouts in 4 groups; no step, no raw and tagged scores, no policy version"
    assert rewards == [[1, 0], [0, 1], [1, 1], [0, 0]]
    assert [group.item for group in groups] == [f"spell_backward-eval-42-{k}" for k in range(4)]
    last = groups[3].rollouts[1]
    assert (last.truncated, last.response_tokens, last.turns, groups[3].phase) == (True, 7, 1, "eval")


def test_a_trajectory_of_another_agent(tmp_path):
    (group,), _, said = imported("atif", FILES / "atif", tmp_path / "out")
    assert "2 rollouts in 1 group;" in said and "reward of 1 unknown: status unscored; 1 group formed by" in said
    first, second = group.rollouts
    assert (first.status, second.status, second.score, first.turns) == ("unscored", "ok", 0.5, 2)
    assert first.response_tokens == 12
    (call,) = ATIF["steps"][1]["tool_calls"]
    step = f"<think>Where?</think>\nI look.\n[image]\n[tool_call {json.dumps(call)}]"
    assert contents(first) == ["What?", step, "bin", "Done."]


@pytest.mark.parametrize("command", ["stats", "show", "validate"])
def test_files_of_atropos_that_were_not_imported_name_the_command_that_does(tmp_path, command):
    """Their names fit the pattern of ours."""
    (tmp_path / "reasoning_gym_environment_rollouts_a-run_0000.jsonl").write_text(
        atropos(1, 0).replace(r"\ud800", "") + "\n"
    )
    code, output = dumps(command, tmp_path)
    assert code
    assert "rg-env dumps import atropos" in output


def test_files_of_atropos_with_one_name_in_two_folders_are_different_groups(tmp_path):
    for folder, scores in (("first", (1, 0)), ("second", (1, 1, 1))):
        (tmp_path / "runs" / folder).mkdir(parents=True)
        (tmp_path / "runs" / folder / "rollouts.jsonl").write_text(atropos(*scores))
    result = import_records("atropos", FORMATS["atropos"], tmp_path / "runs", tmp_path / "out")
    assert (result.groups, result.rollouts) == (2, 5)


def test_atropos(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    name = f"reasoning_gym_environment_rollouts_{UUID}_0000.jsonl"
    (source / name).write_text(f"{atropos(1, 0.5)}\n\n{atropos(None, 0)}\n")
    packed = source / f"reasoning_gym_environment_FAILED_rollouts_{UUID}_0000.jsonl.zst"
    packed.write_bytes(zstd.compress(atropos(0, 0, task="lcm").encode()))
    (source / "mine.jsonl").write_text(atropos(float("nan"), 1e301, 1.0))
    _, _, said = imported("atropos", source, tmp_path / "out")
    assert said.startswith("9 rollouts in 4 groups; no step, no reference answer, no raw and tagged scores, no policy")
    assert "reward of 3 unknown: status unscored" in said
    dump = open_run(tmp_path / "out")
    assert [run.run_id.rpartition("-")[0] for run in dump.runs] == [UUID, "mine"]
    groups = {group.uid: group for group in dump.groups()}
    first = groups[f"{name}:0"]
    assert (first.task, first.environment, first.outcome, first.no_signal) == ("gcd", "imported", "mixed", False)
    assert [(r.base_score, r.reward, r.status) for r in first.rollouts] == [(1.0, 1.0, "ok"), (0.5, 0.5, "ok")]
    assert contents(first.rollouts[0]) == ["é?", "a?"]
    assert all(r.raw_score is None and not r.violation and r.response_tokens is None for r in first.rollouts)
    _, said = dumps("stats", tmp_path / "out", "--json", "--where", "task = 'lcm'")
    (row,) = json.loads(said)
    assert (row["solve_rate"], row["format_rate"], row["mean_raw_score"], row["rollouts"]) == (0.0, None, None, 2)


def test_every_command_reads_every_import(tmp_path):
    examples = {
        "atif": (1, 1),
        "trl": (1, 1),
        "skyrl": (0, 0),
        "verl": (0, 0),
        "verifiers": (0, 1),
        "vf-eval": (0, 0),
    }
    changes = {"skyrl": (1, 1), "vf-eval": (0, 0)}
    for name in examples:
        form = "verifiers" if name == "vf-eval" else name
        dump = tmp_path / name
        groups, _, _ = imported(form, FILES / name, dump)
        for command in (["stats"], ["signs"], ["report", "--out", tmp_path / f"{name}.html"]):
            code, said = dumps(command[0], dump, *command[1:])
            assert code == 0 and "every group" in said + "every group" * (command[0] != "stats"), (name, said)
        code, said = dumps("show", dump, "--every-rollout")
        assert code == 0 and all(group.group_id in said for group in groups) and " nan" not in said
        for kind, code in zip(("sft", "dpo"), examples[name], strict=True):
            out = tmp_path / f"{name}.{kind}.jsonl"
            assert dumps("export", kind, dump, "--include-eval", "--out", out)[0] == code
            assert out.exists() == (code == 0)
        code, said = dumps("rescore", dump, "--json", "--out", tmp_path / f"{name}.jsonl")
        if name in changes:  # Reasoning Gym's questions: the source's scorer and ours, rollout by rollout
            task = json.loads(said)["tasks"]["spell_backward"]
            assert (task["lowered"], task["newly_scored"], task["raised"]) == (*changes[name], 0)
            assert task["changed"] == sum(changes[name])  # not for a violation that the source had no word for
        else:
            assert (code, "do not contain their questions" in said) == (2, True)
    rescored = [json.loads(line) for line in (tmp_path / "skyrl.jsonl").read_text().splitlines()]
    pairs = {(row["old"]["base_score"], row["new"]["base_score"]) for row in rescored}
    assert {(1.0, 1.0), (None, 1.0)} <= pairs and any(old == 1 and new < 1 for old, new in pairs if old is not None)
    code, said = dumps("stats", tmp_path / "skyrl", "--against", tmp_path / "vf-eval", "--json")
    compared = json.loads(said)
    assert (compared["questions_this"], compared["questions_other"], compared["questions_shared"]) == (4, 4, 4)
    assert [(flip["item"], flip["this"], flip["other"]) for flip in compared["flips"]] == [
        ("spell_backward-eval-42-2", 0, 1),
        ("spell_backward-eval-42-3", 0.5, 0),
    ]


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
    "deep": ("verl", "[" * 100_000, "not JSON"),
    "bytes": ("verl", "\0\x1b[2J", "not JSON"),
    "empty": ("skyrl", "", "has no rollout of SkyRL"),
    "no agent": ("atif", json.dumps(ATIF | {"steps": ATIF["steps"][:1]}), "has no step of the agent"),
    "a run id that is a path": (
        "atif",
        json.dumps(ATIF | {"extra": {"rl": {"group": {"run_id": "../x"}, "rollout": {}, "roles": []}}}),
        "the values of rg_env's record do not fit",
    ),
    "a later trace": ("verifiers", '{"traces": [{"version": 2}]}', "trace of version 2: 1 is read"),
    "no nodes": ("verifiers", '{"traces": [{"version": 1}]}', "has no `nodes`"),
    "a circle": ("verifiers", '{"traces": [{"version": 1, "nodes": [{"parent": 0}]}]}', "are not a graph"),
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


def test_a_source_or_a_folder_that_does_not_fit_is_one_line(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    torn = tmp_path / "torn.jsonl.zst"
    torn.write_bytes(zstd.compress(atropos(1).encode())[:-5])
    for source, out, why in [
        (tmp_path / "no.jsonl", "out", "cannot be read"),
        (tmp_path / "full", "out", "has no file of Atropos"),
        (torn, "out", "corrupt compressed data"),
        (torn, "full", "is not empty"),
        (torn, "full/x", "Not a directory"),
        (FILES / "trl", "x" * 300, "File name too long"),
        ("x" * 300, "out", "cannot be read"),
    ]:
        code, said = dumps("import", "atropos", source, "--out", tmp_path / out)
        assert code == 2 and why in said and "\n" not in said


LEFT_OUT = {
    "torn": "{torn",
    "an array": "[1]",
    "null": "null",
    "two records": atropos(1) + atropos(1),
    "no rollouts": '{"item_id": "gcd"}',
    "empty rollouts": '{"item_id": "gcd", "rollouts": []}',
    "a conversation of null": '{"item_id": "gcd", "rollouts": [{"conversation": null, "score": 1}]}',
    "another format": json.dumps(ATIF),
    "a task that is no text": '{"item_id": true, "rollouts": [{"conversation": [], "score": 1}]}',
    "a score that is text": atropos("1"),
    "a score that is true": atropos(True),
    "a huge score": atropos(10**400),
    "a number with too many digits": atropos(1).replace("1}", "9" * 5000 + "}"),
    "a message that is no object": '{"item_id": "gcd", "rollouts": [{"conversation": [3], "score": 1}]}',
    "deep": "[" * 100_000,
    "deep and whole": '{"item_id": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "escapes": '{"item_id": "\x1b]0;title\x07\x1b[2J',
    "zeros": "\0" * 50,
}


@pytest.mark.parametrize("is_last", [False, True])
def test_bad_lines_are_left_out_and_named(is_last, tmp_path):
    """Also a torn last line, as a running program leaves it."""
    lines = [atropos(1, 0), atropos(0, 0)]
    place = 2 if is_last else 1
    lines[place:place] = LEFT_OUT.values()
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    result = import_records("atropos", FORMATS["atropos"], tmp_path / "a.jsonl", tmp_path / "out")
    assert (result.groups, result.rollouts, result.records_left_out) == (2, 4, len(LEFT_OUT))
    for number, (case, said) in enumerate(zip(LEFT_OUT, result.left_out, strict=True), place + 1):
        assert said.startswith(f"a.jsonl, line {number}: ") and said.endswith("; left out"), case
        assert "\n" not in said and len(said) < 300
    code, said = dumps("import", "atropos", tmp_path / "a.jsonl", "--out", tmp_path / "again")
    assert code == 1 and "4 rollouts in 2 groups" in said and "\x1b" not in said
    assert "… 18 records left out in total" in said


@settings(max_examples=30)
@given(content=st.binary(max_size=80))
def test_any_bytes_are_read_or_said(content, tmp_path_factory):
    folder = tmp_path_factory.mktemp("any")
    (folder / "a.jsonl").write_bytes(content + b"\n" + atropos(1, 0).encode())
    assert import_records("atropos", FORMATS["atropos"], folder / "a.jsonl", folder / "out").groups == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_part_of_a_dump(number, tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text("\n".join([atropos(1, 0)] * 3))
    write = DumpWriter.submit

    def write_and_end(self, records):
        written = write(self, records)
        written.result(10)
        assert list((tmp_path / "out").glob("*.part"))
        signal.raise_signal(number)
        return written

    monkeypatch.setattr(DumpWriter, "submit", write_and_end)
    code, _ = dumps("import", "atropos", tmp_path / "a.jsonl", "--out", tmp_path / "out")
    assert (code, list((tmp_path / "out").iterdir())) == (128 + number, [])


def test_scattered_rollouts_of_one_prompt_are_one_group_and_the_writer_says_nothing(tmp_path):
    rows = [{"input": f"q{k % 120}", "output": "a", "score": k / 360} for k in range(360)]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    said: list[str] = []
    sink = logger.add(said.append)
    groups, rewards, summary = imported("verl", tmp_path, tmp_path / "out")
    logger.remove(sink)
    assert sorted(rewards) == [[k / 360, (k + 120) / 360, (k + 240) / 360] for k in range(120)] and said == []
    assert sorted(group.call for group in groups) == list(range(120))
    assert "120 groups formed by equal prompts" in summary


def test_an_import_that_is_interrupted_leaves_nothing(tmp_path, monkeypatch):
    submit, groups = DumpWriter.submit, []

    def interrupted(self, records):
        groups.append(records)
        if len(groups) == 2:
            raise KeyboardInterrupt
        return submit(self, records)

    monkeypatch.setattr(DumpWriter, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        import_records("verl", FORMATS["verl"], FILES / "verl", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_an_export_replaces_nothing_unasked(tmp_path):
    (tmp_path / "a.jsonl").write_text("mine")
    for out, says in [(tmp_path / "a.jsonl", "--force"), (tmp_path, "choose another --out")]:
        code, said = dumps("export", "atif", FILES.parents[2] / "dumps" / "sample", "--out", out)
        assert code == 2 and says in said
    assert (tmp_path / "a.jsonl").read_text() == "mine"
