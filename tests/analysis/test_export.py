"""Exports: what is promised of every line, what is counted as left out, files that are whole or not there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rg_env.analysis.export import Common, Dpo, ExportError, Grpo, LeftOut, PairBy, PerTask, Reason, Sft, Think, export
from rg_env.analysis.export.kinds import parse_per_task
from rg_env.analysis.export.write import draft_folder
from rg_env.cli import app
from rg_env.dump import DumpPolicy, DumpWriter, FileKind, open_run, to_line, write_manifest
from rg_env.dump.files import batch_name
from rg_env.errors import RGEnvError
from rg_env.scoring import Scorer, parse_response
from rg_env.scoring.types import Status, Violation
from rg_env.tasks import decode_entry
from tests.dump.records import RUN_ID, group, rollout, violating

SCORES = st.one_of(st.sampled_from([0.0, 0.2, 0.3, 0.7, 1.0]), st.floats(0, 1))
SAMPLE = Path(__file__).parents[2] / "dumps" / "sample"
NOTHING_LEFT_OUT = Common(per_task=PerTask.ALL)


def said(text, base_score, repetition, **changes):
    conversation = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": text}]
    return rollout(base_score, repetition, conversation=conversation, **changes)


@st.composite
def rollouts(draw, repetition):
    what = draw(
        st.sampled_from(["fine", "fine", "fine", "violation", "failed", "rejected", "truncated", "penalty", "odd"])
    )
    score = draw(SCORES)
    text = f"<think>{draw(st.integers(0, 3))}</think><answer>{score}</answer>"
    match what:
        case "violation":
            return violating(repetition, draw(st.sampled_from(list(Violation))))
        case "failed" | "rejected":
            status = Status.REJECTED if what == "rejected" else Status.TIMEOUT
            return said(text, 0.0, repetition, raw_score=None, tagged_score=None, status=status)
        case "truncated":
            return said(text, score, repetition, truncated=True)
        case "penalty":
            return said(text, score, repetition, score=score / 2, reward=score / 2 - 0.1, penalty_factor=0.5)
        case "odd":
            return rollout(
                score, repetition, conversation=draw(st.sampled_from([[], [{"role": "user", "content": "?"}]]))
            )
    return said(text, score, repetition)


@st.composite
def groups(draw):
    count = draw(st.integers(1, 8))
    return [
        group(
            uid,
            [draw(rollouts(k)) for k in range(draw(st.integers(0, 5)))],
            task=draw(st.sampled_from(["gcd", "lcm", "chain_sum"])),
            phase=draw(st.sampled_from(["train", "train", "train", "eval"])),
        )
        for uid in range(count)
    ]


def dump_of(folder, made, batch=0):
    """All groups in files, whatever their scores."""
    for kind, phase in ((FileKind.ROLLOUTS, "train"), (FileKind.EVAL, "eval")):
        lines = [to_line(g) for g in made if g.phase == phase]
        if lines:
            (folder / batch_name(kind, RUN_ID, batch)).write_bytes(b"".join(lines))
    return open_run(folder)


def exported(tmp_path_factory, made, kind, common=NOTHING_LEFT_OUT):
    folder = tmp_path_factory.mktemp("export")
    result = export(dump_of(folder, made), kind, folder / "out" / "train.jsonl", common)
    out = folder / "out" / "train.jsonl"
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    assert len(lines) == result.rows == result.per_task.total()
    assert Counter(line["task"] for line in lines) == result.per_task
    assert out.exists() == bool(lines) == (folder / "out" / "README.md").exists()
    return lines, result


def key(response):
    return " ".join(response.split())


# -- what is promised of every line


@given(groups(), st.sampled_from([0.0, 0.3, 0.99]), st.integers(1, 3))
def test_sft_lines_are_good_and_everything_else_is_accounted_for(tmp_path_factory, made, min_score, per_group):
    lines, result = exported(tmp_path_factory, made, Sft(min_score, per_group))
    by_id = {g.group_id: g for g in made}
    assert not lines or max(Counter(line["group_id"] for line in lines).values()) <= per_group
    for line in lines:
        source = by_id[line["group_id"]]
        assert source.phase == "train"
        assert line["base_score"] >= min_score
        match = [
            r
            for r in source.rollouts
            if list(r.conversation) == line["messages"] and r.base_score == line["base_score"]
        ]
        assert any(r.violation is None and r.status is Status.OK and not r.truncated for r in match)
    seen = [json.dumps(line["messages"]) for line in lines]
    assert len(seen) == len(set(seen))
    of_rollouts = sum(len(g.rollouts) for g in made if g.phase == "train")
    assert result.left_out[Reason.EVALUATION] == sum(g.phase == "eval" for g in made)
    assert result.rows + result.left_out.total() - result.left_out[Reason.EVALUATION] == of_rollouts
    if per_group == 1:
        for line in lines:
            rivals = [r for r in by_id[line["group_id"]].rollouts if r.violation is None and r.status is Status.OK]
            assert line["base_score"] >= max(r.base_score for r in rivals if not r.truncated and r.conversation[1:])


@given(
    groups(),
    st.floats(0, 1, exclude_min=True),
    st.sampled_from(list(PairBy)),
    st.integers(1, 3),
    st.sampled_from(list(Think)),
)
def test_dpo_pairs_keep_the_margin(tmp_path_factory, made, margin, by, pairs, think):
    lines, _ = exported(tmp_path_factory, made, Dpo(margin, by, pairs), Common(think=think))
    by_id = {g.group_id: g for g in made}
    assert not lines or max(Counter(line["group_id"] for line in lines).values()) <= pairs
    for line in lines:
        assert line["score_chosen"] - line["score_rejected"] >= margin
        assert line["chosen"] != line["rejected"]
        source = by_id[line["group_id"]]
        for side in ("chosen", "rejected"):
            (message,) = line[side]
            texts = {
                r.conversation[-1]["content"]
                for r in source.rollouts
                if r.conversation and getattr(r, by.value) == line[f"score_{side}"] and not r.status.is_scorer_failure
            }
            assert any(text.endswith(message["content"]) for text in texts)
        assert think is Think.DROP or parse_response(line["chosen"][0]["content"]).violation is None


def test_no_response_is_in_two_pairs(tmp_path_factory):
    made = [group(0, [said(f"<think>{k}</think><answer>{k}</answer>", k / 8, k) for k in range(8)])]
    lines, result = exported(tmp_path_factory, made, Dpo(0.3, pairs=8))
    used = [line[side][0]["content"] for line in lines for side in ("chosen", "rejected")]
    assert len(lines) == 3 and len(used) == len(set(used))
    assert [line["score_chosen"] - line["score_rejected"] for line in lines] == [7 / 8, 5 / 8, 3 / 8]
    assert result.left_out[Reason.NOT_PAIRED] == 2


def test_no_column_is_in_the_way_of_what_trl_hands_to_reward_functions():
    taken = {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"}  # TRL 1.16
    assert not taken & set(Grpo().schema.names)


@given(groups(), st.booleans())
def test_grpo_rewards_stand_beside_their_responses(tmp_path_factory, made, keep):
    lines, _ = exported(tmp_path_factory, made, Grpo(keep_no_signal=keep))
    by_id = {g.group_id: g for g in made}
    for line in lines:
        earned = Counter(
            (r.conversation[-1]["content"], r.reward) for r in by_id[line["group_id"]].rollouts if r.conversation
        )
        told = [(c[0]["content"], reward) for c, reward in zip(line["responses"], line["rewards"], strict=True)]
        assert not Counter(told) - earned
        assert len(told) == len(line["base_scores"]) >= 2
        assert keep or len(set(line["rewards"])) > 1


def test_a_grpo_row_has_what_the_scorer_needs_to_judge_its_responses(tmp_path):
    out = tmp_path / "train.parquet"
    export(open_run(SAMPLE), Grpo(keep_no_signal=True), out)
    rows = pq.read_table(out).to_pylist()
    assert {row["task"] for row in rows} == {"leg_counting", "spell_backward"}
    with Scorer(workers=1, partial_credit="upstream") as scorer:
        for row in rows[::7]:
            entry, config = decode_entry(row["entry"]), decode_entry(row["task_config"])
            for response, base_score in zip(row["responses"], row["base_scores"], strict=True):
                verdict = scorer.judge(entry, response[-1]["content"], config, row["prefilled_think"], row["format"])
                assert verdict.scored.score == pytest.approx(base_score)


def test_a_grpo_row_has_the_format_of_its_run(tmp_path):
    made = [group(1, [said("x", 1.0, 0), said("y", 0.0, 1)])]
    settings = {"environment": {"skyrl_gym": {"rg_dump": {"format": "lenient", "prefilled_think": True}}}}
    write_manifest(tmp_path, RUN_ID, {"attempt": 1, "settings": settings})
    export(dump_of(tmp_path, made), Grpo(), tmp_path / "out" / "train.jsonl")
    row = json.loads((tmp_path / "out" / "train.jsonl").read_text())
    assert (row["format"], row["prefilled_think"]) == ("lenient", True)


def test_the_best_of_equals_is_the_first_not_the_shortest(tmp_path_factory):
    made = [
        group(
            0,
            [
                said("<think>2 + 2 = 4</think><answer>4</answer>", 1.0, 0),
                said("<think></think><answer>4</answer>", 1.0, 1),
            ],
        )
    ]
    lines, _ = exported(tmp_path_factory, made, Sft())
    assert "2 + 2 = 4" in lines[0]["messages"][-1]["content"]


def test_duplicates_are_those_that_differ_in_white_space(tmp_path_factory):
    made = [group(k, [said(f"<think>a{' ' * k} b</think><answer>4</answer>", 1.0, 0)]) for k in range(3)]
    lines, result = exported(tmp_path_factory, made, Sft())
    assert (len(lines), result.left_out[Reason.DUPLICATE]) == (1, 2)


def test_think_blocks_can_be_dropped(tmp_path_factory):
    made = [
        group(0, [said("<think>work</think>\n<answer>4</answer>", 1.0, 0)]),
        group(1, [said("work</think>\n<answer>5</answer>", 1.0, 0)]),  # the prompt had opened it
        group(2, [said("no tags at all", 1.0, 0)]),  # as Atropos lets pass
    ]
    lines, result = exported(tmp_path_factory, made, Sft(), Common(think=Think.DROP))
    assert [line["messages"][-1]["content"] for line in lines] == ["<answer>4</answer>", "<answer>5</answer>"]
    assert result.left_out == LeftOut({Reason.THINK_STAYS: 1})


# -- evaluation, tasks, shares


def test_evaluation_groups_need_to_be_asked_for_and_are_shouted_about(tmp_path):
    made = [group(0, [1.0, 0.0], phase="eval"), group(1, [0.9, 1.0])]
    dump = dump_of(tmp_path, made)
    without = export(dump, Sft(), tmp_path / "a" / "x.jsonl")
    assert (without.rows, without.left_out[Reason.EVALUATION], without.notes) == (1, 1, [])
    result = export(dump, Sft(), tmp_path / "b" / "x.jsonl", Common(include_eval=True))
    assert result.rows == 2
    assert "CONTAMINATED" in (tmp_path / "b" / "README.md").read_text()
    assert "CONTAMINATED" not in (tmp_path / "a" / "README.md").read_text()


@pytest.mark.parametrize(
    ("per_task", "expected"),
    [(PerTask.ALL, (1, 4, 9)), (PerTask.MEDIAN, (1, 4, 4)), (PerTask.SMALLEST, (1, 1, 1)), (2, (1, 2, 2))],
)
def test_tasks_are_evened_out(tmp_path, per_task, expected):
    made = [
        group(f"{t}{k}", [said(f"{t}{k}", 1.0, 0)], task=t) for t, n in (("a", 1), ("b", 4), ("c", 9)) for k in range(n)
    ]
    result = export(dump_of(tmp_path, made), Sft(), tmp_path / "out" / "x.jsonl", Common(per_task=per_task))
    assert tuple(result.per_task[t] for t in "abc") == expected
    assert result.left_out[Reason.OVER_SHARE] == 14 - sum(expected)


def test_the_draw_depends_on_the_seed_and_not_on_the_order(tmp_path):
    made = [group(k, [said(f"{k}", 1.0, 0)]) for k in range(40)]

    def drawn(name, groups, seed):
        (tmp_path / name).mkdir()
        out = tmp_path / name / "out" / "x.jsonl"
        export(dump_of(tmp_path / name, groups), Sft(), out, Common(per_task=10, seed=seed))
        return {json.loads(line)["group_id"] for line in out.read_text().splitlines()}

    assert drawn("a", made, 1) == drawn("b", made[::-1], 1) != drawn("c", made, 2)


def test_tasks_are_chosen_by_patterns(tmp_path_factory):
    made = [group(t, [said(t, 1.0, 0)], task=t) for t in ("gcd", "spell_backward", "lcm")]
    lines, result = exported(tmp_path_factory, made, Sft(), Common(tasks=("gcd", "spell_*")))
    assert [line["task"] for line in lines] == ["gcd", "spell_backward"]
    assert result.left_out == LeftOut({Reason.OTHER_TASK: 1})


# -- what the record did not hold


def test_a_plain_atropos_dump_is_exported_and_what_is_unknown_is_said(tmp_path):
    def line(k):
        talk = [
            {"role": "user", "content": f"{k}?"},
            {"role": "assistant", "content": f"<think>t</think><answer>{k}</answer>"},
        ]
        return {
            "item_id": "gcd",
            "rollouts": [{"conversation": talk, "score": 1.0}, {"conversation": talk[:1] + talk[1:], "score": 0.0}],
        }

    path = tmp_path / "reasoning_gym_environment_rollouts_abc_0000.jsonl"
    path.write_text("".join(json.dumps(line(k)) + "\n" for k in range(3)) + "{torn")
    for kind in (Sft(), Grpo()):
        out = tmp_path / kind.name / "train.parquet"
        result = export(open_run(tmp_path), kind, out)
        assert result.rows == 3
        assert result.left_out[Reason.UNREADABLE] == 1
        (note,) = result.notes
        assert "3 groups come from plain Atropos files" in note
        assert note in (out.parent / "README.md").read_text()
        assert pq.read_table(out)["step"].null_count == 3


def test_groups_whose_text_was_not_kept_are_counted(tmp_path):
    policy = DumpPolicy(dump_failed_rollouts=False)
    with DumpWriter(tmp_path, RUN_ID, 1, policy=policy) as writer:
        made = [group(0, [1.0, 0.0]), group(1, [0.0, 0.0]), group(2, [0.5, 0.1]), group(3, phase="eval")]
        assert writer.submit(made).result(5)
    assert export(open_run(tmp_path), Grpo(), tmp_path / "x" / "x.jsonl").left_out[Reason.NO_TEXT] == 2


def test_texts_that_cannot_be_written_are_left_out(tmp_path_factory):
    made = [
        group(
            0,
            [
                said("<think>\ud800</think><answer>4</answer>", 1.0, 0),
                said("<think></think><answer>4</answer>", 1.0, 1),
            ],
        )
    ]
    _, result = exported(tmp_path_factory, made, Sft())
    assert (result.rows, result.left_out[Reason.BAD_TEXT]) == (1, 1)


# -- files


@pytest.mark.parametrize("kind", [Sft(), Dpo(), Grpo()], ids=lambda kind: kind.name)
def test_datasets_loads_the_same_from_json_lines_and_parquet(tmp_path, kind):
    from datasets import load_dataset

    loaded = []
    for suffix in ("jsonl", "parquet"):
        folder = tmp_path / suffix
        assert export(open_run(SAMPLE), kind, folder / f"train.{suffix}", Common(per_task=3)).rows
        loaded.append(load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache")))
    lines, parquet = loaded
    assert lines.features == parquet.features
    assert lines.to_list() == parquet.to_list()
    assert lines.column_names == kind.schema.names


def test_nothing_is_overwritten_unless_asked(tmp_path):
    dump, out = open_run(SAMPLE), tmp_path / "sft" / "train.jsonl"
    export(dump, Sft(), out)
    before = out.read_bytes()
    with pytest.raises(ExportError, match="--force"):
        export(dump, Sft(per_group=2), out)
    with pytest.raises(ExportError, match="describes another export"):
        export(dump, Sft(), out.with_name("other.jsonl"))
    assert out.read_bytes() == before
    export(dump, Sft(per_group=2), out, force=True)
    assert out.read_bytes() != before
    assert {path.name for path in out.parent.iterdir()} == {"train.jsonl", "README.md"}


def test_a_readme_of_somebody_elses_is_never_touched(tmp_path):
    (tmp_path / "README.md").write_text("# My project")
    with pytest.raises(ExportError, match=r"choose an empty folder, such as .*train/train\.jsonl"):
        export(open_run(SAMPLE), Sft(), tmp_path / "train.jsonl", force=True)
    assert (tmp_path / "README.md").read_text() == "# My project"


KILLED_WHILE_READING = """
import os, signal, sys
import rg_env.dump.read.dump
from pathlib import Path
from rg_env.analysis.export import Sft, export
from rg_env.dump import open_run
dump = open_run(sys.argv[1])
rg_env.dump.read.dump.lines_in = lambda file: os.kill(os.getpid(), signal.SIGKILL)
export(dump, Sft(), Path(sys.argv[2]), force=True)
"""


def test_a_killed_export_leaves_the_old_file_as_it_was(tmp_path):
    out = tmp_path / "train.jsonl"
    export(open_run(SAMPLE), Sft(), out)
    before = out.read_bytes()
    done = subprocess.run([sys.executable, "-c", KILLED_WHILE_READING, SAMPLE, out])
    assert done.returncode == -signal.SIGKILL
    assert out.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == ["README.md", "train.jsonl"]
    assert len(list(tmp_path.iterdir())) == 3
    export(open_run(SAMPLE), Sft(), out, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "train.jsonl"]


def test_what_a_running_export_holds_stays(tmp_path):
    out = tmp_path / "train.jsonl"
    with draft_folder(out) as held:
        (held / "examples").write_text("{}")
        export(open_run(SAMPLE), Sft(), out)
        assert (held / "examples").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "train.jsonl"]


def test_a_failure_while_writing_leaves_nothing(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rg_env.analysis.export.run.card", full)
    with pytest.raises(ExportError, match="No space left"):
        export(open_run(SAMPLE), Sft(), tmp_path / "x" / "train.jsonl")
    assert list((tmp_path / "x").iterdir()) == []


def test_the_card_holds_against_hostile_names(tmp_path):
    name = "gcd` | x |\n---\nlicense: mit\n# <script>"
    result = export(dump_of(tmp_path, [group(0, [1.0], task=name)]), Sft(), tmp_path / "out" / "train.jsonl")
    head, text = (tmp_path / "out" / "README.md").read_text().split("---\n", 2)[1:]
    assert result.rows == 1
    assert yaml.safe_load(head)["configs"] == [
        {"config_name": "default", "data_files": [{"split": "train", "path": "train.jsonl"}]}
    ]
    assert sum(line.startswith("# ") for line in text.splitlines()) == 1
    assert "\nlicense" not in text


# -- the command


def invoke(*args):
    return CliRunner().invoke(app, ["dumps", "export", *map(str, args)])


def test_the_command_says_what_was_written_and_left_out(tmp_path):
    done = invoke("dpo", SAMPLE, "--out", tmp_path / "dpo" / "train.jsonl", "--margin", "0.9", "--think", "drop")
    assert done.exit_code == 0
    assert f"lines in {tmp_path / 'dpo' / 'train.jsonl'}, from 32 groups with 224 rollouts" in done.stdout
    assert "evaluation groups" in done.stdout and "--margin" in done.stdout
    assert "asks for one" in done.stderr or "ask for one" in done.stderr


def test_nothing_to_export_is_exit_code_1_with_the_reasons(tmp_path):
    done = invoke("sft", SAMPLE, "--out", tmp_path / "x" / "train.jsonl", "--tasks", "no_such_task")
    assert done.exit_code == 1
    assert "nothing to export: 32 groups" in done.stdout
    assert "24  groups of tasks that were not selected" in done.stdout
    assert list(tmp_path.rglob("*.*")) == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("sft", SAMPLE, "--out", "x.csv"), ".jsonl or .parquet"),
        (("dpo", SAMPLE, "--out", "x/x.jsonl", "--margin", "0"), "--margin 0"),
        (("dpo", SAMPLE, "--out", "x/x.jsonl", "--margin", "nan"), "--margin nan"),
        (("dpo", SAMPLE, "--out", "x/x.jsonl", "--margin", "1.5"), "--margin 1.5"),
        (("dpo", SAMPLE, "--out", "x/x.jsonl", "--pairs", "0"), "--pairs 0"),
        (("sft", SAMPLE, "--out", "x/x.jsonl", "--min-score", "-1"), "--min-score -1"),
        (("sft", SAMPLE, "--out", "x/x.jsonl", "--per-task", "few"), "all, median, smallest"),
        (("sft", SAMPLE, "--out", "x/x.jsonl", "--per-task", "0"), "--per-task 0"),
        (("sft", "no/such/folder", "--out", "x/x.jsonl"), "no/such/folder"),
        (("sft", SAMPLE, "--out", "/proc/none/x.jsonl"), "cannot be created"),
    ],
)
def test_what_a_person_can_mend_is_one_line(args, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = invoke(*args).exception
    assert isinstance(error, RGEnvError)
    assert says in str(error) and "\n" not in str(error)


def test_shares_are_read_from_words_and_numbers():
    assert [parse_per_task(text) for text in ("all", "median", "12")] == [PerTask.ALL, PerTask.MEDIAN, 12]
