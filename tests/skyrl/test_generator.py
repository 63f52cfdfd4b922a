"""RGDumpGenerator over SkyRL's real generator loop, env threads and scorer pool; only the engine is scripted."""

import copy
import dataclasses
import threading
from statistics import fmean

import numpy as np
import pytest
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.generators.utils import concatenate_generator_outputs

from rg_env.configuration.config import LengthPenaltyConfig, RGDumpConfig
from rg_env.dump import DumpWriter, open_run
from rg_env.rollouts.rollout import Rollout
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.skyrl.env import SLOT, RGDumpEnv
from rg_env.skyrl.groups import with_slots
from rg_env.tasks import Item
from tests.skyrl import generating
from tests.skyrl.generating import TASK, right, run, script_for, tokenizer, total


@pytest.fixture(scope="module")
def rows():
    return ReasoningGymDataset(TASK, size=3)


RESPONSES = (right("{}"), right("no"), "<answer>{}</answer>", right("{}"))


def test_the_log_of_rollouts_tells_what_counts_first(rows, tmp_path):
    responses = right("{}"), right("no"), "\x1b[31mno tags", right("{}")
    config = RGDumpConfig(debug_logging=True)
    run(rows, script_for(rows, *responses), config=config, log_folder=tmp_path / "logs")
    (log,) = (tmp_path / "logs").glob("rollouts-*.log")
    lines = log.read_text().splitlines()
    answer = rows.row(0)["reward_spec"]["ground_truth"]
    assert rows.row(0)["extra_info"]["item"] in lines[0]
    assert lines[1] == f"step 3 · train · chain_sum · 4 rollouts · mixed · expected {answer}"
    rollouts = [number for number, line in enumerate(lines) if " of 4: " in line][:4]
    first, second, third, fourth = (lines[number] for number in rollouts)
    assert first.startswith("-- best of 4: base 1 · raw 1, tagged ") and " · reward 1 · " in first
    assert first.endswith(f" · answer '{answer}'") and second.startswith("-- number 2 of 4: base 1 · ")
    assert third.startswith("-- number 3 of 4: base 0 · raw 0, tagged ") and third.endswith(" · answer 'no'")
    assert fourth.startswith("-- worst of 4: base 0 · reward 0 · ") and fourth.endswith(" · no_think")
    assert lines[rollouts[3] + 1] == "  ␛[31mno tags"


@pytest.mark.parametrize("settings", [{}, {"step_wise_trajectories": True}])
def test_every_mode_of_skyrl_gives_the_same_rewards_and_the_same_record(rows, tmp_path, settings):
    with DumpWriter(tmp_path, "run", 1) as writer:
        output, uids = run(rows, script_for(rows, *RESPONSES), writer=writer, **settings)
    trained = [total(reward) for reward in output["rewards"]]
    assert trained == [1.0, 0.0, 0.0, 1.0] * len(rows)
    for reward, response in zip(output["rewards"], output["response_ids"], strict=True):
        assert isinstance(reward, float) or (len(reward) == len(response) and not any(reward[:-1]))
    groups = list(open_run(tmp_path).groups())
    assert [group.uid for group in groups] == list(dict.fromkeys(uids))
    assert [rollout.reward for group in groups for rollout in group.rollouts] == trained
    assert [r.conversation[-1]["content"] for g in groups for r in g.rollouts] == [
        tokenizer().decode(ids, skip_special_tokens=True) for ids in output["response_ids"]
    ]
    assert [r.response_tokens for g in groups for r in g.rollouts] == [len(ids) for ids in output["response_ids"]]
    assert {r.policy_version for g in groups for r in g.rollouts} == {"7"}
    items = [Item.from_extra_info(rows.row(index)["extra_info"]) for index in range(len(rows))]
    assert [(g.item, g.task, g.entry) for g in groups] == [(item.id, "chain_sum", item.entry_json) for item in items]
    assert {(g.phase, g.step, g.call) for g in groups} == {("train", 3, 0)}
    assert all(g.started_at <= g.ended_at for g in groups)
    assert min(min(g.generation_seconds, g.scoring_seconds) for g in groups) > 0
    assert output["rollout_metrics"]["environment/rg_dump/mean_solved"] == pytest.approx(0.5)
    assert output["rollout_metrics"]["environment/rg_dump/mean_violation_no_think"] == pytest.approx(0.25)


