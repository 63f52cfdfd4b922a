"""RGDumpEnv: one question, one response, one verdict. Scoring is in `rg_env.scoring`; no model output raises.

Under `RGDumpGenerator` each trajectory has a slot, a `Rollout`. The env writes the text and its verdict into this one
object, so that they cannot be paired with another rollout's. Under any other generator the env scores as well, but
records nothing and logs one warning.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import skyrl_gym
from loguru import logger
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from rg_env.base.errors import ConfigError
from rg_env.configuration.config import LengthPenaltyConfig, RGDumpConfig, ScorerConfig
from rg_env.rollouts.judge import Judge
from rg_env.rollouts.rewards import compose_reward
from rg_env.rollouts.rollout import Rollout, Stopwatch
from rg_env.scoring.types import Verdict
from rg_env.skyrl.tally import Counts, named_shares
from rg_env.tasks import Item
from rg_env.tasks.item import ENV_CLASS

SLOT = "rg_dump_slot"
"""Key of a trajectory's slot in its `env_extras`."""


def register() -> None:
    """Let `skyrl_gym.make("rg_dump", ...)` work in this process. Safe to call more than once.

    For stock SkyRL and other generators; `rg-env train` does it itself.
    """
    if ENV_CLASS not in skyrl_gym.envs.registration.registry:
        skyrl_gym.envs.register(id=ENV_CLASS, entry_point="rg_env.skyrl.env:RGDumpEnv")


class RGDumpEnv(BaseTextEnv):
    """A Reasoning Gym item as a single-turn SkyRL environment (`environment.env_class=rg_dump`).

    Args:
        env_config: `environment.skyrl_gym.rg_dump`: an `RGDumpConfig`, or a mapping of its fields, or nothing.
        extras: the row's columns besides the prompt; `extra_info` carries the item.

    Raises:
        ConfigError: the row was not made by `ReasoningGymDataset`.
    """

    _warned_unrecorded = False

    def __init__(self, env_config: object = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        extras = extras or {}
        self.config = as_config(env_config)
        self.slot: Rollout | None = extras.get(SLOT)
        # An item in the slot has been read already, once for all rollouts of its group.
        self.item = (self.slot and self.slot.item) or Item.from_extra_info(extras.get("extra_info"))
        self.verdict: Verdict | None = None
        self._judge = Judge(self.config)
        self._stopwatch = Stopwatch()
        # Once in a process: there is an environment for every trajectory.
        if self.slot is None and not RGDumpEnv._warned_unrecorded:
            RGDumpEnv._warned_unrecorded = True
            logger.warning("rg_dump scores but records nothing, because the generator is not RGDumpGenerator")

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Score one response; the episode ends.

        Returns:
            no observations, `done`, and a `reward` from the base score, without the rules of groups. `metadata` has the
            verdict's numbers and `parsed_answer`.

        Raises:
            ScorerPoolError: the scorer processes cannot be started. Never because of `action`.
        """
        self._stopwatch.end_generation()
        verdict = self._judge.score_blocking(self.item, action)
        reward = compose_reward(verdict.scored.score, verdict.parsed.violation is None, self.config)
        return self._fill(action, verdict, reward)

    async def step_async(self, action: str) -> BaseTextEnvStepOutput:
        """As `step`, in the running event loop, where no thread waits for the score. The reward is 0, because
        `RGDumpGenerator` computes it by the rules of the group."""
        self._stopwatch.end_generation()
        verdict = await self._judge.score(self.item, action)
        return self._fill(action, verdict, 0.0)

    def _fill(self, action: str, verdict: Verdict, reward: float) -> BaseTextEnvStepOutput:
        self._stopwatch.end_scoring()
        self.verdict = verdict
        if self.slot is not None:
            self.slot.text, self.slot.verdict, self.slot.stopwatch = action, verdict, self._stopwatch
        # The answer is not a metric: `aggregate_metrics` gets what `get_metrics` returns.
        metadata = {**self.get_metrics(), "parsed_answer": verdict.parsed.answer}
        return BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata=metadata)

    def get_metrics(self) -> dict[str, Any]:
        """Return the verdict as one flat dict; empty before `step`."""
        if self.verdict is None:
            return {}
        parsed, scored = self.verdict.parsed, self.verdict.scored
        return {
            "task": self.item.task,
            "raw_score": scored.raw,
            "tagged_score": scored.tagged,
            "base_score": scored.score,
            "solved": scored.score >= self.config.solved_at,
            "violation": parsed.violation.value if parsed.violation else None,
            "status": scored.status.value,
            "normalized": scored.normalized,
        }

    @staticmethod
    def aggregate_metrics(metrics: list[dict[str, Any]]) -> dict[str, Any]:
        """Shares and means over many episodes, overall and per task, for generators other than ours.

        Every name contains `mean`, because SkyRL joins the metrics of batches by name and sums those it does not know.
        `RGDumpGenerator` and the trainers write the figures of their tally over these.
        """
        of_tasks: dict[str, Counts] = defaultdict(Counts)
        for episode in metrics:
            if not episode:  # the rollout failed before it was scored
                continue
            for counts in (of_tasks[""], of_tasks[episode["task"]]):  # all tasks together, and its own
                counts.count_response(
                    episode["base_score"],
                    solved=episode["solved"],
                    violation=episode["violation"] or "",
                    normalized=episode["normalized"],
                )
                counts.statuses[episode["status"]] += 1
        result: dict[str, Any] = {}
        for task, counts in of_tasks.items():
            result |= named_shares(counts, task)
        return result


def as_config(env_config: object) -> RGDumpConfig:
    """Return the settings, of any type that SkyRL passes.

    Stock SkyRL has no `rg_dump` in its config and passes an empty mapping, which means the defaults.

    Raises:
        ConfigError: there is no such setting.
    """
    if isinstance(env_config, RGDumpConfig):
        return env_config
    values = dict(env_config) if isinstance(env_config, Mapping) else {}
    known = {field.name for field in fields(RGDumpConfig)}
    if unknown := sorted(set(values) - known):
        raise ConfigError(f"rg_dump has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}")
    if isinstance(values.get("scorer"), Mapping):
        values["scorer"] = ScorerConfig(**values["scorer"])
    if isinstance(values.get("length_penalty"), Mapping):
        values["length_penalty"] = LengthPenaltyConfig(**values["length_penalty"])
    return RGDumpConfig(**values)
