"""RGDumpEnv: one question, one response, one verdict. Scoring is in `rg_env.scoring`; no model output raises.

Under `RGDumpGenerator` each trajectory has a slot, a `Rollout`. The env writes the text and its verdict into this one
object, so that they cannot be paired with another rollout's. Under any other generator the env scores as well, but
records nothing and logs one warning.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import skyrl_gym
from loguru import logger
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from rg_env.config import RGDumpConfig
from rg_env.dataset import ENV_CLASS
from rg_env.errors import ConfigError
from rg_env.rewards import Rollout, Stopwatch, compose_reward
from rg_env.scoring import shared_scorer
from rg_env.scoring.length import LengthPenaltyConfig
from rg_env.scoring.types import ScorerConfig, Status, Verdict
from rg_env.tasks import Item

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
        self.item = (self.slot and self.slot.item) or Item.from_extra_info(extras.get("extra_info"))
        self.verdict: Verdict | None = None
        self._stopwatch = Stopwatch()
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
        verdict = shared_scorer(self.config.scorer).score_response(*self._question(action))
        reward = compose_reward(verdict.scored.score, verdict.parsed.violation is None, self.config)
        return self._ended(action, verdict, reward)

    async def step_async(self, action: str) -> BaseTextEnvStepOutput:
        """As `step`, in the running event loop, where no thread waits for the score. The reward is 0, because
        `RGDumpGenerator` computes it by the rules of the group."""
        self._stopwatch.end_generation()
        verdict = await shared_scorer(self.config.scorer).score_response_async(*self._question(action))
        return self._ended(action, verdict, 0.0)

    def _question(self, action: str) -> tuple[Any, ...]:
        """The arguments of `Scorer.score_response`."""
        return self.item.entry, action, self.item.config, self.config.prefilled_think, self.config.format

    def _ended(self, action: str, verdict: Verdict, reward: float) -> BaseTextEnvStepOutput:
        self._stopwatch.end_scoring()
        self.verdict = verdict
        if self.slot is not None:
            self.slot.text, self.slot.verdict, self.slot.stopwatch = action, verdict, self._stopwatch
        metadata = {**self.get_metrics(), "parsed_answer": verdict.parsed.answer}
        return BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata=metadata)

    def get_metrics(self) -> dict[str, Any]:
        """The verdict as one flat dict; empty before `step`."""
        return {} if self.verdict is None else episode_metrics(self.item, self.verdict, self.config.solved_at)

    @staticmethod
    def aggregate_metrics(metrics: list[dict[str, Any]]) -> dict[str, Any]:
        """Shares and means over many episodes, overall and per task.

        Every name contains `mean`, because SkyRL joins the metrics of batches by name and sums those it does not know.
        """
        seen = [episode for episode in metrics if episode]
        if not seen:
            return {}
        result = _shares(seen, "rg_dump")
        by_task: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for episode in seen:
            by_task[episode["task"]].append(episode)
        for task, episodes in by_task.items():
            result |= _shares(episodes, f"rg_dump/{task}")
        return result


def episode_metrics(item: Item, verdict: Verdict, solved_at: float) -> dict[str, Any]:
    """What `RGDumpEnv.aggregate_metrics` reads, for one rollout."""
    scored = verdict.scored
    return {
        "task": item.task,
        "raw_score": scored.raw,
        "tagged_score": scored.tagged,
        "base_score": scored.score,
        "solved": scored.score >= solved_at,
        "violation": verdict.parsed.violation.value if verdict.parsed.violation else None,
        "status": scored.status.value,
        "normalized": scored.normalized,
    }


def _shares(episodes: Sequence[Mapping[str, Any]], prefix: str) -> dict[str, float]:
    count = len(episodes)
    violations = Counter(episode["violation"] for episode in episodes)
    statuses = Counter(episode["status"] for episode in episodes)
    result = {
        f"{prefix}/mean_base_score": sum(episode["base_score"] for episode in episodes) / count,
        f"{prefix}/mean_solved": sum(episode["solved"] for episode in episodes) / count,
        f"{prefix}/mean_well_formed": violations[None] / count,
    }
    if normalized := sum(episode["normalized"] for episode in episodes):
        result[f"{prefix}/mean_normalized"] = normalized / count
    result |= {f"{prefix}/mean_violation_{name}": n / count for name, n in violations.items() if name}
    result |= {f"{prefix}/mean_status_{name}": n / count for name, n in statuses.items() if name != Status.OK}
    return result


def as_config(env_config: object) -> RGDumpConfig:
    """The settings, in any form in which SkyRL passes them.

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
