"""examples/math_reward.py: math-verify, which answers can keep busy, as a reward."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from examples import math_reward
from rg_env.configuration.config import RGDumpConfig
from rg_env.rollouts.rewards import load_reward
from rg_env.rollouts.rollout import Rollout
from rg_env.scoring import AnswerScore, Status, Verdict, guarded, parse_response


@pytest.fixture(scope="module", autouse=True)
def closing() -> Iterator[None]:
    yield
    math_reward.equality.close()


def verdict(answer: str, score: float) -> Verdict:
    text = f"<think></think><answer>{answer}</answer>" if answer else "no answer"
    return Verdict(parse_response(text), AnswerScore(score, 0.0, score, Status.OK))


def test_skyrl_rewards_what_equals_a_right_answer_of_the_group() -> None:
    reward = load_reward(RGDumpConfig(reward="examples.math_reward.skyrl_reward"))
    assert reward is not None
    verdicts = [verdict(r"\frac{1}{2}", 1.0), verdict("0.5", 0.1), verdict("1/3", 0.1), verdict("", 0.0)]
    group = [Rollout(verdict) for verdict in verdicts]
    assert reward.rate(group, RGDumpConfig()) == [1.0, 1.0, 0.1, 0.0]
    assert reward.rate(group[1:], RGDumpConfig()) == [0.1, 0.1, 0.0]


def test_trl_gets_a_reward_for_each_completion_whatever_hangs() -> None:
    texts = ["0.5", "1/3", "<think>1/3, or not</think><answer>0.5</answer>"]
    messages = [[{"role": "assistant", "content": text}] for text in texts]
    for completions in (texts, messages):
        half = [r"\frac{1}{2}"] * 3
        assert math_reward.trl_reward(completions=completions, answer=half, prompts=[""] * 3) == [1.0, 0.0, 1.0]


def sleep(right: str, answer: str) -> float:
    time.sleep(600)
    return 1.0


def test_verifiers_gets_a_number_or_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scores() -> list[float]:
        return await asyncio.gather(*(math_reward.verifiers_reward("12", answer) for answer in ("12.0", "13")))

    assert asyncio.run(scores()) == [1.0, 0.0]
    with guarded(sleep, timeout=0.5) as asleep:
        monkeypatch.setattr(math_reward, "equality", asleep)
        with pytest.raises(RuntimeError, match=r"^timeout: "):
            asyncio.run(math_reward.verifiers_reward("12", "12"))