def test_an_end_token_that_the_engine_spells_out_is_not_in_the_record(rows, tmp_path):
    """SkyRL's HTTP client decodes responses with their end token; a chat template would write it a second time."""
    spelled = [response + tokenizer().eos_token for response in RESPONSES]
    with DumpWriter(tmp_path, "run", 1) as writer:
        output, _ = run(rows, script_for(rows, *spelled), writer=writer)
    assert [total(reward) for reward in output["rewards"]] == [1.0, 0.0, 0.0, 1.0] * len(rows)
    texts = [r.conversation[-1]["content"] for group in open_run(tmp_path).groups() for r in group.rollouts]
    assert len(texts) == len(spelled) * len(rows)
    assert all(text.endswith("</answer>") for text in texts)


def test_long_right_answers_are_penalized_in_training_and_not_in_evaluation(rows):
    long = f"<think>{'1' * 200}</think><answer>{{}}</answer>"
    script = script_for(rows, right("{}"), long)
    config = RGDumpConfig()
    output, _ = run(rows, script, config=config)
    lengths = [len(ids) for ids in output["response_ids"]]
    assert lengths[1] >= 100 > 75 > lengths[0]
    assert [total(reward) for reward in output["rewards"]][:2] == [1.0, 0.0]
    assert output["rollout_metrics"]["rg_dump/mean_all_correct"] == 1.0
    output, _ = run(rows, script_for(rows, right("{}"), long), phase="eval")
    assert [total(reward) for reward in output["rewards"]][:2] == [1.0, 1.0]


def test_what_is_cut_off_may_earn_nothing_or_be_masked(rows, tmp_path):
    output, _ = run(rows, script_for(rows, right("{}"), right("{}") + "…"), zero_reward_on_non_stop=True)
    assert [total(reward) for reward in output["rewards"]][:2] == [1.0, 0.0]
    with DumpWriter(tmp_path, "run", 1) as writer:
        script = script_for(rows, right("{}"), "<think>and so on…")
        output, _ = run(rows, script, writer=writer, apply_overlong_filtering=True)
    assert [any(mask) for mask in output["loss_masks"]][:2] == [True, False]
    [first, *_] = open_run(tmp_path).groups()
    assert [rollout.truncated for rollout in first.rollouts] == [False, True, False, True]


def test_a_reward_function_that_fails_is_one_warning_and_trains_nothing(rows, tmp_path, monkeypatch, warnings):
    (tmp_path / "failing_reward.py").write_text("def reward(rollouts):\n    return rollouts[9]\n")
    monkeypatch.syspath_prepend(tmp_path)
    output, _ = run(rows, script_for(rows, *RESPONSES), config=RGDumpConfig(reward="failing_reward.reward"))
    (warning,) = [text for text in warnings if "reward function" in text]
    assert warning.endswith("failing_reward.py:2: IndexError: list index out of range")
    assert not any(map(any, output["loss_masks"]))


def test_rows_may_have_columns_that_cannot_be_compared(rows):
    extras = [{"weights": np.ones(3)} | rows[index][2] for index in (0, 0, 1)]
    batch = with_slots({"env_extras": extras, "env_classes": ["rg_dump"] * 3})
    items = [slot[SLOT].item.id for slot in batch["env_extras"]]
    assert items == [rows.row(index)["extra_info"]["item"] for index in (0, 0, 1)]


def test_the_reward_setting_reaches_skyrl(rows):
    config = dataclasses.replace(RGDumpConfig(), format_bonus=0.25, length_penalty=LengthPenaltyConfig(kind="none"))
    output, _ = run(rows, script_for(rows, *RESPONSES), config=config)
    assert [total(reward) for reward in output["rewards"]][:4] == [1.25, 0.25, 0.0, 1.25]
    assert output["rollout_metrics"]["generate/avg_tokens_zero_rewards"] > 0


def test_the_stock_generator_scores_with_the_same_env(rows):
    output, _ = run(rows, script_for(rows, *RESPONSES), generator_class=SkyRLGymGenerator)
    assert [total(reward) for reward in output["rewards"]] == [1.0, 0.0, 0.0, 1.0] * len(rows)


def test_metrics_of_several_batches_are_averaged_and_never_summed(rows):
    outputs = [run(rows, script_for(rows, *RESPONSES))[0] for _ in range(3)]
    joined = concatenate_generator_outputs(outputs)["rollout_metrics"]
    ours = {key: value for key, value in joined.items() if "rg_dump" in key}
    assert ours
    for key, value in ours.items():
        values = [output["rollout_metrics"][key] for output in outputs]
        assert value == pytest.approx(max(values) if "max" in key else min(values) if "min" in key else fmean(values))


