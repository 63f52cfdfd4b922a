"""math-verify (`pip install math-verify`) in processes that can be killed, as a reward for three trainers.

Powers of powers keep sympy busy for hours. math-verify's own timeouts are signals, which work in the main thread only,
and count wall time, so that a busy machine makes right answers wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from math_verify import parse, verify

from rg_env.rollouts.rewards import Rollout
from rg_env.scoring import Verdict, guarded, parse_response
from rg_env.trainers.scoring import text_of


def equal(right: str, answer: str) -> bool:
    """Whether two texts are the same number, set or expression. Without math-verify's own timeouts, after which it
    says that they are not."""
    one, other = (parse(f"${text}$", parsing_timeout=None) for text in (right, answer))
    return bool(verify(one, other, timeout_seconds=None))


equality = guarded(equal, timeout=2.0, examples=[(("1/2", "0.5"), True), (("x^2", "x"), False)])
"""`equal`, each call in a process of its own: math-verify evaluates what it parses. The examples warm it up."""


def skyrl_reward(rollouts: Sequence[Rollout]) -> list[float]:
    """SkyRL, `reward: examples.math_reward.skyrl_reward`: what equals a right answer of the group is right as well."""
    verdicts = [rollout.verdict for rollout in rollouts]
    right = next((one.parsed.answer for one in verdicts if one.scored.score == 1), None)
    return [
        one.scored.score if right is None or one.parsed.answer is None else _value(right, one.parsed.answer, one)
        for one in verdicts
    ]


def _value(right: str, answer: str, verdict: Verdict) -> float:
    value = equality.score(right, answer).value
    return max(verdict.scored.score, value) if isinstance(value, float) else verdict.scored.score


def trl_reward(completions: Sequence[Any], answer: Sequence[str], **_: Any) -> list[float | None]:
    """TRL, `GRPOTrainer(reward_funcs=trl_reward)`, for a dataset with a column `answer`. None: not scored.

    A completion is a text or a list of messages, with its answer in tags or as a whole.
    """
    texts = map(text_of, completions)
    given = [parse_response(text).answer or text for text in texts]

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*map(equality.ascore, answer, given))

    return [score.value for score in asyncio.run(all_of_them())]


async def verifiers_reward(answer: str, reply: str) -> float:
    """verifiers, awaited by a method of a task that `@vf.reward` marks. An exception is an error of the trace."""
    score = await equality.ascore(answer, reply)
    if not isinstance(score.value, float):
        raise RuntimeError(f"{score.status}: {score.detail}")
    return score.value
