"""Batch sizes that do not divide are refused in one line."""

import pytest

CRITIC = ("trainer.algorithm.advantage_estimator=gae", "trainer.critic.model.path=nano")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["trainer.train_batch_size=10"], ["trainer.train_batch_size=10", "policy_mini_batch_size=4"]),
        (["trainer.train_batch_size=2"], ["trainer.train_batch_size=2", "policy_mini_batch_size=4"]),
        (["trainer.policy_mini_batch_size=0"], ["policy_mini_batch_size=0", "at least 1"]),
        (["trainer.micro_train_batch_size_per_gpu=3"], ["micro_train_batch_size_per_gpu=3", "the 8 responses"]),
        (["trainer.micro_train_batch_size_per_gpu=16"], ["micro_train_batch_size_per_gpu=16"]),
        (["trainer.micro_train_batch_size_per_gpu=0"], ["at least 1"]),
        (["trainer.micro_forward_batch_size_per_gpu=0"], ["at least 1"]),
        (["trainer.placement.policy_num_nodes=3"], ["8 / 3", "whole number"]),
        ([*CRITIC, "trainer.critic_mini_batch_size=3"], ["trainer.critic_mini_batch_size=3"]),
    ],
)
def test_what_does_not_divide(refusal, settings, expected):
    message = refusal(*settings)
    for part in expected:
        assert part in message
