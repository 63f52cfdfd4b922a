"""Batch sizes that do not divide are refused in one line."""

import pytest

CRITIC = ("trainer.algorithm.advantage_estimator=gae", "trainer.critic.model.path=nano")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["trainer.train_batch_size=10"], "train_batch_size 10 should be divisible by policy_mini_batch_size 4"),
        (["trainer.train_batch_size=2"], "trainer.train_batch_size >= trainer.policy_mini_batch_size"),
        (["trainer.policy_mini_batch_size=0"], "policy_mini_batch_size=0: must be a whole number of at least 1"),
        (["trainer.micro_train_batch_size_per_gpu=3"], "micro_train_batch_size_per_gpu 3"),
        (["trainer.micro_train_batch_size_per_gpu=0"], "at least 1"),
        (
            ["trainer.placement.policy_num_nodes=3", "trainer.placement.ref_num_nodes=3"],
            "8 responses of a mini-batch do not divide by 3 policy workers",
        ),
        ([*CRITIC, "trainer.critic_mini_batch_size=3"], "critic_mini_batch_size 3"),
    ],
)
def test_what_does_not_divide(refusal, settings, expected):
    assert expected in refusal(*settings)
