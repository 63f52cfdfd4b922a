"""RGDumpGenerator: SkyRL's generator, which also applies the rules of groups and records every group.

Invariant: the text, the score and the reward of a recorded rollout come from the one slot that its env filled, and the
recorded reward is exactly the one returned to SkyRL. The generator keeps no state of a batch except for the counts in
`summary` and `evaluated`, so that evaluation may overlap training. Rows of
other environments are recorded as SkyRL returned them, and not changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from loguru import logger
from skyrl.train.generators.base import GeneratorInput, GeneratorOutput
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.generators.utils import get_rollout_metrics

from rg_env.dataset import ENV_CLASS
from rg_env.dump import DumpPolicy, DumpWriter, GroupRecord, Outcome
from rg_env.dump.schema import answered
from rg_env.rewards import RolloutReward, Stopwatch, group_rewards, load_reward
from rg_env.rollout_log import RolloutLog
from rg_env.skyrl.env import RGDumpEnv, as_config, episode_metrics
from rg_env.skyrl.recorder import Call, Recorder
from rg_env.skyrl.steps import StepSummary


class RGDumpGenerator(SkyRLGymGenerator):
    """Computes rewards group by group and records every group.

    Args:
        writer: writes the groups; None records nothing.
        log_folder: for the traceback of a reward function that fails, and the log of rollouts; None writes none.
        Everything else: as `SkyRLGymGenerator`.
    """

    def __init__(
        self, *args: Any, writer: DumpWriter | None = None, log_folder: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.config = as_config(getattr(self.skyrl_gym_cfg, "rg_dump", None))
        self.writer = writer
        self.recorder = Recorder(self, writer, self.tokenizer, solved_at={ENV_CLASS: self.config.solved_at})
        policy = DumpPolicy.from_config(self.config)
        self.summary = StepSummary(self.config.solved_at, policy)
        """Of the training groups since it was last taken; the trainer takes it after each step."""
        self.evaluated = StepSummary(self.config.solved_at, policy)
        """Of the evaluation groups, taken after each evaluation."""
        self._reward = load_reward(self.config, log_folder)
        self.reward_errors: set[str] = set()
        """What the reward function's failures were, each logged once."""
        self.rollout_log = RolloutLog(log_folder) if self.config.debug_logging and log_folder else None

    async def generate(self, input_batch: GeneratorInput, disable_tqdm: bool = False) -> GeneratorOutput:
        """Generate, apply the rules of the groups, record.

        Returns:
            SkyRL's output with final rewards, in SkyRL's form (a float, or a list per token with the reward on the last
            one), with masked rollouts out of the loss and our metrics added. In training, the instance ids in
            `trajectory_ids` are `GroupUid`s in every mode of SkyRL, so that our trainers know the groups of a training
            batch. Rows of other environments are not changed.
        """
        call = self.recorder.begin(input_batch)
        output = await super().generate(call.input, disable_tqdm or self.config.suppress_base_env_logs)
        self.recorder.take(call, output)
        groups = call.groups_of_rg_dump()
        if self.batched:
            _share_generation([call.rollouts[one].stopwatch for group in groups for one in group])
        for group in groups:
            await self._reward_group(call, group)
        records = self.recorder.records(call)
        self._add_metrics(call, groups, [record for record in records if record.environment == ENV_CLASS])
        (self.summary if call.phase == "train" else self.evaluated).add(records)
        if self.rollout_log is not None:
            self.rollout_log.add(records)
        await self.recorder.write(call, records)
        return output

    async def _run_in_executor_if_available(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """SkyRL calls the methods of an environment through this, in a thread. Ours need none: `step` waits for the
        score in the event loop, the others only return."""
        env = getattr(func, "__self__", None)
        if type(env) is not RGDumpEnv:
            return await super()._run_in_executor_if_available(func, *args, **kwargs)
        return await env.step_async(*args, **kwargs) if func == env.step else func(*args, **kwargs)

    async def _reward_group(self, call: Call, group: Sequence[int]) -> None:
        """Apply the rules of a group, and put the rewards into SkyRL's output."""
        rollouts = [call.rollouts[trajectory] for trajectory in group]
        rewards = group_rewards(
            rollouts,
            self.config,
            max_length=self.generator_cfg.sampling_params.max_generate_length,
            penalize=call.phase == "train",
            zero_on_non_stop=self.generator_cfg.zero_reward_on_non_stop,
            custom=await self._reward.rate_async(rollouts, self.config) if self._reward else None,
        )
        self._warn(rewards)
        for trajectory, one in zip(group, rewards, strict=True):
            call.rewards[trajectory] = one
            _write_back(call.output, call.rows[trajectory][-1], one)

    def _warn(self, group: Sequence[RolloutReward]) -> None:
        for error in {one.reward_error for one in group} - self.reward_errors - {""}:
            self.reward_errors.add(error)
            logger.warning("the reward function failed, so its groups are not trained on: {}", error)

    def _add_metrics(self, call: Call, groups: Sequence[Sequence[int]], records: Sequence[GroupRecord]) -> None:
        """Add ours to SkyRL's rollout metrics, of which those that depend on rewards are computed again.

        Args:
            groups, records: of rg_dump.
        """
        metrics = call.output["rollout_metrics"] = dict(call.output.get("rollout_metrics") or {})
        if self.writer is not None:
            metrics["rg_dump/max_groups_not_on_disk"] = self.writer.missing
        if not records:
            return
        trajectories = call.trajectory_of_each_row()
        episodes = list(call.output.get("env_metrics") or [{} for _ in trajectories])
        for one in (one for group in groups for one in group):
            verdict, item = call.rollouts[one].verdict, call.rollouts[one].item
            assert item is not None
            counts = verdict.scored.status.is_counted
            episodes[call.rows[one][-1]] = episode_metrics(item, verdict, self.config.solved_at) if counts else {}
        # SkyRL computed loss-mask and timing metrics before overlong filtering: those stay.
        metrics |= get_rollout_metrics(
            call.output["response_ids"],
            [sum(reward) if isinstance(reward, list) else reward for reward in call.output["rewards"]],
            episodes,
            [call.env_class(trajectory) for trajectory in trajectories],
        )
        outcomes = Counter(record.outcome for record in records)
        for outcome in Outcome:
            metrics[f"rg_dump/mean_{outcome}"] = outcomes[outcome] / len(records)
        metrics["rg_dump/mean_no_signal"] = sum(record.no_signal for record in records) / len(records)
        rollouts = [rollout for record in records for rollout in record.rollouts]
        counted_ones = answered(rollouts)
        if counted_ones:
            count = len(counted_ones)
            metrics["rg_dump/mean_score"] = sum(rollout.score for rollout in counted_ones) / count
            metrics["rg_dump/mean_penalty_factor"] = sum(rollout.penalty_factor for rollout in counted_ones) / count
        masked = [call.rewards[one].masked for group in groups for one in group]
        metrics["rg_dump/mean_masked"] = sum(masked) / len(masked)
        metrics["rg_dump/mean_no_response"] = 1 - len(counted_ones) / len(rollouts)


def _share_generation(watches: Sequence[Stopwatch | None]) -> None:
    """All responses of a batch arrive together, and are then scored one after the other."""
    started = [watch for watch in watches if watch]
    arrived = min((watch.began + watch.generation for watch in started), default=0.0)
    for watch in started:
        watch.generation = max(0.0, arrived - watch.began)


def _write_back(output: GeneratorOutput, row: int, computed: RolloutReward) -> None:
    given = output["rewards"][row]
    if isinstance(given, list):
        output["rewards"][row] = [0.0] * (len(given) - 1) + [computed.reward] if given else []
    else:
        output["rewards"][row] = computed.reward
    if computed.masked:
        output["loss_masks"][row] = [0] * len(output["loss_masks"][row])
