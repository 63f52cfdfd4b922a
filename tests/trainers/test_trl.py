"""TRL's side is its real trainer in `test_grpo_steps`; elsewhere batches as its samplers order them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rg_env.base.errors import ConfigError
from rg_env.configuration.config import LengthPenaltyConfig, RGDumpConfig
from rg_env.dump import open_run
from rg_env.dump.validate import validate
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.scoring import AnswerScore, Scorer, Status
from rg_env.trainers.trl import GRPOReward, to_dataset

TASKS = {"chain_sum": {"weight": 1, "config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}}
ARGS = SimpleNamespace(num_generations=2, num_generations_eval=4, max_completion_length=50, temperature=1.0, top_p=1.0)
PLAIN = {"length_penalty": LengthPenaltyConfig(kind="none"), "dump_other_rollouts": True, "dump_eval_rollouts": True}


@pytest.fixture(scope="module")
def rows():
    return to_dataset(ReasoningGymDataset(TASKS, size=3))


def answered(row, right=True):
    answer = json.loads(json.loads(row["rg_item"])["entry"])["answer"] if right else "none"
    return [{"role": "assistant", "content": f"<think>I add.</think><answer>{answer}</answer>"}]


def call(reward, batch, step=4):
    """As TRL calls a reward function: one list per column, and columns and arguments that it does not know."""
    made, completions = zip(*batch, strict=True)
    columns = {name: [row[name] for row in made] for name in made[0] if name != "prompt"}
    return reward(
        prompts=[row["prompt"] for row in made],
        completions=list(completions),
        completion_ids=[[1, 2, 3]] * len(made),
        trainer_state=SimpleNamespace(global_step=step),
        log_metric=print,
        **columns,
    )


def test_rewards_and_groups_are_those_of_each_prompt(rows, tmp_path):
    order = [(rows[2], True), (rows[2], False), (rows[0], False), (rows[0], False), (rows[0], True), (rows[0], True)]
    with GRPOReward(ARGS, RGDumpConfig(**PLAIN), dump=tmp_path, model="m") as reward:
        assert call(reward, [(row, answered(row, right)) for row, right in order]) == [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    found = validate(tmp_path)
    assert found.good, found.kept
    assert not found.remarks
    groups = list(open_run(tmp_path).ledger())
    items = [json.loads(rows[k]["rg_item"])["item"] for k in (2, 0, 0)]
    assert [group.item for group in groups] == items
    assert [group.uid for group in groups] == [items[0], items[1], f"{items[1]}#2"]
    assert [[rollout.reward for rollout in group.rollouts] for group in groups] == [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    assert {(group.step, group.phase, group.started_at, group.generation_seconds) for group in groups} == {
        (5, "train", None, None)
    }
    assert all(group.scoring_seconds > 0 and group.ended_at > 1.7e9 for group in groups)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"train_unsolved": False}, "train_unsolved=false"),
        ({"stop_on_canaries": True}, "stop_on_canaries=true"),
        ({"debug_logging": True}, "debug_logging=true"),
        ({"experiment_class": "mine.Mine"}, "experiment_class='mine.Mine'"),
    ],
)
def test_what_only_skyrl_has_is_refused(setting, said):
    with pytest.raises(ConfigError, match=f"{said}: has no effect outside SkyRL; leave it out"):
        GRPOReward(ARGS, RGDumpConfig(**setting))


@pytest.mark.parametrize("order", [(0, 0, 1), (0, 1, 0, 1), (0, 1, 1, 2, 2, 0)])
def test_a_batch_of_parts_of_groups_is_an_error(rows, order):
    with pytest.raises(ConfigError, match="not 2 completions of one prompt"):
        call(GRPOReward(ARGS), [(rows[k], answered(rows[k])) for k in order])


def test_a_process_that_fails_ends_the_others_too(rows, tmp_path, monkeypatch):
    """Two processes of a run, here threads; one of them gets a batch that was cut in the middle of a group."""
    meeting, gathered = threading.Barrier(2, timeout=30), []

    def gather(values):
        gathered.extend(values)
        meeting.wait()
        return gathered

    monkeypatch.setattr("accelerate.utils.gather_object", gather)
    args = [SimpleNamespace(**vars(ARGS), world_size=2, process_index=index) for index in range(2)]
    batches = [[(rows[0], answered(rows[0]))] * count for count in (2, 3)]
    with GRPOReward(args[0], dump=tmp_path) as first, ThreadPoolExecutor(2) as threads:
        rewards = (first, GRPOReward(args[1], dump=tmp_path))
        whole, cut = [threads.submit(call, reward, batch) for reward, batch in zip(rewards, batches, strict=True)]
        assert isinstance(cut.exception(), ConfigError)
        assert "another process of this run failed: ConfigError: TRL passed a group" in str(whole.exception())


def test_a_scorer_that_fails_is_none_and_never_0(rows, tmp_path, monkeypatch, warnings):
    original = Scorer.score_response

    def failing(self, entry, text, *more):
        verdict = original(self, entry, text, *more)
        broken = verdict.parsed.answer == "none"
        return replace(verdict, scored=AnswerScore.without_score(Status.CRASHED, "gone")) if broken else verdict

    monkeypatch.setattr(Scorer, "score_response", failing)
    with GRPOReward(ARGS, RGDumpConfig(**PLAIN), dump=tmp_path) as reward:
        assert call(reward, [(rows[1], answered(rows[1]))] * 2) == [1.0, 1.0]
        assert not warnings
        for _ in range(2):
            assert call(reward, [(rows[0], answered(rows[0])), (rows[0], answered(rows[0], False))]) == [1.0, None]
    (said,) = warnings
    assert said.startswith("1 of 2 completions of a batch could not be scored") and "None counts as 0" in said
    assert validate(tmp_path).good
    *_, group = open_run(tmp_path).groups()
    assert [rollout.status for rollout in group.rollouts] == [Status.OK, Status.CRASHED]


def test_evaluation_has_its_own_group_size_and_no_penalty(tmp_path):
    rows = to_dataset(ReasoningGymDataset(TASKS, size=2, split="eval"), 1)
    config = RGDumpConfig(length_penalty=LengthPenaltyConfig(kind="atropos", max_length=1), dump_eval_rollouts=True)
    with GRPOReward(ARGS, config, dump=tmp_path) as reward:
        assert call(reward, [(rows[0], answered(rows[0]))] * 4) == [1.0] * 4
    (group,) = open_run(tmp_path).groups()
    assert (group.phase, group.step, len(group.rollouts)) == ("eval", 4, 4)
    assert validate(tmp_path).good


def test_texts_and_reasoning_apart_are_responses_too(rows):
    prompt, answer = "What?", answered(rows[0])[0]["content"]
    text = {**rows[0], "prompt": prompt}
    for name in ("reasoning_content", "thinking"):
        apart = [{"role": "assistant", name: "I add.", "content": answer.removeprefix("<think>I add.</think>")}]
        assert call(GRPOReward(ARGS, RGDumpConfig(**PLAIN)), [(text, answer), (rows[0], apart)]) == [1.0, 1.0]


@pytest.mark.long
def test_grpo_steps(tmp_path, monkeypatch):
    """Two steps and an evaluation of TRL's trainer with `nano`; its metrics are those of the dump."""
    from tests.trainers.trl_run import train

    original = Scorer.score_response

    def failing(self, entry, text, *more):
        verdict = original(self, entry, text, *more)
        broken = len(verdict.parsed.answer or "") % 2
        return replace(verdict, scored=AnswerScore.without_score(Status.CRASHED, "gone")) if broken else verdict

    monkeypatch.setattr(Scorer, "score_response", failing)
    trainer = train(
        tmp_path / "trl",
        tmp_path / "dump",
        max_steps=2,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        per_device_eval_batch_size=4,
        num_generations_eval=2,
        max_completion_length=48,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=2,
    )
    found = validate(tmp_path / "dump")
    assert found.good, found.kept
    ledger = list(open_run(tmp_path / "dump").ledger())
    assert [(group.phase, group.step, len(group.rollouts)) for group in ledger] == [
        *[("train", step, 4) for step in (1, 2) for _ in range(4)],
        *[("eval", 2, 2)] * 2,
    ]
    assert any(rollout.status is Status.CRASHED for group in ledger for rollout in group.rollouts)
    logged = {entry["step"]: entry["rewards/rg_env/mean"] for entry in trainer.state.log_history if "loss" in entry}
    assert logged.keys() == {1, 2}
    for step, mean in logged.items():
        in_loss = [
            rollout.reward
            for group in ledger
            if (group.phase, group.step) == ("train", step)
            for rollout in group.rollouts
            if rollout.status is not Status.CRASHED
        ]
        assert mean == pytest.approx(sum(in_loss) / len(in_loss), abs=1e-5)


@pytest.mark.long
def test_a_distributed_run_writes_one_dump(tmp_path):
    script = Path(__file__).with_name("trl_run.py")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*launch, script, tmp_path / "trl", tmp_path / "dump"], check=True, timeout=300)
    assert validate(tmp_path / "dump").good
    groups = list(open_run(tmp_path / "dump").ledger())
    assert len({group.run_id for group in groups}) == 1
    assert [len(group.rollouts) for group in groups] == [4, 4]
    assert len({group.item for group in groups}) == 2
