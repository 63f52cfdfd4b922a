from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc

import pytest

from rg_env.dump import DumpPolicy, DumpWriter, FileKind, NewerSchemaError, Phase, open_run, to_line, write_manifest
from rg_env.dump.frames import ROLLOUT_SCHEMA
from rg_env.errors import DumpError
from tests.dump.records import RUN_ID, group, rollout, violating

POLICY = DumpPolicy(dump_eval_rollouts=True)


def _write(folder, groups, attempt=1, **options):
    with DumpWriter(folder, RUN_ID, attempt, policy=POLICY, **options) as writer:
        assert writer.submit(groups).result(5)


def test_what_was_written_is_read(tmp_path):
    groups = [group(k, [1.0, violating(1)] if k % 2 else [0.0, 0.0], level=None, step=None) for k in range(7)]
    evaluation = [group(k, phase="eval") for k in range(3)]
    _write(tmp_path, [*groups, *evaluation], groups_per_file=2)
    write_manifest(tmp_path, RUN_ID, {"model": "nano"})
    dump = open_run(tmp_path)
    (run,) = dump.runs
    assert (run.run_id, run.has_ledger, run.manifest["model"]) == (RUN_ID, True, "nano")
    assert list(dump.groups()) == [*groups[1::2], *groups[::2], *evaluation]
    assert list(dump.groups([FileKind.FAILED])) == groups[::2]
    assert list(dump.groups(phase=Phase.EVAL)) == evaluation
    assert [record.group_id for record in dump.ledger()] == [g.group_id for g in [*groups, *evaluation]]
    assert (dump.problems, dump.caveat) == ([], None)


