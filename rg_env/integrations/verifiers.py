"""Reasoning Gym as an environment of the package `verifiers`, up to 0.3: `load_environment()`.

    vf.load_environment("rg_env.integrations.verifiers", tasks=["gcd"])

Invariant: a rollout whose scorer failed has an `InfraError`, which trainers leave out and verifiers can retry
(`max_retries`), and never the reward 0.

Not covered: dumps, and the length penalty, which depends on lengths that verifiers does not always know.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import verifiers as vf

from rg_env.config import LengthPenaltyConfig, RGDumpConfig
from rg_env.dataset import ReasoningGymDataset, prompt_options
from rg_env.integrations.scoring import checked, item_from_text, item_to_text, text_of
from rg_env.rewards import Rollout, settle_group
from rg_env.rollouts.settings import apply_overrides
from rg_env.scoring import Verdict, shared_scorer
from rg_env.user_code import load_reward

if TYPE_CHECKING:
    import datasets


def load_environment(
    tasks: Any = None,
    num_train_examples: int = 1000,
    num_eval_examples: int = 100,
    settings: Mapping[str, Any] | None = None,
) -> Any:
    """A `SingleTurnEnv` with our questions, prompt and scorers.

    Args:
        tasks: the task mix, as in the setting `tasks`; None: the default mix.
        num_train_examples, num_eval_examples: questions; none is in both sets.
        settings: settings of rg_env by name, such as `{"format": "lenient", "scorer.timeout": 10}`.

    Raises:
        ConfigError: an argument is invalid.
    """
    config = RGDumpConfig(tasks=tasks)
    apply_overrides(config, [f"{name}={json.dumps(value)}" for name, value in (settings or {}).items()])
    config = checked(config, length_penalty=LengthPenaltyConfig(kind="none"))
    return vf.SingleTurnEnv(
        dataset=lambda: _dataset(config, "train", config.seed, num_train_examples),
        eval_dataset=lambda: _dataset(config, "eval", config.eval_seed, num_eval_examples),
        rubric=RGRubric(config),
    )


class RGRubric(vf.Rubric):
    """Scores rollouts in the scorer processes. The metrics of a rollout: `base_score`, `solved`, `well_formed`, and
    `scored`, which is 0 where the scorer failed or there is no response.
    """

    def __init__(self, config: RGDumpConfig) -> None:
        super().__init__()
        self._config = config
        self._reward = load_reward(config)

    async def score_rollout(self, state: Any) -> None:
        """Set reward, metrics and, if the scorer failed, the error of one rollout."""
        await self._score([state])

    async def score_group(self, states: Sequence[Any]) -> None:
        """The same for the rollouts of a prompt. One whose scorer failed gets the mean reward of the others, and so no
        advantage; NaN if there are no others.
        """
        await self._score(states)
        rewards = [state["reward"] for state in states]
        mean = sum(rewards) / len(rewards)
        for state in states:
            state["advantage"] = 0.0 if math.isnan(mean) else state["reward"] - mean
            for step in state["trajectory"]:
                step["reward"], step["advantage"] = state["reward"], state["advantage"]

    async def _score(self, states: Sequence[Any]) -> None:
        verdicts = await asyncio.gather(*map(self._verdict, states))
        rollouts = [Rollout(verdict, None, None) for verdict in verdicts]
        earned = settle_group(rollouts, self._config, max_length=1, penalize=False, reward_function=self._reward)
        nothing_scored = all(one.masked for one in earned)
        for state, verdict, one in zip(states, verdicts, earned, strict=True):
            state["reward"] = math.nan if nothing_scored else one.reward
            state["metrics"] = {
                "base_score": verdict.scored.score,
                "solved": float(verdict.scored.score >= self._config.solved_at),
                "well_formed": float(verdict.parsed.answer is not None),
                "scored": float(not one.masked),
            }
            if one.masked and state.get("error") is None:
                state["error"] = vf.InfraError(one.reward_error or f"{verdict.scored.status}: {verdict.scored.detail}")

    async def _verdict(self, state: Any) -> Verdict:
        if state.get("error") is not None or not state.get("completion"):
            return Verdict.no_response("the request failed")
        item = item_from_text(state["info"]["rg_item"])
        scorer, config = shared_scorer(self._config.scorer), self._config
        text = text_of(state["completion"])
        return await scorer.judge_async(item.entry, text, item.config, config.prefilled_think, config.format)


def _dataset(config: RGDumpConfig, split: str, seed: int, count: int) -> datasets.Dataset:
    from datasets import Dataset

    rows = ReasoningGymDataset(config.tasks, size=count, seed=seed, split=split, **prompt_options(config))
    made = (rows.row(index) for index in range(count))
    return Dataset.from_list(
        [
            {
                "prompt": row["prompt"],
                "answer": row["reward_spec"]["ground_truth"],
                "info": {"rg_item": item_to_text(row["extra_info"])},  # verifiers reads some other keys
            }
            for row in made
        ]
    )
