"""Token records of SkyRL's loops without models, and what `rg-env dumps tokens` makes of them."""

import json
from collections import Counter

import numpy as np
import polars as pl
import pytest
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import compute_grpo_outcome_advantage
from typer.testing import CliRunner

from rg_env.analysis.tokens import _wrong, find_tokens, read_step
from rg_env.choices import TokenSteps
from rg_env.cli.app import app
from rg_env.dump import open_run
from rg_env.dump.write import tokens
from rg_env.dump.write.tokens import TokenWriter, token_files
from rg_env.errors import ConfigError
from rg_env.skyrl.config import load_config
from tests.skyrl.scripted_training import BATCH, FULLY_ASYNC, FullyAsyncTrainer, SyncTrainer, build, train

RG = "environment__skyrl_gym__rg_dump__"
KEEP = {f"{RG}dump_other_rollouts": True, f"{RG}dump_tokens": "1..100", f"{RG}items": 4 * BATCH}
SAMPLING = "trainer__algorithm__dynamic_sampling__"
LOOPS = {
    "synchronous": {},
    "asynchronous": FULLY_ASYNC,
    "step-wise": {"generator__step_wise_trajectories": True},
    "filter": {f"{SAMPLING}type": "filter", f"{SAMPLING}max_sample_batches": 30, "trainer__epochs": 3},
    "replace": {f"{SAMPLING}type": "replace", f"{SAMPLING}min_replace_ratio": 0.0},
}


class Logprobs:
    """The trainer's log probabilities are those of the engine but for .01 in every token; keeps what each step got."""

    def fwd_logprobs_values_reward(self, training_input):
        training_input = super().fwd_logprobs_values_reward(training_input)
        training_input["action_log_probs"] = training_input["rollout_logprobs"] + 0.01
        return training_input

    def train_critic_and_policy(self, data):
        real = len(data["sequences"]) - data.metadata.get("pad_size", 0)
        fields = ("loss_mask", "rollout_logprobs", "action_log_probs", "advantages")
        mask = data["response_mask"].bool()
        found = [{name: data[name][row][mask[row]].tolist() for name in fields} for row in range(real)]
        for row, one in enumerate(found):
            width = mask.shape[1]
            one["response_ids"] = data["sequences"][row][-width:][mask[row]].tolist()
            real_tokens = int(data["attention_mask"][row].sum()) - len(one["response_ids"])
            one["prompt_ids"] = data["sequences"][row][data["attention_mask"][row].bool()].tolist()[:real_tokens]
        self.consumed = getattr(self, "consumed", {}) | {self.global_step: found}
        return super().train_critic_and_policy(data)


class Sync(Logprobs, SyncTrainer): ...


class Async(Logprobs, FullyAsyncTrainer): ...


def trained(folder, **settings):
    trainer = build(
        folder, trainer_class=Async if settings.get("trainer__fully_async__enabled") else Sync, **KEEP | settings
    )
    train(trainer)
    return trainer


@pytest.mark.parametrize("loop", LOOPS)
def test_the_rows_are_those_that_the_step_consumed_to_the_last_bit(tmp_path, loop):
    trainer = trained(tmp_path, **LOOPS[loop])
    files = token_files(tmp_path / "dumps")
    assert [file.step for file in files] == sorted(trainer.consumed) and files
    groups = {group.group_id: group for group in open_run(tmp_path / "dumps").groups()}
    rows_of_groups = Counter()
    for file in files:
        table = pl.read_parquet(file.path)
        consumed = trainer.consumed[file.step]
        assert table.height == len(consumed)
        for row, given in zip(table.iter_rows(named=True), consumed, strict=True):
            for name, field in {"logprobs": "action_log_probs"}.items():
                assert row[name] == given[field]
            for name in ("response_ids", "prompt_ids", "rollout_logprobs", "advantages"):
                assert row[name] == given[name]
            assert row["loss_mask"] == [int(value) for value in given["loss_mask"]]
            rollout = next(one for one in groups[row["group_id"]].rollouts if one.repetition == row["repetition"])
            assert trainer.tokenizer.decode(row["response_ids"], skip_special_tokens=True) == rollout.response
            assert sum(row["rewards"]) == pytest.approx(rollout.reward)
            rows_of_groups[file.step, row["group_id"]] += 1
        found = read_step(file)
        assert found.recomputed and not found.wrong
        assert found.mean == pytest.approx(0.01, rel=1e-3) and found.masked == 0.0
        copies = Counter(table["copy"].to_list())
        assert len(copies) == 1 or loop == "replace"
    recorded = {(one.step, one.group_id): one.rollouts for one in open_run(tmp_path / "dumps").trained()}
    assert recorded == rows_of_groups


