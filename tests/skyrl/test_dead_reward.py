"""After the first steps of SkyRL's loops, a reward from which nothing can be learned is said once, with the setting."""

import pytest
from loguru import logger

from rg_env.dump import open_run
from tests.skyrl import scripted_training
from tests.skyrl.scripted_training import FULLY_ASYNC, Script, build, train

STEPS = "rg_env.skyrl.trainers.FIRST_STEPS"


class Untagged(Script):
    """No response has a think block."""

    def __call__(self, prompt, sample):
        return super().__call__(prompt, sample).replace("<think>", "")


def warnings_of(trainer):
    """Train; what was logged as a warning. SkyRL has set up the log anew when the trainer was made."""
    messages = []
    handler = logger.add(lambda message: messages.append(message.record["message"]), level="WARNING")
    train(trainer)
    logger.remove(handler)
    return messages


@pytest.mark.parametrize("loop", [{}, FULLY_ASYNC])
def test_a_dead_reward_is_said_once(tmp_path, monkeypatch, loop):
    monkeypatch.setattr(scripted_training, "Script", Untagged)
    monkeypatch.setattr(STEPS, 2)
    warnings = warnings_of(build(tmp_path, **loop, trainer__epochs=2))
    assert max(group.step for group in open_run(tmp_path / "dumps").ledger()) > 2
    (line,) = [line for line in warnings if "the reward is dead" in line]
    assert line.startswith("the reward is dead: in the first 2 steps, 0.0% of the responses are well-formed")
    assert "format=lenient" in line


def test_a_reward_that_is_alive_is_no_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(STEPS, 2)
    warnings = warnings_of(build(tmp_path))
    assert not [line for line in warnings if "dead" in line]
