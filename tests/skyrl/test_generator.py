"""RGDumpGenerator over SkyRL's real generator loop, env threads and scorer pool; only the engine is scripted."""

import asyncio
import copy
import dataclasses
import functools
import threading
from statistics import fmean

import numpy as np
import pytest
from skyrl.train.config import GeneratorConfig
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.generators.utils import concatenate_generator_outputs, prepare_generator_input

from rg_env.config import RGDumpConfig
from rg_env.dataset import ReasoningGymDataset
from rg_env.dump import DumpPolicy, DumpWriter, open_run
from rg_env.rewards import Rollout
from rg_env.scoring.length import LengthPenaltyConfig
from rg_env.skyrl.config import RGSkyRLGymConfig
from rg_env.skyrl.env import SLOT, RGDumpEnv
from rg_env.skyrl.generator import RGDumpGenerator
from rg_env.tasks import Item
from tests.skyrl.generating import TASK, right, run, script_for, tokenizer, total
from tests.skyrl.scripted_engine import ScriptedEngine


@pytest.fixture(scope="module")
def rows():
    return ReasoningGymDataset(TASK, size=3)


RESPONSES = (right("{}"), right("no"), "<answer>{}</answer>", right("{}"))


def test_rewards_are_those_of_each_text_on_the_last_token(rows):
    output, _ = run(rows, script_for(rows, *RESPONSES))
    assert [total(reward) for reward in output["rewards"]] == [1.0, 0.0, 0.0, 1.0] * len(rows)
    for reward, response in zip(output["rewards"], output["response_ids"], strict=True):
        assert len(reward) == len(response)
        assert not any(reward[:-1])


def test_the_log_of_rollouts_tells_what_counts_first(rows, tmp_path):
    responses = right("{}"), right("no"), "\x1b[31mno tags", right("{}")
    config = RGDumpConfig(debug_logging=True)
    run(rows, script_for(rows, *responses), config=config, log_folder=tmp_path / "logs")
    (log,) = (tmp_path / "logs").glob("rollouts-*.log")
    lines = log.read_text().splitlines()
    answer = rows.row(0)["reward_spec"]["ground_truth"]
    assert lines[0] == f"train step 3 | {rows.row(0)['extra_info']['item']} | mixed | mean score 0.500, best 1.000"
    rollouts = [number for number, line in enumerate(lines) if line.startswith("  score")][:4]
    first, second, third, _ = (lines[number] for number in rollouts)
    assert first.startswith(f"  score 1.000 reward 1 | answer '{answer}', expected '{answer}' | raw 1.000, tagged ")
    assert second.startswith(f"  score 0.000 reward 0 | answer 'no', expected '{answer}' | raw ")
    assert third == "  score 0.000 reward 0 | violation no_think"
    assert lines[rollouts[2] + 1].split() == ["response", "␛[31mno", "tags"]


@pytest.mark.parametrize("settings", [{}, {"batched": True}, {"step_wise_trajectories": True}])
def test_every_mode_of_skyrl_gives_the_same_rewards_and_the_same_record(rows, tmp_path, settings):
    with DumpWriter(tmp_path, "run", 1, policy=DumpPolicy(dump_other_rollouts=True)) as writer:
        output, uids = run(rows, script_for(rows, *RESPONSES), writer=writer, **settings)
    trained = [total(reward) for reward in output["rewards"]]
    groups = list(open_run(tmp_path).groups())
    assert [group.uid for group in groups] == list(dict.fromkeys(uids))
    assert [rollout.reward for group in groups for rollout in group.rollouts] == trained
    assert [r.conversation[-1]["content"] for g in groups for r in g.rollouts] == [
        tokenizer().decode(ids, skip_special_tokens=True) for ids in output["response_ids"]
    ]
    assert [r.response_tokens for g in groups for r in g.rollouts] == [len(ids) for ids in output["response_ids"]]
    assert {r.policy_version for g in groups for r in g.rollouts} == {"7"}
    assert {(g.phase, g.step, g.call) for g in groups} == {("train", 3, 0)}
    assert all(g.started_at <= g.ended_at for g in groups)
    assert min(min(g.generation_seconds, g.scoring_seconds) for g in groups) > 0
    assert output["rollout_metrics"]["environment/rg_dump/mean_solved"] == pytest.approx(0.5)
    assert output["rollout_metrics"]["environment/rg_dump/mean_violation_no_think"] == pytest.approx(0.25)


def test_an_end_token_that_the_engine_spells_out_is_not_in_the_record(rows, tmp_path):
    """SkyRL's HTTP client decodes responses with their end token; a chat template would write it a second time."""
    spelled = [response + tokenizer().eos_token for response in RESPONSES]
    with DumpWriter(tmp_path, "run", 1, policy=DumpPolicy(dump_other_rollouts=True)) as writer:
        output, _ = run(rows, script_for(rows, *spelled), writer=writer)
    assert [total(reward) for reward in output["rewards"]] == [1.0, 0.0, 0.0, 1.0] * len(rows)
    texts = [r.conversation[-1]["content"] for group in open_run(tmp_path).groups() for r in group.rollouts]
    assert len(texts) == len(spelled) * len(rows)
    assert all(text.endswith("</answer>") for text in texts)


def test_the_recorded_entry_is_the_one_that_was_scored(rows, tmp_path):
    with DumpWriter(tmp_path, "run", 1, policy=DumpPolicy()) as writer:
        run(rows, script_for(rows, *RESPONSES), writer=writer)
    for index, group in enumerate(open_run(tmp_path).groups()):
        item = Item.from_extra_info(rows.row(index)["extra_info"])
        assert group.entry == item.entry_json
        assert (group.item, group.item_id) == (item.id, item.task)
        assert group.task == "chain_sum"


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


