"""RGDumpGenerator: SkyRL's generator, which also applies the rules of groups and records every group.

Invariant: the text, the score and the reward of a recorded rollout come from the one slot that its env filled, and the
recorded reward is exactly the one returned to SkyRL. The generator keeps no state of a batch except for the tally of an
evaluation, so that evaluation may overlap training. Rows of other environments are recorded as SkyRL returned them, and
not changed, unless their reward is not a finite number.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from loguru import logger
from skyrl.train.generators.base import GeneratorInput, GeneratorOutput, TrajectoryID
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.generators.utils import get_rollout_metrics

from rg_env.base.errors import describe, refuse
from rg_env.dump import DumpWriter, GroupRecord, Phase
from rg_env.rollouts.judge import Judge
from rg_env.rollouts.rewards import mean_reward
from rg_env.rollouts.rollout import Rollout
from rg_env.rows.templates import system_message_optional
from rg_env.scoring.types import Status
from rg_env.skyrl.env import RGDumpEnv, as_config
from rg_env.skyrl.groups import Group, UnscoredWarning, fill_groups, origin_of, record_groups, with_slots
from rg_env.skyrl.tally import Tally, is_unsolved, write_over
from rg_env.skyrl.turns import note_turns, noted_dialogs
from rg_env.tasks.item import ENV_CLASS

if TYPE_CHECKING:
    from rg_env.rollouts.rollout_log import RolloutLog
    from rg_env.skyrl.canaries import Canaries

_PHASE: ContextVar[Phase | None] = ContextVar("_PHASE", default=None)
"""Of the call in which a response is scored: training and evaluation may overlap. None: SkyRL's own `generate` was
called instead of ours, as `scripts/skyrl_alone.py` does."""


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
        tokenizer = signature(SkyRLGymGenerator).bind(*args, **kwargs).arguments["tokenizer"]
        with system_message_optional(tokenizer):
            super().__init__(*args, **kwargs)
        # Checked again here, for those who make a generator without `rg-env train`.
        if self.batched:
            from rg_env.skyrl.combinations import NOT_BATCHED

            refuse("generator.batched", True, NOT_BATCHED)
        self.config = as_config(getattr(self.skyrl_gym_cfg, "rg_dump", None))
        self.writer = writer
        self.canaries: Canaries | None = None
        """Set by the trainer."""
        self._evaluation = Tally(self.config)
        self.rollout_log: RolloutLog | None = None
        if self.config.debug_logging and log_folder:
            from rg_env.rollouts.rollout_log import RolloutLog

            self.rollout_log = RolloutLog(log_folder, self.config)
        longest = self.generator_cfg.sampling_params.max_generate_length
        self._judge = Judge(self.config, max_length=longest, log_folder=log_folder)
        note_turns(self)
        self._calls = itertools.count()
        self._has_failed = False
        self._unscored = UnscoredWarning("they are kept out of the loss")

    def take_evaluation(self) -> Tally:
        """Return the tally of the evaluation that has just ended: of all its groups since the last call."""
        taken, self._evaluation = self._evaluation, Tally(self.config)
        return taken

    async def generate(self, input_batch: GeneratorInput, disable_tqdm: bool = False) -> GeneratorOutput:
        """Generate, apply the rules of the groups, record.

        Returns:
            SkyRL's output with final rewards, as SkyRL has them (a float, or a list per token, the reward on the last
            one), with masked rollouts out of the loss and our metrics added. In training, `group_ids` and `masked` say
            of each row which group it is of, and whether it is kept out of the loss, and `groups` has the group's
            record. Rows of other environments are not changed, except in training those without a finite reward, which
            are masked.
        """
        # Before SkyRL's part: the engine may get new weights while it runs, and the record says with which it began.
        origin = origin_of(input_batch, self.writer, self.inference_engine_client, next(self._calls))
        began = time.time()
        batch = with_slots(input_batch)  # makes the rollouts
        _PHASE.set(origin.phase)  # the tasks of this call copy it
        with noted_dialogs() as dialogs:
            output = await super().generate(batch, disable_tqdm or self.config.suppress_base_env_logs)
        # The environments have filled in text and verdict. What follows completes, judges and records the rollouts, in
        # this order: the rules of a group need its stop reasons and lengths, and a record needs the final rewards.
        groups = fill_groups(batch, output, dialogs=dialogs, tokenizer=self.tokenizer, began=began)
        self._unscored.say(groups)
        is_training = origin.phase is Phase.TRAIN
        for group in groups:
            if group.env_class == ENV_CLASS:
                await self._reward_group(group, output, penalize=is_training)
            elif is_training:
                self._leave_out_unscored(group, output)
        records = record_groups(origin, groups, output, self._judge.record)
        # After the records are made: their `masked` is about the rules of a group, not about this setting.
        if is_training and not self.config.train_unsolved:
            self._leave_out_unsolved(output)
        self._add_metrics(output, records)
        if origin.phase is Phase.EVAL:
            self._evaluation.count(records)
        if self.rollout_log is not None:
            self.rollout_log.log_groups(records)
        # Last and awaited: when SkyRL gets the output, the operating system has its groups.
        if self.writer is not None:
            await self.writer.write(records)
        return output

    async def agent_loop(
        self,
        prompt: Any,
        env_class: str,
        env_extras: dict[str, Any],
        *args: Any,
        trajectory_id: TrajectoryID | None = None,
        **kwargs: Any,
    ) -> Any:
        """As in SkyRL. The first rollout that raises is logged: SkyRL ends the run without saying which it was.

        Not tried again: the environment of a second try would fill the same slot, and the dialog (`note_turns`) would
        have the turns of both.
        """
        try:
            return await super().agent_loop(prompt, env_class, env_extras, *args, trajectory_id=trajectory_id, **kwargs)
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                self._log_failure(error, env_class, env_extras, trajectory_id)
            raise

    def _log_failure(
        self, error: Exception, env_class: str, env_extras: dict[str, Any], trajectory_id: TrajectoryID | None
    ) -> None:
        """Log which rollout ends the run: by its item in rg_dump, by environment and SkyRL's uid in others."""
        uid, repetition = "", 0
        if trajectory_id:
            uid, repetition = trajectory_id.instance_id, trajectory_id.repetition_id
        extra_info = env_extras.get("extra_info") or {}
        logger.error(
            "rollout {} of {} failed: {}. SkyRL 0.4.0 cannot leave a rollout out (SkyRL#1613), so the run "
            "ends; continue from the last checkpoint with trainer.resume_mode=latest",
            repetition,
            extra_info.get("item") or f"{env_class} {uid}",
            describe(error),
        )

    async def _run_in_executor_if_available(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """SkyRL calls the methods of an environment through this, in a thread. Ours need none: `step` waits for the
        score in the event loop, the others only return."""
        env = getattr(func, "__self__", None)
        # Exactly ours: a subclass may block in any method, so it keeps SkyRL's thread.
        if type(env) is not RGDumpEnv:
            return await super()._run_in_executor_if_available(func, *args, **kwargs)
        if func == env.step:
            scoring = partial(env.step_async, *args, **kwargs)
            if self.canaries is None or _PHASE.get() is not Phase.TRAIN:
                return await scoring()
            return await self.canaries.accompany(env.item, args[0], scoring)
        return func(*args, **kwargs)

    async def _reward_group(self, group: Group, output: GeneratorOutput, *, penalize: bool) -> None:
        """Apply the rules of a group, and put the rewards into SkyRL's output."""
        zero_on_non_stop = self.generator_cfg.zero_reward_on_non_stop
        await self._judge.judge(group.rollouts, penalize=penalize, zero_on_non_stop=zero_on_non_stop)
        for rows, rollout in zip(group.rows, group.rollouts, strict=True):
            _put_reward(output, rows, rollout)

    def _leave_out_unscored(self, group: Group, output: GeneratorOutput) -> None:
        """Take the rollouts to which another environment gave no finite reward out of the loss.

        As other masked ones, they get the mean reward of their group: NaN would make all its advantages NaN.
        """
        mean = mean_reward([rollout.reward for rollout in group.rollouts if not rollout.masked])
        for rows, rollout in zip(group.rows, group.rollouts, strict=True):
            if rollout.verdict.scored.status is Status.UNSCORED:
                rollout.reward = mean
                _put_reward(output, rows, rollout)

    def _leave_out_unsolved(self, output: GeneratorOutput) -> None:
        """Take the rows of groups without a solved rollout out of the loss. Their rewards stay."""
        for row, record in enumerate(output["groups"]):
            if is_unsolved(record, self.config.solved_at):
                output["masked"][row] = True
                _mask_row(output, row)

    def _add_metrics(self, output: GeneratorOutput, records: Sequence[GroupRecord]) -> None:
        """Put ours into SkyRL's rollout metrics, of which those that depend on rewards are computed again.

        These are of one call. `RGTrainerMixin` writes those of the step or evaluation over them.
        """
        metrics = output["rollout_metrics"] = dict(output.get("rollout_metrics") or {})
        if self.writer is not None:
            metrics["rg_dump/max_groups_not_on_disk"] = self.writer.missing
        if any(record.environment == ENV_CLASS for record in records):
            # SkyRL computed loss-mask and timing metrics before overlong filtering: those stay.
            totals = []
            for reward in output["rewards"]:
                totals.append(sum(reward) if isinstance(reward, list) else reward)
            metrics |= get_rollout_metrics(output["response_ids"], totals)
        write_over(metrics, Tally(self.config, records))


def _put_reward(output: GeneratorOutput, rows: range, rollout: Rollout) -> None:
    """Put the reward of a rollout into its last row, and take the rows of a masked one out of the loss. A rollout that
    SkyRL never asked for has no row."""
    for row in rows:
        reward = rollout.reward if row == rows[-1] else 0.0
        returned = output["rewards"][row]
        if isinstance(returned, list):  # a reward for each token: SkyRL has the outcome on the last one
            before_last = [0.0] * (len(returned) - 1)
            output["rewards"][row] = [*before_last, reward]
        else:
            output["rewards"][row] = reward
        if rollout.masked:
            _mask_row(output, row)


def _mask_row(output: GeneratorOutput, row: int) -> None:
    """Take all tokens of a row out of the loss."""
    length = len(output["loss_masks"][row])
    output["loss_masks"][row] = [0] * length