def test_a_batch_under_way_is_read_up_to_its_last_whole_line(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        writer.submit([group(0)]).result(5)
        (part,) = tmp_path.glob("*_rollouts_*.part")
        with part.open("ab") as file:
            file.write(to_line(group(1))[:50])
        dump = open_run(tmp_path)
        assert [g.uid for g in dump.groups()] == ["0"]
        assert [(p.path, p.line) for p in dump.problems] == [(part, 2)]


def test_a_batch_finished_between_finding_and_reading_is_read(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        writer.submit([group(0)]).result(5)
        dump = open_run(tmp_path)
    assert [g.uid for g in dump.groups()] == ["0"]
    assert dump.ledger_frame().height == 2


DAMAGE = {
    "torn": lambda line: line[: len(line) // 2] + b"\n",
    "NUL": lambda line: b"\0" * (len(line) - 1) + b"\n",
    "glued": lambda line: line[:-1] + line,
    "torn and glued": lambda line: line[:30] + line,
    "other JSON": lambda line: b'{"some": "thing"}\n',
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_costs_itself_only_and_is_named(tmp_path, damage):
    _write(tmp_path, [group(k) for k in range(5)])
    for path in tmp_path.glob("*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        lines[2] = DAMAGE[damage](lines[2])
        path.write_bytes(b"".join(lines))
    readers = {
        "groups": lambda dump: [record.uid for record in dump.ledger(all_attempts=True)],
        "rollouts": lambda dump: [group.uid for group in dump.groups(all_attempts=True)],
    }
    for kind, read in readers.items():
        dump = open_run(tmp_path)
        for _ in range(2):  # named once, however often it is met
            assert read(dump) == ["0", "1", "3", "4"]
            assert [(p.line, p.path.name.split("_")[3]) for p in dump.problems] == [(3, kind)]
    dump = open_run(tmp_path)
    assert dump.ledger_frame()["uid"].unique(maintain_order=True).to_list() == ["0", "1", "3", "4"]
    (problem,) = dump.problems
    assert "_groups_" in str(problem)
    assert "line 3: " in str(problem)


def test_the_frame_says_what_the_ledger_says(tmp_path):
    groups = [
        group(0, [1.0, 0.5]),
        group(1, [violating(0), rollout(0.0, 1, stop_reason=None, policy_version=None)], level=None, step=None),
        group(2, []),
        group(3, phase="eval"),
    ]
    _write(tmp_path, groups)
    dump = open_run(tmp_path)
    expected = [
        (
            *(record.group_id, record.level, record.text, record.text_reason, record.step),
            *(getattr(record, name)[k] for name in ROLLOUT_SCHEMA),
        )
        for record in dump.ledger()
        for k in range(len(record.score))
    ]
    frame = dump.ledger_frame()
    names = ["group_id", "level", "text", "text_reason", "step", *ROLLOUT_SCHEMA]
    assert frame.select(names).rows() == expected


def test_the_last_attempt_at_a_step_counts(tmp_path):
    def step(number, attempt, phase="train"):
        return group(f"{phase}{number}", attempt=attempt, step=number, phase=phase)

    _write(tmp_path, [step(1, 1), step(2, 1), step(3, 1), step(2, 1, "eval")], attempt=1)
    _write(tmp_path, [step(2, 2), step(3, 2), step(None, 2)], attempt=2)
    _write(tmp_path, [step(3, 3), step(None, 3)], attempt=3)
    dump = open_run(tmp_path)
    kept = {("train", 1, 1), ("train", 2, 2), ("train", 3, 3), ("eval", 2, 1), ("train", None, 2), ("train", None, 3)}
    assert {(g.phase, g.step, g.attempt) for g in dump.groups()} == kept
    assert {(g.phase, g.step, g.attempt) for g in dump.ledger()} == kept
    assert set(dump.ledger_frame().select("phase", "step", "attempt").rows()) == kept
    assert sum(1 for _ in dump.ledger(all_attempts=True)) == sum(1 for _ in dump.groups(all_attempts=True)) == 9
    assert dump.ledger_frame(all_attempts=True)["group_id"].n_unique() == 9


def _atropos(path, count=3):
    conversation = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    with path.open("w") as file:
        for k in range(count):
            rollouts = [{"conversation": conversation, "score": score} for score in (1.0, k / 10)]
            file.write(json.dumps({"item_id": "chain_sum", "rollouts": rollouts}) + "\n")


def test_plain_atropos_files_are_read_and_the_bias_is_named(tmp_path):
    uuid = "6a1f0f3e-8a65-4d57-9f2c-000000000001"
    _atropos(tmp_path / f"reasoning_gym_environment_rollouts_{uuid}_0000.jsonl")
    dump = open_run(tmp_path)
    groups = list(dump.groups())
    assert [g.run_id for g in groups] == [uuid] * 3
    assert len({g.group_id for g in groups}) == 3
    assert {g.task for g in groups} == {"chain_sum"}
    assert "biased" in dump.caveat
    frame = dump.ledger_frame()
    assert frame["base_score"].to_list() == [1.0, 0.0, 1.0, 0.1, 1.0, 0.2]
    assert list(dump.ledger()) == []


def test_a_single_file_may_have_any_name(tmp_path):
    _atropos(tmp_path / "mine.jsonl")
    assert [g.run_id for g in open_run(tmp_path / "mine.jsonl").groups()] == ["mine"] * 3


def test_several_paths_and_runs_are_kept_apart(tmp_path):
    _write(tmp_path / "ours", [group(0)])
    _atropos(tmp_path / "theirs.jsonl")
    dump = open_run(tmp_path / "ours", tmp_path / "theirs.jsonl", tmp_path / "ours")
    assert [run.run_id for run in dump.runs] == [RUN_ID, "theirs"]
    assert sum(1 for _ in dump.groups()) == 4
    assert dump.ledger_frame()["run_id"].value_counts(sort=True)["count"].to_list() == [6, 2]


def test_a_newer_schema_is_refused_with_file_and_line(tmp_path):
    _write(tmp_path, [group(0)])
    for path in tmp_path.glob("*.jsonl"):
        path.write_bytes(path.read_bytes().replace(b'"schema_version":', b'"schema_version":9'))
    dump = open_run(tmp_path)
    for read in (dump.ledger_frame, lambda: list(dump.groups()), lambda: list(dump.ledger())):
        with pytest.raises(NewerSchemaError, match=r"0000\.jsonl, line 1: written with schema version 9"):
            read()


def test_wrong_paths_are_said_in_one_line(tmp_path):
    with pytest.raises(DumpError, match="no dump in"):
        open_run(tmp_path)
    with pytest.raises(DumpError, match="No such file"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(DumpError, match="no dump folder"):
        open_run()


def test_groups_are_read_in_constant_memory(tmp_path):
    long = [rollout(conversation=[{"role": "assistant", "content": "x" * 100_000}])]
    path = tmp_path / "big.jsonl"
    path.write_bytes(to_line(group(0, long)) * 300)  # 30 MB
    dump = open_run(path)
    tracemalloc.start()
    try:
        assert sum(1 for _ in dump.groups()) == 300
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_reading_needs_nothing_heavy(tmp_path):
    _write(tmp_path, [group(0)])
    code = (
        "import sys; from rg_env.dump import open_run; from rg_env.analysis import statistics; "
        "statistics(open_run(sys.argv[1])); "
        "heavy = ('torch', 'ray', 'skyrl', 'skyrl_gym', 'transformers', 'reasoning_gym'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"
