"""Equal rewards teach nothing: their advantage is 0 to the bit, whatever SkyRL's 32 bits round their mean to."""

import pytest
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry
from skyrl.train.trainer import RayPPOTrainer

from rg_env.dump import open_run
from tests.skyrl.scripted_training import BATCH, FULLY_ASYNC, build, train
from tests.skyrl.test_masked import STEP_WISE, TOKENS, Trainer, batch_of

EQUAL = [(str(percent), percent / 100, False) for percent in range(1, 100) for _ in range(8)]
MIXED = [("mixed", reward, False) for reward in (0.3, 0.9, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7)]
COMPARING = [("grpo", False), ("rloo", False), ("maxrl", False), *STEP_WISE]


class StockTrainer(RayPPOTrainer):
    __init__ = Trainer.__init__


@pytest.mark.parametrize(("estimator", "step_wise"), COMPARING)
def test_a_group_of_equal_rewards_has_no_advantage_and_the_others_have_that_of_skyrl(estimator, step_wise):
    masked = [("90", 0.9, True), ("mixed", 0.7, True)]
    trainer = Trainer(estimator, step_wise)
    data = trainer.compute_advantages_and_returns(batch_of(EQUAL + MIXED + masked, step_wise))
    of_skyrl = StockTrainer(estimator, step_wise).compute_advantages_and_returns(batch_of(EQUAL + MIXED, step_wise))
    rows = [len(group) * (1 + step_wise) for group in (EQUAL, MIXED)]
    equal, mixed, _ = data["advantages"].split([*rows, 2 * (1 + step_wise)])
    rounded, of_mixed = of_skyrl["advantages"].split(rows)
    assert torch.count_nonzero(rounded)
    assert not torch.count_nonzero(equal)
    assert torch.count_nonzero(of_mixed)
    assert torch.equal(mixed, of_mixed)
    trained = torch.cat([equal, mixed])
    assert trainer.all_metrics["loss/avg_raw_advantages"] == pytest.approx(trained.mean().item(), abs=1e-6)
    assert trainer.all_metrics["loss/avg_raw_advantages_abs"] == pytest.approx(trained.abs().mean().item())


@pytest.mark.parametrize("penalty", [0.0, 0.01])
def test_a_kl_penalty_in_the_reward_is_compared_too(penalty):
    trainer = Trainer("grpo", step_wise=False)
    trainer.cfg.trainer.algorithm.use_kl_in_reward = True
    data = batch_of([("a", 0.9, False)] * 8)
    data["rewards"][3] -= penalty
    advantages = trainer.compute_advantages_and_returns(data)["advantages"]
    assert torch.count_nonzero(advantages) == (8 * TOKENS if penalty else 0)


@pytest.mark.parametrize("estimator", ["gae", "reinforce++", "of_the_user"])
def test_what_may_compare_with_more_than_the_group_is_left_as_it_is(estimator, monkeypatch):
    def reward_itself(token_level_rewards, response_mask, **_):
        scores = token_level_rewards.sum(dim=-1, keepdim=True) * response_mask
        return scores, scores.clone()

    if estimator == "of_the_user":
        monkeypatch.setattr(AdvantageEstimatorRegistry, "get", lambda name: reward_itself)
    rollouts = [("a", 0.9, False)] * 4 + [("b", 0.2, False)] * 4
    advantages = Trainer(estimator, False).compute_advantages_and_returns(batch_of(rollouts))["advantages"]
    of_skyrl = StockTrainer(estimator, False).compute_advantages_and_returns(batch_of(rollouts))["advantages"]
    assert torch.count_nonzero(advantages)
    assert torch.equal(advantages, of_skyrl)


LOOPS = {"plain": {}, "step-wise": {"generator__step_wise_trajectories": True}, "fully async": FULLY_ASYNC}


@pytest.mark.parametrize("loop", LOOPS)
def test_in_skyrls_loops(tmp_path, loop):
    """Groups of three times 0.85, which stock SkyRL gives an advantage of 0.056, beside mixed ones."""
    trainer = build(tmp_path, environment__skyrl_gym__rg_dump__format_bonus=0.85, **LOOPS[loop])
    train(trainer)
    seen = {True: set(), False: set()}
    groups = [group for group in open_run(tmp_path / "dumps").groups() if group.phase == "train"]
    assert len(groups) >= BATCH
    for group in groups:
        for rollout in group.rollouts:
            for step in trainer.advantages.values():
                seen[group.no_signal].update(step.get(rollout.conversation[-1]["content"], ()))
    assert seen[True] == {0.0}
    assert seen[False] and 0.0 not in seen[False]