def test_a_rollout_that_skyrl_gave_up_stays_in_its_group(tmp_path, monkeypatch):
    """A generator may return a placeholder for a rollout that raised. SkyRL's own, at 0.4.0, raises instead."""
    generate = SkyRLGymGenerator.generate

    async def generate_and_fail(self, input_batch, disable_tqdm=False):
        output = await generate(self, input_batch, disable_tqdm)
        slot = input_batch["env_extras"][1][SLOT]
        slot.verdict, slot.text = Rollout().verdict, ""
        output["stop_reasons"][1] = "rollout_error"
        return output

    monkeypatch.setattr(SkyRLGymGenerator, "generate", generate_and_fail)
    rows = ReasoningGymDataset(TASK, size=1)
    with DumpWriter(tmp_path, "run", 1) as writer:
        output, _ = run(rows, script_for(rows, right("{}"), right("{}"), right("wrong"), right("{}")), writer=writer)
    (group,) = open_run(tmp_path).groups()
    assert [rollout.status.value for rollout in group.rollouts] == ["ok", "no_response", "ok", "ok"]
    assert [total(reward) for reward in output["rewards"]] == pytest.approx([1.0, 2 / 3, 0.0, 1.0])
    assert [any(mask) for mask in output["loss_masks"]] == [True, False, True, True]
    metrics = output["rollout_metrics"]
    assert metrics["environment/rg_dump/mean_solved"] == pytest.approx(2 / 3)
    assert metrics["rg_dump/mean_score"] == pytest.approx(2 / 3)
    assert metrics["rg_dump/mean_no_response"] == 0.25


@pytest.mark.parametrize("settings", [{}, {"step_wise_trajectories": True}])
def test_what_skyrl_returns_is_passed_on_row_by_row(rows, monkeypatch, settings):
    """Only rewards, metrics and names of groups change, and loss masks of masked rollouts."""
    generate = SkyRLGymGenerator.generate
    given = {}

    async def generate_and_keep(self, input_batch, disable_tqdm=False):
        output = await generate(self, input_batch, disable_tqdm)
        lengths = list(zip(map(len, output["prompt_token_ids"]), map(len, output["response_ids"]), strict=True))
        output["rollout_expert_indices"] = [np.full((prompt + n, 1, 1), n) for prompt, n in lengths]
        output["rollout_sample_support"] = [np.full((n, 1), n) for _, n in lengths]
        given.update(copy.deepcopy(output))
        return output

    monkeypatch.setattr(SkyRLGymGenerator, "generate", generate_and_keep)
    output, _ = run(rows, script_for(rows, *RESPONSES), **settings)
    assert not any(map(total, given["rewards"])), "the environment computes no reward that the group's would replace"
    assert {"prompt_token_ids", "loss_masks", "rollout_sample_support", "rollout_expert_indices"} <= set(given)
    assert {"trajectory_time_splits", "env_metrics"} <= set(given)
    changed = {"rewards", "rollout_metrics", "trajectory_ids"}
    assert set(output) == set(given) | {"trajectory_ids", "groups", "group_ids", "masked"}
    assert all(repr(output[key]) == repr(given[key]) for key in set(given) - changed)


def test_an_environment_of_a_user_may_block(rows, tmp_path, monkeypatch):
    """SkyRL calls it in a thread. Its response is recorded as that of any other."""
    threads = []

    class Mine(RGDumpEnv):
        def step(self, action):
            threads.append(threading.current_thread())
            return super().step(action)

    monkeypatch.setattr("rg_env.skyrl.env.RGDumpEnv", Mine)
    with DumpWriter(tmp_path, "run", 1) as writer:
        output, _ = run(rows, script_for(rows, *RESPONSES), writer=writer)
    assert len(threads) == len(output["rewards"]) and threading.main_thread() not in threads
    recorded = [rollout.reward for group in open_run(tmp_path).groups() for rollout in group.rollouts]
    assert recorded == [total(reward) for reward in output["rewards"]] == [1.0, 0.0, 0.0, 1.0] * len(rows)


def test_a_template_that_refuses_a_system_message_needs_no_more_than_no_system_prompt(monkeypatch):
    """SkyRL's generator renders one of its own when it is made."""
    refusing = copy.deepcopy(tokenizer())
    refusal = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    refusing.chat_template = refusal + refusing.chat_template
    monkeypatch.setattr(generating, "tokenizer", lambda: refusing)
    rows = ReasoningGymDataset(TASK, size=1, system_prompt=None)
    output, _ = run(rows, script_for(rows, right("{}")))
    assert [total(reward) for reward in output["rewards"]] == [1.0] * generating.SAMPLES
