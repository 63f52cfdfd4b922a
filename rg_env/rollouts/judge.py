"""Judge: a text becomes a verdict, a reward and a record. What every trainer does after generation.

Invariant: score → the user's reward function → the rules of the group → record, in this order, for SkyRL, `eval` and
`collect`, TRL and verifiers. Where texts come from, and where rewards go, is the trainer's.
Not covered: rewards of other environments, which keep theirs (`rg_env.skyrl.groups`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from loguru import logger

from rg_env.base.choices import SOLVED_AT
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump.schema import GroupRecord
from rg_env.rollouts.rewards import CustomRewards, load_reward, set_rewards
from rg_env.rollouts.rollout import Origin, Prompt, Rollout, Stopwatch, group_record
from rg_env.scoring import Scorer, Verdict, shared_scorer
from rg_env.scoring.scorer import Entry
from rg_env.tasks import Item


class Question(Protocol):
    """What scoring needs of an item."""

    @property
    def entry(self) -> Entry: ...

    @property
    def config(self) -> Mapping[str, Any] | None: ...


class Judge:
    """Scores texts and judges groups by one run's settings.

    Args:
        config: the settings.
        max_length: the longest response that is asked for, in tokens, at which the length penalty is complete. None:
            texts are scored only, and `reward` is not loaded.
        log_folder: for the traceback of a reward function that fails; None: it is written nowhere.

    Raises:
        UserCodeError, ConfigError: `config.reward` cannot be loaded.
    """

    def __init__(self, config: RGDumpConfig, *, max_length: int | None = None, log_folder: str | None = None) -> None:
        self.config = config
        self._max_length = max_length
        self._reward = None if max_length is None else load_reward(config, log_folder)
        self._said: set[str] = set()
        """How the reward function failed, each logged once."""

    @property
    def _scorer(self) -> Scorer:
        return shared_scorer(self.config.scorer)

    async def score(self, item: Question, text: str) -> Verdict:
        """Return the verdict on a response, in the running event loop. No text makes it raise.

        Raises:
            ScorerPoolError: the scorer processes cannot be started.
        """
        config = self.config
        return await self._scorer.score_response_async(
            item.entry, text, item.config, config.prefilled_think, config.format
        )

    def score_blocking(self, item: Question, text: str) -> Verdict:
        """`score`, for callers without an event loop."""
        config = self.config
        return self._scorer.score_response(item.entry, text, item.config, config.prefilled_think, config.format)

    def score_all(self, items: Sequence[Question], texts: Sequence[str]) -> list[tuple[Verdict, Stopwatch]]:
        """Return the verdicts on responses, in order, and how long each took. All scorer processes are used at once."""

        def score(item: Question, text: str) -> tuple[Verdict, Stopwatch]:
            watch = Stopwatch()
            verdict = self.score_blocking(item, text)
            watch.end_scoring()
            return verdict, watch

        # Threads, because they only wait for the scorer processes.
        with ThreadPoolExecutor(self._scorer.workers) as threads:
            return list(threads.map(score, items, texts))

    async def judge(self, group: Sequence[Rollout], *, penalize: bool, zero_on_non_stop: bool = False) -> None:
        """Set score, reward and mask of the rollouts of one prompt, by the user's function and the rules of the group.

        Args:
            penalize: False outside the train phase: no length penalty.
            zero_on_non_stop: as of `set_rewards`.
        """
        custom = None
        if self._reward:
            custom = await self._reward.rate_async(group, self.config)
        self._apply(group, custom, penalize, zero_on_non_stop)

    def judge_blocking(self, group: Sequence[Rollout], *, penalize: bool, zero_on_non_stop: bool = False) -> None:
        """`judge`, for callers without an event loop."""
        custom = self._reward.rate(group, self.config) if self._reward else None
        self._apply(group, custom, penalize, zero_on_non_stop)

    def _apply(
        self, group: Sequence[Rollout], custom: CustomRewards | None, penalize: bool, zero_on_non_stop: bool
    ) -> None:
        assert self._max_length is not None, "a judge without max_length only scores texts"
        set_rewards(
            group,
            self.config,
            max_length=self._max_length,
            penalize=penalize,
            zero_on_non_stop=zero_on_non_stop,
            custom=custom,
        )
        if isinstance(custom, str) and custom not in self._said:
            self._said.add(custom)
            logger.warning("the reward function failed, so its groups are not trained on: {}", custom)

    def record(self, origin: Origin, question: Item | Prompt, uid: str, group: Sequence[Rollout]) -> GroupRecord:
        """Return the record of a group, after `judge`. Arguments as of `group_record`."""
        # An environment of somebody else's has its own scores: the settings are not about them.
        solved_at = self.config.solved_at if isinstance(question, Item) else SOLVED_AT
        return group_record(origin, question, uid, group, solved_at)
