"""Masked rollouts change no advantage, by SkyRL's own estimators and in its own loops."""

import pytest
import torch
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.trainer import RayPPOTrainer

from rg_env.dump import open_run
from rg_env.rollouts import judge
from rg_env.scoring.types import AnswerScore, Status, Verdict
from rg_env.skyrl.trainers import RecordingTrainer
from tests.skyrl.scripted_training import BATCH, FULLY_ASYNC, build, train

TOKENS = 3


class Trainer(RecordingTrainer, RayPPOTrainer):
    def __init__(self, estimator, step_wise):
        self.cfg = SkyRLTrainConfig()
        self.cfg.trainer.algorithm.advantage_estimator = estimator
        self.cfg.generator.step_wise_trajectories = step_wise
        self.all_metrics, self.global_step = {}, 1


def batch_of(rollouts, step_wise=False, masked_tokens=TOKENS):
    """A training batch of rollouts: (uid, reward, masked). Masked responses have a length of their own."""
    steps = 2 if step_wise else 1
    rows = [(uid, reward, masked, last) for uid, reward, masked in rollouts for last in [False, True][-steps:]]
    rewards = torch.zeros(len(rows), TOKENS)
    rewards[:, -1] = torch.tensor([reward if last else 0.0 for _, reward, _, last in rows])
    mask = torch.ones(len(rows), TOKENS)
    for row, (_, _, masked, _) in enumerate(rows):
        mask[row, masked_tokens if masked else TOKENS :] = 0
    values = 0.1 * rewards.nan_to_num().cumsum(1) + 0.05
    data = TrainingInputBatch({"rewards": rewards, "response_mask": mask, "loss_mask": mask, "values": values})
    uids = [uid for uid, *_ in rows]
    data.metadata = {"uids": uids, "avg_response_length": 1.0, "is_last_step": [last for *_, last in rows]}
    data.metadata["rg_env_masked"] = [masked for _, _, masked, _ in rows]
    data.metadata["rg_env_rewards"] = [reward if last else 0.0 for _, reward, _, last in rows]
    return data


def advantages(estimator, rollouts, step_wise=False, masked_tokens=TOKENS):
    """Of each rollout that is not masked: the advantage of its tokens."""
    data = batch_of(rollouts, step_wise, masked_tokens)
    uids, mask, masked = data.metadata["uids"], data["response_mask"], torch.tensor(data.metadata["rg_env_masked"])
    data = Trainer(estimator, step_wise).compute_advantages_and_returns(data)
    assert data.metadata["uids"] is uids
    assert torch.equal(data["response_mask"], mask)
    assert not data["advantages"][masked].any()
    return data["advantages"][~masked]


ESTIMATORS = ["grpo", "rloo", "maxrl", "gae", "reinforce++"]
STEP_WISE = [("grpo", True), ("rloo", True), ("maxrl", True)]


@pytest.mark.parametrize(("estimator", "step_wise"), [*((name, False) for name in ESTIMATORS), *STEP_WISE])
def test_the_others_are_trained_on_as_if_masked_rollouts_did_not_exist(estimator, step_wise):
    unmasked = [("a", 1.0, False), ("a", 0.0, False), ("b", 0.3, False), ("a", 1.0, False), ("b", 0.9, False)]
    masked = [("a", 2 / 3, True), ("a", 2 / 3, True), ("b", 0.6, True), ("c", 0.0, True), ("c", 0.0, True)]
    mixed = [*unmasked[:2], *masked[:3], *unmasked[2:], *masked[3:]]
    expected = advantages(estimator, unmasked, step_wise)
    unknown = [(uid, float("nan") if is_masked else reward, is_masked) for uid, reward, is_masked in mixed]
    torch.testing.assert_close(advantages(estimator, unknown, step_wise), expected)
    for tokens in (1, TOKENS):
        torch.testing.assert_close(advantages(estimator, mixed, step_wise, tokens), expected)


@pytest.mark.parametrize("estimator", ["gae", "reinforce++"])
def test_what_compares_no_groups_trains_on_a_rollout_that_is_left_alone(estimator):
    alone = advantages(estimator, [("a", 1.0, False), ("a", 1.0, True), ("b", 0.0, False), ("b", 0.0, False)])
    assert alone[0].any()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_batch_without_a_sound_rollout_has_no_advantages(estimator):
    rollouts = [("a", 1.0, True), ("a", 0.0, True), ("b", 0.3, True)]
    data = Trainer(estimator, step_wise=False).compute_advantages_and_returns(batch_of(rollouts))
    assert not data["advantages"].any() and data["returns"].isfinite().all()


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "maxrl"])
def test_a_rollout_that_is_left_alone_has_nothing_to_be_compared_with(estimator):
    assert not advantages(estimator, [("a", 1.0, False), ("a", 1.0, True), ("a", 1.0, True)]).any()


LOOPS = {
    "plain": {},
    "step-wise": {"generator__step_wise_trajectories": True},
    "fully async": FULLY_ASYNC,
    "filter": {"trainer__algorithm__dynamic_sampling__type": "filter"},
    "replace": {
        "trainer__algorithm__dynamic_sampling__type": "replace",
        "trainer__algorithm__dynamic_sampling__min_replace_ratio": 0.1,
    },
}


@pytest.mark.parametrize("loop", LOOPS)
def test_in_skyrls_loops(tmp_path, monkeypatch, loop):
    """Of three samples, the first may be right and the last gets no score."""
    set_rewards = judge.set_rewards

    def starving(rollouts, *args, **settings):
        for rollout in rollouts[2:]:
            excused = AnswerScore(None, None, 0.0, Status.TIMEOUT, excused=True)
            rollout.verdict = Verdict(rollout.verdict.parsed, excused)
        set_rewards(rollouts, *args, **settings)

    monkeypatch.setattr(judge, "set_rewards", starving)
    trainer = build(tmp_path, **LOOPS[loop])
    train(trainer)
    groups = [group for group in open_run(tmp_path / "dumps").groups() if group.phase == "train"]
    assert len(groups) >= BATCH
    compared = set()
    for group in groups:
        rewards = [rollout.reward for rollout in group.rollouts]
        for rollout in group.rollouts:
            for step in trainer.advantages.values():
                for advantage in step.get(rollout.conversation[-1]["content"], ()):
                    compared.add((rollout.repetition, max(rewards), round(advantage, 3)))
    right = {(0, 1.0, 0.707), (1, 1.0, -0.707), (2, 1.0, 0.0)}
    assert right <= compared <= right | {(repetition, 0.0, 0.0) for repetition in range(3)}