def test_a_penalized_group_of_right_answers_is_no_failed_group(rows, tmp_path):
    long = f"<think>{'1' * 200}</think><answer>{{}}</answer>"
    with DumpWriter(tmp_path, "run", 1, policy=DumpPolicy()) as writer:
        output, _ = run(rows, script_for(rows, long), writer=writer)
    assert {total(reward) for reward in output["rewards"]} == {0.0}
    assert not list(tmp_path.glob("*FAILED*"))
    assert len(list(tmp_path.glob("reasoning_gym_environment_rollouts_*.jsonl"))) == 1


def test_zero_reward_on_non_stop_is_honored(rows):
    script = script_for(rows, right("{}"), right("{}") + "…")
    output, _ = run(rows, script, zero_reward_on_non_stop=True)
    assert [total(reward) for reward in output["rewards"]][:2] == [1.0, 0.0]


def test_a_reward_function_that_fails_is_one_warning_and_trains_nothing(rows, tmp_path, monkeypatch, warnings):
    (tmp_path / "failing_reward.py").write_text("def reward(rollouts):\n    return rollouts[9]\n")
    monkeypatch.syspath_prepend(tmp_path)
    output, _ = run(rows, script_for(rows, *RESPONSES), config=RGDumpConfig(reward="failing_reward.reward"))
    (warning,) = [text for text in warnings if "reward function" in text]
    assert warning.endswith("failing_reward.py:2: IndexError: list index out of range")
    assert not any(map(any, output["loss_masks"]))


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


def test_rows_of_other_environments_are_left_alone(rows):
    gym = RGSkyRLGymConfig(rg_dump=RGDumpConfig())
    engine = ScriptedEngine(tokenizer(), lambda prompt, number: "#### 4")
    generator_cfg = GeneratorConfig(max_input_length=512)
    generator = RGDumpGenerator(generator_cfg, gym, engine, tokenizer())
    prompt = {
        "prompt": [{"role": "user", "content": "2 + 2"}],
        "env_class": "gsm8k",
        "env_extras": {"reward_spec": {"method": "rule", "ground_truth": "4"}},
        "uid": "other",
    }
    batch, _ = prepare_generator_input([prompt], 2, {"logprobs": 1}, "gsm8k", "train", 1)
    output = asyncio.run(generator.generate(batch))
    assert [total(reward) for reward in output["rewards"]] == [1.0, 1.0]


def test_scores_are_those_of_a_long_response_only_by_its_tokens(rows, tmp_path):
    """Overlong filtering masks what was cut off, and the record says so."""
    script = script_for(rows, right("{}"), "<think>and so on…")
    with DumpWriter(tmp_path, "run", 1, policy=DumpPolicy()) as writer:
        output, _ = run(rows, script, writer=writer, apply_overlong_filtering=True)
    assert [any(mask) for mask in output["loss_masks"]][:2] == [True, False]
    [first, *_] = open_run(tmp_path).groups()
    assert [rollout.truncated for rollout in first.rollouts] == [False, True, False, True]
    assert first.rollouts[1].violation == "unclosed_think"


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
    with DumpWriter(tmp_path, "run", 1, policy=DumpPolicy(dump_other_rollouts=True)) as writer:
        output, _ = run(rows, script_for(rows, right("{}"), right("{}"), right("wrong"), right("{}")), writer=writer)
    (group,) = open_run(tmp_path).groups()
    assert [rollout.status.value for rollout in group.rollouts] == ["ok", "no_response", "ok", "ok"]
    assert [total(reward) for reward in output["rewards"]] == pytest.approx([1.0, 2 / 3, 0.0, 1.0])
    assert [any(mask) for mask in output["loss_masks"]] == [True, False, True, True]
    metrics = output["rollout_metrics"]
    assert metrics["environment/rg_dump/mean_solved"] == pytest.approx(2 / 3)
    assert metrics["rg_dump/mean_score"] == pytest.approx(2 / 3)
    assert metrics["rg_dump/mean_no_response"] == 0.25


@pytest.mark.parametrize("settings", [{}, {"batched": True}, {"step_wise_trajectories": True}])
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
    assert {"prompt_token_ids", "loss_masks", "rollout_sample_support", "rollout_expert_indices"} <= set(given)
    assert {"trajectory_time_splits", "env_metrics"} <= set(given) or settings.get("batched")
    changed = {"rewards", "rollout_metrics", "trajectory_ids"}
    assert set(output) == set(given) | {"trajectory_ids", "group_ids", "masked"}
    assert all(repr(output[key]) == repr(given[key]) for key in set(given) - changed)


@pytest.mark.parametrize("of_a_user", [False, True])
def test_our_env_takes_no_thread(rows, monkeypatch, of_a_user):
    """Its `step` waits in the event loop, as `step_async`. An environment of a user may do anything."""
    threads = {}

    def record(name):
        method = getattr(RGDumpEnv, name)

        def recording(self, *args):
            threads[name] = threading.current_thread().name.rstrip("_0123456789")
            return method(self, *args)

        return functools.update_wrapper(recording, method)

    kind = type("Mine", (RGDumpEnv,), {}) if of_a_user else RGDumpEnv
    for name in ("init", "step", "close"):
        monkeypatch.setattr(kind, name, record(name), raising=False)
    monkeypatch.setattr("rg_env.skyrl.env.RGDumpEnv", kind)
    run(rows, script_for(rows, *RESPONSES))
    names = ("init", "step", "close") if of_a_user else ("init", "close")
    assert threads == dict.fromkeys(names, "skyrl-gym-env-" if of_a_user else "MainThread")
