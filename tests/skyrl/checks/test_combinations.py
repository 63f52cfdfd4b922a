"""Combinations of SkyRL's settings that go wrong silently or late; and that SkyRL does what the messages say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_vllm_sampling_params
from skyrl.backends.skyrl_train.utils.off_policy_correction_utils import compute_tis_ratio
from skyrl.backends.skyrl_train.utils.ppo_utils import (
    LOSSES_WITH_OLD_LOGPROBS,
    PolicyLossRegistry,
    apply_loss_reduction_to_advantages_minibatch,
    compute_maxrl_advantage,
)
from skyrl.train.config import SamplingParams
from skyrl.train.config.config import AlgorithmConfig, OffPolicyCorrectionConfig
from transformers import get_scheduler
from transformers.trainer_utils import SchedulerType

from rg_env.configuration.settings import set_value
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.skyrl import combinations
from rg_env.skyrl.checks import check_data_files, check_models, find_mistakes, limits_of
from rg_env.skyrl.resumption import check_resumption
from rg_env.skyrl.train_config import _build, _Draft, _read_settings, load_run
from tests.documents import ROOT
from tests.skyrl.checks.conftest import RG
from tests.skyrl.scripted_training import settings

CONFIGS = ROOT / "configs"
A = "trainer.algorithm"
C = f"{A}.off_policy_correction"
G = "generator.sampling_params"
E = "generator.eval_sampling_params"
LOOP = "trainer.fully_async"
GPU = {f"{RG}.device": "cuda"}
ON_4 = GPU | {"trainer.placement.policy_num_gpus_per_node": 4}
ASYNC = {f"{LOOP}.enabled": True, f"{LOOP}.num_parallel_generation_workers": 4, "trainer.policy_mini_batch_size": 4}


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """A valid configuration, with changes that nothing has checked."""
    folder = tmp_path_factory.mktemp("run")
    arguments = [f"{key}={value}" for key, value in settings(folder).items()]

    def load(changes):
        cfg = load_run(arguments).cfg
        cfg.trainer.algorithm.temperature = None  # which SkyRL has filled in
        for name, value in changes.items():
            set_value(cfg, name, value)
        return cfg

    return load


WRONG = [
    ({f"{G}.repetition_penalty": 1.2}, "no engine"),
    ({f"{G}.additional_kwargs": {"min_p": 0.1}}, f"drops min_p and sends its own; set {G}.min_p instead"),
    ({f"{E}.additional_kwargs": {"min_tokens": 5}}, "drops min_tokens and sends its own; leave it out"),
    ({f"{G}.additional_kwargs": {"seed": 7}}, "all responses to a question would be the same; leave it out"),
    (
        {f"{E}.additional_kwargs": {"seed": 7}, f"{E}.temperature": 1.0, "generator.eval_n_samples_per_prompt": 2},
        "would be the same; leave it out",
    ),
    ({f"{G}.temperature": 0.0}, "would be the same; set it to 1.0"),
    (
        {f"{E}.temperature": 0.0, "generator.eval_n_samples_per_prompt": 2, f"{E}.max_generate_length": 48},
        f"set it to 1.0 and {E}.max_generate_length=48",
    ),
    ({f"{A}.advantage_estimator": "maxrl", f"{RG}.length_penalty.kind": "dapo"}, "length_penalty.kind=dapo makes that"),
    ({f"{A}.advantage_estimator": "maxrl", f"{A}.use_kl_in_reward": True}, "use_kl_in_reward makes that negative"),
    ({"trainer.critic.model.path": "nano"}, "grpo has no use for a critic"),
    ({f"{A}.policy_loss_type": "cross_entropy"}, "imitates every response"),
    (
        {f"{A}.policy_loss_type": "clip_cov"},
        "so none reaches trainer.algorithm.clip_cov.clip_cov_lb=1 and nothing is clipped",
    ),
    ({f"{A}.policy_loss_type": "kl_cov"}, "would outweigh the reward"),
    ({f"{A}.use_tis": True}, "every gradient would be turned around"),
    ({f"{C}.token_mask_is_threshold_low": 0.5}, "does nothing without"),
    ({f"{C}.tis_ratio_type": "token", f"{A}.policy_loss_type": "importance_sampling"}, "corrects nothing"),
    ({f"{C}.outlier_token_is_threshold_low": 0.1, f"{G}.logprobs": None}, "compares with them; set it to 1"),
    ({f"{A}.policy_loss_type": "dppo", f"{G}.logprobs": None}, "compares with them; set it to 1"),
    (
        {f"{A}.policy_loss_type": "cispo", f"{A}.cispo.cispo_anchor": "rollout", f"{C}.tis_ratio_type": "token"},
        "corrects already; set it to null",
    ),
    ({f"{A}.temperature": 0.5}, f"must be {G}.temperature, 1; leave it out"),
    (
        {
            **GPU,
            f"{A}.policy_loss_type": "dppo",
            f"{G}.top_p": 0.9,
            f"{combinations.ENGINE}.engine_init_kwargs": {"logprobs_mode": "processed_logprobs"},
        },
        "set these to 1.0, -1 and 0",
    ),
    (ASYNC | {f"{A}.policy_loss_type": "regular"}, "must be rollout_is or dppo with trainer.fully_async"),
    (
        ASYNC | {f"{LOOP}.sample_full_batch": True, f"{A}.policy_loss_type": "dppo"},
        f"needs {A}.zero_variance_filter=true",
    ),
    (ON_4 | {f"{A}.use_kl_loss": True, "trainer.placement.colocate_all": True}, "as many GPUs as the policy has, 4"),
    (ON_4 | {"trainer.remove_microbatch_padding": True}, "needs it; set that to false, too"),
    (GPU | {"trainer.policy.model.lora.rank": 24}, "vLLM takes 1, 8, 16, 32,"),
    ({"trainer.update_ref_every_epoch": True}, "there is no reference model"),
    (
        {"trainer.update_ref_every_epoch": True, f"{A}.use_kl_loss": True, "trainer.epochs": 1},
        "does nothing in the last",
    ),
    (
        {
            "trainer.update_ref_every_epoch": True,
            f"{A}.use_kl_loss": True,
            "trainer.epochs": 2,
            "trainer.hf_save_interval": 5,
        },
        "removes the model that it has exported",
    ),
]


@pytest.mark.parametrize(("changes", "right"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_what_goes_wrong_silently_or_late_is_one_mistake(load, changes, right):
    found = find_mistakes(load(changes), combinations.CHECKS)
    assert len(found) == 1, found
    assert right in found[0]


EVALUATED = {"trainer.eval_interval": 1}
DOUBTFUL = [
    (EVALUATED | {f"{E}.max_generate_length": 8}, "cuts off responses that training allows"),
    (EVALUATED | {f"{G}.stop": ["</answer>"]}, "evaluations do not: set"),
    (EVALUATED | {"data.train_data": ["a.parquet"]}, "data.val_data is empty"),
    ({f"{A}.use_kl_loss": True, f"{G}.temperature": 0.7}, "reference model has temperature 1"),
    ({f"{A}.entropy_loss_coef": 0.5}, f"no effect without {A}.use_entropy_loss=true"),
    ({f"{A}.clip_ratio_c": 10.0}, f"no effect without {A}.policy_loss_type=dual_clip"),
    ({f"{A}.kl_loss_coef": 0.5}, f"no effect without {A}.use_kl_loss=true"),
    ({f"{A}.dppo.delta_low": 0.5}, f"no effect without {A}.policy_loss_type=dppo"),
    ({f"{RG}.length_penalty.buffer": 4, f"{RG}.length_penalty.kind": "atropos"}, "length_penalty.kind=dapo"),
    ({f"{RG}.length_penalty.max_length": 8192, f"{RG}.length_penalty.kind": "atropos"}, "begins at 6144 tokens"),
]


@pytest.mark.parametrize(("changes", "said"), DOUBTFUL, ids=[str(number) for number in range(len(DOUBTFUL))])
def test_what_trains_on_something_else_is_said(load, warnings, changes, said):
    cfg = load(changes)
    assert not find_mistakes(cfg, combinations.CHECKS)
    for warn in combinations.WARNINGS:
        warn(cfg)
    assert [said in line for line in warnings] == [True], warnings


@pytest.mark.parametrize(
    "recipe", sorted([*CONFIGS.glob("*.yaml"), *CONFIGS.glob("cpu/*.yaml")]), ids=lambda path: path.stem
)
def test_no_recipe_has_such_settings(recipe, warnings):
    values, _, mistakes = _read_settings([str(recipe)])
    assert not mistakes
    draft = _build(_Draft, values)
    assert find_mistakes(draft, combinations.CHECKS) == []
    for warn in combinations.WARNINGS:
        warn(draft)
    assert warnings == []


def test_a_checkpoint_that_nothing_looks_at_is_a_mistake(load):
    cfg = load({"trainer.resume_mode": "latest", "trainer.resume_path": "global_step_4"})
    assert ["does not look at it" in right for _, right in check_resumption(cfg)] == [True]


def test_the_rows_of_a_file_are_looked_at_before_models_are_loaded(load, tmp_path):
    ours, verl, bare = (tmp_path / f"{name}.parquet" for name in ("ours", "verl", "bare"))
    ReasoningGymDataset(["gcd"], size=2).to_parquet(ours)
    prompt = [[{"role": "user", "content": "1 + 1?"}]]
    pl.DataFrame({"prompt": prompt, "data_source": ["x"], "extra_info": [{"index": 1}]}).write_parquet(verl)
    pl.DataFrame({"question": ["1 + 1?"]}).write_parquet(bare)
    (tmp_path / "bare.jsonl").write_text(json.dumps({"question": "1 + 1?"}) + "\n")
    (tmp_path / "folder.parquet").mkdir()
    for path, fault in (
        (ours, ""),
        (tmp_path / "folder.parquet", "there is no file"),
        (verl, "have no item of rg_dump: set environment.env_class"),
        (bare, "have no `prompt`"),
        (tmp_path / "bare.jsonl", "have no `prompt`"),
    ):
        found = list(check_data_files(load({"data.train_data": [str(path)]})))
        assert [fault in right for _, right in found] == [True] * bool(fault), found
    assert not list(check_data_files(load({"data.train_data": [str(verl)], "environment.env_class": "gsm8k"})))


def test_a_model_with_a_vision_part_is_refused_where_padding_is_removed(load, tmp_path):
    cfg = load({"trainer.remove_microbatch_padding": True})
    folder = Path(cfg.trainer.policy.model.path)
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vision_config": {"hidden_size": 8}}))
    check_models(cfg)
    cfg.trainer.policy.model.path = str(tmp_path)
    assert "vision part" in find_mistakes(cfg, [check_models])[0]
    cfg.trainer.policy.language_model_only = True
    assert not find_mistakes(cfg, [check_models])


# --------------------------------------------------------------------------------- what the messages say about SkyRL
def test_skyrl_sends_these_names_itself():
    assert get_vllm_sampling_params(SamplingParams()).keys() == combinations.OWN_NAMES.keys()


def test_the_cap_of_the_deprecated_setting_turns_the_gradient_around():
    correction = OffPolicyCorrectionConfig(token_tis_ratio_clip_high=AlgorithmConfig().tis_imp_ratio_cap)
    logprobs = torch.tensor([[-0.5, -1.0]])
    ratio, _ = compute_tis_ratio(logprobs, logprobs, torch.ones(1, 2), "token", correction)
    assert ratio.tolist() == [[-1, -1]]


def test_covariances_of_divided_advantages_reach_no_bound():
    torch.manual_seed(0)
    mask, logprobs = torch.ones(8, 512), -3 * torch.rand(8, 512)
    advantages = torch.randn(8, 1).expand(8, 512)
    divided = apply_loss_reduction_to_advantages_minibatch(advantages, mask, "token_mean", 1, None)
    clipped = []
    for each in (advantages, divided):
        loss = PolicyLossRegistry.get("clip_cov")
        _, metrics = loss(logprobs, logprobs, each, AlgorithmConfig(policy_loss_type="clip_cov"), mask)
        clipped.append(metrics["clip_ratio"] > 0)
    assert clipped == [True, False]
    changed = logprobs + 0.1
    losses = []
    for coefficient in (0.0, 1.0):
        config = AlgorithmConfig(policy_loss_type="kl_cov")
        config.kl_cov.ppo_kl_coef = coefficient
        losses.append(PolicyLossRegistry.get("kl_cov")(changed, logprobs, divided, config, mask)[0].item())
    assert abs(losses[1] - losses[0]) > 50 * abs(losses[0])


def test_of_negative_rewards_maxrl_prefers_the_lowest():
    rewards = torch.zeros(3, 4)
    rewards[:, -1] = torch.tensor([0.0, -0.5, -1.0])
    advantages, _ = compute_maxrl_advantage(rewards, torch.ones(3, 4), np.array(["a"] * 3))
    assert advantages[2, 0] > 0.9 and advantages[0, 0] < -0.9


def test_losses_of_the_old_policy_are_those_that_skyrl_lists():
    assert {*combinations._OF_OLD_POLICY} == {loss.value for loss in LOSSES_WITH_OLD_LOGPROBS} - {"cross_entropy"}


def test_every_scheduler_that_is_allowed_works_as_skyrl_calls_it():
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))])
    for name in limits_of("trainer.policy.optimizer_config.scheduler")["choices"]:
        scheduler = get_scheduler(name, optimizer, num_warmup_steps=1, num_training_steps=4)
        optimizer.step()
        scheduler.step()
    refused = {kind.value for kind in SchedulerType} - {*limits_of("scheduler")["choices"]}
    assert len(refused) == 5
    for name in refused:
        with pytest.raises((TypeError, ValueError)):
            get_scheduler(name, optimizer, num_warmup_steps=1, num_training_steps=4).step()