@pytest.mark.parametrize(
    ("estimator", "settings"),
    [
        ("grpo", {}),
        ("grpo", {"trainer__algorithm__grpo_norm_by_std": False}),
        ("rloo", {}),
        ("reinforce++", {"trainer__algorithm__gamma": 0.99}),
    ],
)
def test_advantages_are_computed_again_and_a_wrong_one_is_found(tmp_path, estimator, settings):
    trained(tmp_path, trainer__algorithm__advantage_estimator=estimator, **settings)
    for file in find_tokens([tmp_path / "dumps"]):
        found = read_step(file)
        assert (found.estimator, found.recomputed, found.wrong) == (estimator, True, [])
    folder = str(tmp_path / "dumps")
    result = CliRunner().invoke(app, ["dumps", "tokens", folder])
    assert result.exit_code == 0 and "as computed again" in result.output, result.output
    table = pl.read_parquet(file.path)
    metadata = pl.read_parquet_metadata(file.path)
    wrong = table.with_columns(advantages=pl.col("advantages").list.eval(pl.element() + 0.01))
    wrong.write_parquet(file.path, metadata={"rg_env": metadata["rg_env"]})
    result = CliRunner().invoke(app, ["dumps", "tokens", folder, "--json"])
    assert result.exit_code == 1
    assert len(json.loads(result.output)[-1]["wrong"]) == table.height


@pytest.mark.parametrize("reward", [1.0, 0.7, 1.3])
@pytest.mark.parametrize("samples", [2, 8, 15])
def test_a_group_of_equal_rewards_hides_no_wrong_advantage(tmp_path, reward, samples):
    """SkyRL divides by a standard deviation of 0, so that the rounding of the mean is a million times as large."""
    rewards = torch.tensor([[0.0, reward]] * samples)
    right, _ = compute_grpo_outcome_advantage(rewards, torch.ones_like(rewards), np.zeros(samples, int))
    rows = pl.DataFrame({"group_id": ["g"] * samples, "copy": 0, "repetition": range(samples), "turn": 0})
    for wrong in (0.0, 0.5, -0.5):
        given = right + 0.0
        given[0] += wrong + np.sign(wrong) * abs(float(right[0, 0]))
        table = rows.with_columns(rewards=pl.Series(rewards.tolist()), advantages=pl.Series(given.tolist()))
        found = list(_wrong(table, {"advantage_estimator": "grpo", "grpo_norm_by_std": True}))
        assert [one["repetition"] for one in found] == ([0] if wrong else [])


def test_other_estimators_are_not_recomputed_and_good(tmp_path):
    trained(tmp_path, trainer__algorithm__advantage_estimator="maxrl")
    result = CliRunner().invoke(app, ["dumps", "tokens", str(tmp_path / "dumps")])
    assert result.exit_code == 0 and "advantages (maxrl): not recomputed" in result.output


def test_only_the_steps_that_are_wanted_are_kept(tmp_path):
    trained(tmp_path / "a", **{f"{RG}dump_tokens": "2..3"})
    assert [file.step for file in token_files(tmp_path / "a" / "dumps")] == [2, 3]
    trained(tmp_path / "b", **{f"{RG}dump_tokens": "last:1"})
    assert [file.step for file in token_files(tmp_path / "b" / "dumps")] == [4]
    trained(tmp_path / "c", **{f"{RG}dump_tokens": "none"})
    assert not token_files(tmp_path / "c" / "dumps")
    with pytest.raises(ConfigError, match=r"must be none, FIRST\.\.LAST"):
        load_config([f"{RG.replace('__', '.')}dump_tokens=all"]).rg_dump.validate()


def test_a_disk_that_fails_or_is_slow_is_counted_and_stops_nothing(tmp_path, warnings, monkeypatch):
    writer = TokenWriter(tmp_path / "missing", "run", 1, TokenSteps())
    writer.submit(1, lambda: pytest.importorskip("pyarrow").table({"a": [1]}), {})
    assert writer.close() == 1
    assert any("tokens of step 1 are not written" in text for text in warnings)
    event = torch.multiprocessing.Event()
    monkeypatch.setattr(tokens, "WAITING", 2)
    slow = TokenWriter(tmp_path, "run", 1, TokenSteps())
    for step in range(1, 6):
        slow.submit(step, lambda: event.wait(30) and pytest.importorskip("pyarrow").table({"a": [1]}), {})
    assert slow.missing == 2
    event.set()
    assert slow.close() == 2 and [file.step for file in token_files(tmp_path)] == [1, 2, 3]
