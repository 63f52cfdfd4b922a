"""Exports: what is promised of every line, what is counted as left out, files that are whole or not there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import datasets
import duckdb
import msgspec
import pandas
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rg_env.analysis.export import Dpo, Reason, Sft, export
from rg_env.base.choices import Think
from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, DumpWriter, FileKind, open_run, to_line, write_manifest
from rg_env.dump.files import batch_name
from rg_env.scoring import parse_response
from rg_env.scoring.types import Status, Violation
from tests.dump.records import RUN_ID, group, manifest, rollout, violating

SCORES = st.one_of(st.sampled_from([0.0, 0.2, 0.3, 0.7, 1.0]), st.floats(0, 1))
SAMPLE = Path(__file__).parents[2] / "dumps" / "sample"


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


def exported(tmp_path_factory, made, kind, **options):
    folder = tmp_path_factory.mktemp("export")
    out = folder / "out" / "train.jsonl"
    result = export(dump_of(folder, made), kind, out, **options)
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    assert len(lines) == result.rows == result.per_task.total()
    assert Counter(line["task"] for line in lines) == result.per_task
    assert [path.name for path in folder.glob("out/*")] == ["train.jsonl"] * bool(lines)
    return lines, result


# -- what is promised of every line


@given(groups(), st.sampled_from([0.0, 0.3, None]), st.integers(1, 3))
def test_sft_lines_are_good_and_everything_else_is_accounted_for(tmp_path_factory, made, min_score, per_group):
    lines, result = exported(tmp_path_factory, made, Sft(min_score, per_group))
    by_id = {g.group_id: g for g in made}
    assert not lines or max(Counter(line["group_id"] for line in lines).values()) <= per_group
    for line in lines:
        source = by_id[line["group_id"]]
        assert source.phase == "train"
        assert line["base_score"] >= (0.99 if min_score is None else min_score)
        match = [
            r
            for r in source.rollouts
            if list(r.conversation) == line["messages"] and r.base_score == line["base_score"]
        ]
        assert any(not r.violation and r.status is Status.OK and not r.truncated for r in match)
    seen = [json.dumps(line["messages"]) for line in lines]
    assert len(seen) == len(set(seen))
    of_rollouts = sum(len(g.rollouts) for g in made if g.phase == "train")
    assert result.left_out[Reason.EVALUATION] == sum(g.phase == "eval" for g in made)
    assert result.rows + result.left_out.total() - result.left_out[Reason.EVALUATION] == of_rollouts


@given(groups(), st.floats(0, 1, exclude_min=True), st.sampled_from(list(Think)))
def test_dpo_pairs_keep_the_margin(tmp_path_factory, made, margin, think):
    lines, result = exported(tmp_path_factory, made, Dpo(margin=margin), think=think)
    by_id = {g.group_id: g for g in made}
    of_training = sum(g.phase == "train" for g in made)
    assert len(lines) + result.left_out[Reason.NO_PAIR] + result.left_out[Reason.DUPLICATE] == of_training
    for line in lines:
        assert line["score_chosen"] - line["score_rejected"] >= margin
        assert line["chosen"] != line["rejected"]
        source = by_id[line["group_id"]]
        for side in ("chosen", "rejected"):
            (message,) = line[side]
            texts = {
                r.conversation[-1]["content"]
                for r in source.rollouts
                if r.conversation and r.score == line[f"score_{side}"] and not r.status.is_scorer_failure
                if side == "rejected" or r.base_score >= 0.99
            }
            assert any(text.endswith(message["content"]) for text in texts)
        assert think is Think.DROP or parse_response(line["chosen"][0]["content"]).violation is None


def test_what_is_solved_follows_from_the_run_unless_a_minimum_score_is_given(tmp_path):
    made = [group(k, [said(f"<think>{k}</think><answer>{k}</answer>", 0.8, 0), said("no", 0.0, 1)]) for k in range(2)]
    dump = dump_of(
        tmp_path, [*made, msgspec.structs.replace(made[1], group_id="own", environment="gsm8k", solved_at=0.75)]
    )
    for kind, low in ((Sft, Reason.LOW_SCORE), (Dpo, Reason.NO_PAIR)):
        some, every = (export(dump, kind(score), tmp_path / "x" / "x.jsonl", force=True) for score in (None, 0.5))
        assert (some.rows, some.left_out[low] >= 2) == (1, True)
        assert every.rows == 2  # the third differs from the second by its id alone
    write_manifest(tmp_path, RUN_ID, Attempt.read(manifest(solved_at=0.7)))
    assert export(open_run(tmp_path), Sft(), tmp_path / "y.jsonl").rows == 2


@pytest.mark.parametrize("name", ["sft", "dpo", "atif", "traces"])
def test_the_think_block_that_the_template_opened_is_whole_in_every_export(tmp_path, name):
    """The record has what the model wrote, of which two began with a tag of their own."""
    write_manifest(tmp_path, RUN_ID, Attempt.read(manifest(prefilled_think=True)))
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        texts = ["a</think><answer>1</answer>", "<think>b</think><answer>1</answer>", "c</think><answer>2</answer>", ""]
        scores = [1.0, 1.0, 0.0, 0.0]
        ours = [said(text, score, number) for number, (text, score) in enumerate(zip(texts, scores, strict=True))]
        several = [{"role": role, "content": "e</think>"} for role in ("user", "assistant", "tool", "assistant")]
        others = [rollout(1.0, 0, conversation=several, turns=2), said(texts[2], 0.0, 1)]
        writer.submit([group(0, ours), group(1, others, environment="gym")]).result()
    out = tmp_path / "traces.jsonl"
    options = ["--per-group", "4"] if name == "sft" else []
    done = CliRunner().invoke(app, ["dumps", "export", name, str(tmp_path), "--out", str(out), *options])
    assert done.exit_code == 0, done.output
    written = out.read_text()
    assert written.count("<think>a</think>") == 1 and written.count("<think>b</think>") == written.count("b</think>")
    assert written.count("<think>c</think>") == written.count("c</think>") == {"sft": 0, "dpo": 1}.get(name, 2)
    # The prompt, and what a tool returned, are not the model's; of several turns, each is.
    assert (
        written.count("e</think>") == {"dpo": 0}.get(name, 4) and written.count("<think>e") == written.count("e</") // 2
    )


def test_the_best_of_equals_is_the_first_not_the_shortest_and_white_space_makes_no_other_example(tmp_path_factory):
    right = [
        said("<think>2 + 2 = 4</think><answer>4</answer>", 1.0, 0),
        said("<think></think><answer>4</answer>", 1.0, 1),
    ]
    again = said("<think>2 +  2 = 4</think><answer>4</answer>", 1.0, 0, status=Status.REWARD_ERROR)
    lines, result = exported(tmp_path_factory, [group(0, right), group(1, [again])], Sft())
    assert [line["messages"][-1]["content"] for line in lines] == [right[0].conversation[-1]["content"]]
    assert +result.left_out == Counter({Reason.NOT_BEST: 1, Reason.DUPLICATE: 1})


def test_think_blocks_can_be_dropped(tmp_path_factory):
    made = [
        group(0, [said("<think>work</think>\n<answer>4</answer>", 1.0, 0)]),
        group(1, [said("work</think>\n<answer>5</answer>", 1.0, 0)]),  # the prompt had opened it
        group(2, [said("no tags at all", 1.0, 0)]),  # as Atropos lets pass
    ]
    lines, result = exported(tmp_path_factory, made, Sft(), think=Think.DROP)
    assert [line["messages"][-1]["content"] for line in lines] == ["<answer>4</answer>", "<answer>5</answer>"]
    assert result.left_out == Counter({Reason.THINK_STAYS: 1})


def test_evaluation_groups_need_to_be_asked_for_and_are_warned_about(tmp_path):
    made = [group(0, [1.0, 0.0], phase="eval"), group(1, [0.9, 1.0])]
    dump = dump_of(tmp_path, made)
    without = export(dump, Sft(), tmp_path / "a" / "x.jsonl")
    assert (without.rows, without.left_out[Reason.EVALUATION], without.notes) == (1, 1, [])
    result = export(dump, Sft(), tmp_path / "b" / "x.jsonl", include_eval=True)
    assert result.rows == 2
    assert "CONTAMINATED" in result.notes[0]


# -- what the record did not hold


def test_groups_whose_text_was_not_kept_are_counted(tmp_path):
    policy = RGDumpConfig(dump_failed_rollouts=False, dump_other_rollouts=False)
    with DumpWriter(tmp_path, RUN_ID, 1, policy) as writer:
        made = [group(0, [1.0, 0.0]), group(1, [0.0, 0.0]), group(2, [0.5, 0.1]), group(3, phase="eval")]
        assert writer.submit(made).result(5)
    assert export(open_run(tmp_path), Sft(), tmp_path / "x" / "x.jsonl").left_out[Reason.NO_TEXT] == 2


# -- files


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        (Sft(), ["messages", "base_score", "score"]),
        (Dpo(margin=0.1), ["prompt", "chosen", "rejected", "score_chosen", "score_rejected"]),
    ],
    ids=["sft", "dpo"],
)
def test_datasets_loads_it_with_that_of_another_kind_of_run(tmp_path, kind, columns):
    """What was collected has no step, an import no task of Reasoning Gym's; as docs/collect.md calls `load_dataset`."""
    from datasets import load_dataset

    collected = [group(n, [said(f"a{n}", 1.0, 0), said("b", 0.0, 1)], step=None) for n in range(3)]
    imported = group(3, [said("c", 1.0, 0), said("d", -1.0, 1)], step=None, environment="imported", item="", item_id="")
    with DumpWriter(tmp_path / "dump", RUN_ID, 1) as writer:
        assert writer.submit([*collected, imported]).result(5)
    rows = export(open_run(tmp_path / "dump"), kind, tmp_path / "set" / "collected.jsonl").rows
    rows += export(open_run(SAMPLE), kind, tmp_path / "set" / "train.jsonl").rows
    files = str(tmp_path / "set" / "*.jsonl")
    loaded = load_dataset("json", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.num_rows == rows > 4
    assert loaded.column_names == [*columns, "task", "item", "group_id", "phase"]


def test_nothing_is_overwritten_unless_asked(tmp_path):
    dump, out = open_run(SAMPLE), tmp_path / "sft" / "train.jsonl"
    export(dump, Sft(), out)
    before = out.read_bytes()
    with pytest.raises(match="--force"):
        export(dump, Sft(per_group=2), out)
    assert out.read_bytes() == before
    export(dump, Sft(per_group=2), out, force=True)
    assert out.read_bytes() != before
    assert {path.name for path in out.parent.iterdir()} == {"train.jsonl"}


def test_a_failure_while_writing_leaves_nothing(tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rg_env.analysis.export.orjson.dumps", full)
    with pytest.raises(match="No space left"):
        export(open_run(SAMPLE), Sft(), tmp_path / "x" / "train.jsonl")
    assert list((tmp_path / "x").iterdir()) == []


# -- the command


def invoke(*args):
    return CliRunner().invoke(app, ["dumps", "export", *map(str, args)])


def test_the_command_says_what_was_written_and_left_out(tmp_path):
    done = invoke("dpo", SAMPLE, "--out", tmp_path / "dpo" / "train.jsonl", "--margin", "0.9", "--think", "drop")
    assert done.exit_code == 0
    assert f"lines in {tmp_path / 'dpo' / 'train.jsonl'}, from 32 groups with 224 rollouts" in done.stdout
    assert "evaluation groups" in done.stdout and "--margin" in done.stdout
    assert "ask for one" in done.stderr
    done = invoke("sft", SAMPLE, "--out", tmp_path / "x" / "train.jsonl", "--where", "phase = 'eval'")
    assert done.exit_code == 1
    assert "nothing to export: 8 groups" in done.stdout and "8  evaluation groups" in done.stdout
    assert not (tmp_path / "x").exists()


def test_a_table_has_the_same_types_and_rows_in_every_reader(tmp_path):
    """No reader guesses them from the first rows, as of JSON Lines."""
    path = tmp_path / "sample.parquet"
    done = invoke("parquet", SAMPLE, "--out", path)
    assert (done.exit_code, done.stdout) == (0, f"224 rollouts in {path}\n")
    expected = open_run(SAMPLE).scan().with_columns(solved_at=pl.lit(0.99)).collect()
    assert pl.read_parquet(path).equals(expected)
    by_phase = "SELECT phase, count(*), sum(response_tokens) FROM read_parquet(?) GROUP BY 1 ORDER BY 1"
    counted = duckdb.execute(by_phase, [str(path)]).fetchall()
    assert [row[:2] for row in counted] == [("eval", 32), ("train", 192)]
    frame = pandas.read_parquet(path)
    assert frame["response_tokens"].sum() == sum(row[2] for row in counted)
    rows = datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
    kinds = {name: rows.features[name].dtype for name in ("step", "base_score", "custom_reward", "no_signal", "text")}
    assert kinds == {
        "step": "int64",
        "base_score": "float64",
        "custom_reward": "float64",
        "no_signal": "bool",
        "text": "large_string",
    }
    assert invoke("parquet", SAMPLE, "--out", path).exception is not None, "it exists"
    assert "must end in .parquet" in str(invoke("parquet", SAMPLE, "--out", tmp_path / "x.csv").exception)
