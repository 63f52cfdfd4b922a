"""RGDumpGenerator: SkyRL's generator, which also applies the rules of groups and records every group.

Invariant: the text, the score and the reward of a recorded rollout come from the one slot that its env filled, and the
recorded reward is exactly the one returned to SkyRL. The generator keeps no state of a batch except for the counts in
`summary` and `evaluated` and the rollouts in `table`, each by phase, so that evaluation may overlap training.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loguru import logger
from skyrl.train.generators.base import GeneratorInput, GeneratorOutput, TrajectoryID
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.generators.utils import get_rollout_metrics

from rg_env.curriculum import GroupFacts, RolloutFacts
from rg_env.dataset import ENV_CLASS
from rg_env.dump import DumpPolicy, DumpWriter, GroupRecord, LevelRecord, Outcome
from rg_env.dump.schema import answered
from rg_env.rewards import Earned, settle_group
from rg_env.rollouts.group import JudgedRollout, Origin, group_record
from rg_env.rollouts.stopwatch import Stopwatch
from rg_env.rollouts.summary import StepSummary, counted
from rg_env.scoring.types import Verdict
from rg_env.skyrl.env import SLOT, RGDumpEnv, RolloutSlot, as_config, episode_metrics
from rg_env.skyrl.group_uid import GroupUid
from rg_env.skyrl.loader import TrainLoader
from rg_env.skyrl.rollout_table import RolloutTable
from rg_env.tasks import Item
from rg_env.user_code import load_reward


@dataclass(frozen=True, slots=True)
class _Rollout(JudgedRollout):
    """A rollout with its place in the batch.

    Attributes:
        row: its last output row, which has the reward.
    """

    item: Item
    uid: str
    row: int


@dataclass(frozen=True, slots=True)
class _Batch:
    """One `generate()` call.

    Attributes:
        rows: the output rows of each trajectory: one, or one per step in step-wise mode.
        call: number of the call on this generator.
        step: SkyRL's global step; None outside of training.
        weight_version: of the policy before the call, if SkyRL knows it.
    """

    input: GeneratorInput
    output: GeneratorOutput
    slots: Sequence[RolloutSlot]
    rows: Sequence[range]
    call: int
    phase: str
    step: int | None
    weight_version: int | str | None

    def trajectory_of_each_row(self) -> list[int]:
        return [position for position, rows in enumerate(self.rows) for _ in rows]


class RGDumpGenerator(SkyRLGymGenerator):
    """Computes rewards group by group and records every group.

    Args:
        writer: writes the groups; None records nothing.
        log_folder: for the traceback of a reward function that fails; None writes none.
        Everything else: as `SkyRLGymGenerator`.
    """

    def __init__(
        self, *args: Any, writer: DumpWriter | None = None, log_folder: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.config = as_config(getattr(self.skyrl_gym_cfg, "rg_dump", None))
        self.writer = writer
        self.loader: TrainLoader | None = None
        """The loader of the training batches, set by the trainer; it learns what became of its rows."""
        policy = DumpPolicy.from_config(self.config)
        self.summary = StepSummary(self.config.solved_at, policy)
        """Of the training groups since it was last taken; the trainer takes it after each step."""
        self.evaluated = StepSummary(self.config.solved_at, policy)
        """Of the evaluation groups, taken after each evaluation."""
        self._reward = load_reward(self.config, log_folder)
        self._reward_errors: set[str] = set()
        """What the reward function's failures were, each logged once."""
        self.table = RolloutTable(self.config.log_rollouts)
        """Rollouts for the tracker, which the trainer logs after each step and evaluation."""
        self._calls = itertools.count()

    async def generate(self, input_batch: GeneratorInput, disable_tqdm: bool = False) -> GeneratorOutput:
        """Generate, apply the rules of the groups, record.

        Returns:
            SkyRL's output with final rewards, in SkyRL's form (a float, or a list per token with the reward on the last
            one), with masked rollouts out of the loss and our metrics added. In training, the instance ids in
            `trajectory_ids` are `GroupUid`s in every mode of SkyRL, so that our trainers know the groups of a training
            batch. Rows of other environments are not changed.
        """
        call = next(self._calls)
        slots = [RolloutSlot() for _ in input_batch["prompts"]]
        extras = [{**(extra or {}), SLOT: slot} for extra, slot in zip(input_batch["env_extras"], slots, strict=True)]
        weight_version = getattr(self.inference_engine_client, "weight_version", None)
        disable_tqdm = disable_tqdm or self.config.suppress_base_env_logs
        output = await super().generate({**input_batch, "env_extras": extras}, disable_tqdm)

        metadata = input_batch.get("batch_metadata")
        phase, step = (metadata.training_phase, metadata.global_step) if metadata else ("eval", None)
        if self.batched:
            _share_generation([slot.stopwatch for slot in slots if slot.stopwatch])
        rows = _rows_of_trajectories(output, len(slots))
        batch = _Batch(input_batch, output, slots, rows, call, phase, step, weight_version)
        groups = self._groups(batch)
        records, masked = [], 0
        for group in groups:
            earned = self._settle(batch, group)
            self._warn(earned)
            _write_back(output, group, earned)
            records.append(self._record(batch, group, earned))
            masked += sum(one.masked for one in earned)
        moves = self._observe(batch, groups)
        output["rollout_metrics"] = self._metrics(batch, groups, records, masked)
        if phase == "train" and input_batch.get("trajectory_ids"):
            output["trajectory_ids"] = _name_groups(batch, records)
        (self.summary if phase == "train" else self.evaluated).add(records)
        self.table.add(phase, records)
        self._log(records)
        if self.writer is not None:
            await self.writer.write(records, timeout=self.config.dump_ack_timeout)
            self.writer.submit(moves)
        return output

    async def _run_in_executor_if_available(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """SkyRL calls the methods of an environment through this, in a thread. Ours need none: `step` waits for the
        score in the event loop, the others only return."""
        env = getattr(func, "__self__", None)
        if type(env) is not RGDumpEnv:
            return await super()._run_in_executor_if_available(func, *args, **kwargs)
        return await env.step_async(*args, **kwargs) if func == env.step else func(*args, **kwargs)

    def _groups(self, batch: _Batch) -> list[list[_Rollout]]:
        """The batch's groups in order of appearance: the trajectories that share an `instance_id`."""
        stop_reasons = batch.output.get("stop_reasons")
        ids = batch.input.get("trajectory_ids") or [TrajectoryID(str(p), 0) for p in range(len(batch.slots))]
        end_tokens = self._end_tokens()
        groups: dict[str, list[_Rollout]] = {}
        for position, (trajectory, slot, rows, prompt) in enumerate(
            zip(ids, batch.slots, batch.rows, batch.input["prompts"], strict=True)
        ):
            if batch.input["env_classes"][position] != ENV_CLASS:
                continue
            stop_reason = stop_reasons[rows[-1]] if stop_reasons else None
            verdict = slot.verdict or Verdict.no_response(f"the rollout failed ({stop_reason})")
            tokens = sum(len(batch.output["response_ids"][row]) for row in rows)
            rollout = _Rollout(
                verdict=verdict,
                response_tokens=tokens if slot.verdict else None,
                stop_reason=stop_reason,
                conversation=[*prompt, {"role": "assistant", "content": _without(end_tokens, slot.text)}],
                repetition=trajectory.repetition_id,
                stopwatch=slot.stopwatch,
                item=slot.item or _item(batch, position),
                uid=trajectory.instance_id,
                row=rows[-1],
            )
            groups.setdefault(trajectory.instance_id, []).append(rollout)
        return list(groups.values())

    def _end_tokens(self) -> list[str]:
        """What SkyRL's HTTP client leaves at the end of a text and a chat template would add again."""
        tokens = [getattr(self.tokenizer, name, None) for name in ("eos_token", "pad_token")]
        return [token for token in tokens if isinstance(token, str)]

    def _settle(self, batch: _Batch, group: Sequence[_Rollout]) -> list[Earned]:
        return settle_group(
            group,
            self.config,
            max_length=self.generator_cfg.sampling_params.max_generate_length,
            penalize=batch.phase == "train",
            zero_on_non_stop=self.generator_cfg.zero_reward_on_non_stop,
            reward_function=self._reward,
        )

    def _warn(self, group: Sequence[Earned]) -> None:
        for error in {one.reward_error for one in group} - self._reward_errors - {""}:
            self._reward_errors.add(error)
            logger.warning("the reward function failed, so its groups are not trained on: {}", error)

    def _observe(self, batch: _Batch, groups: Sequence[Sequence[_Rollout]]) -> list[LevelRecord]:
        """Show the loader the groups of a training batch.

        Returns:
            the moves of levels that follow from them.
        """
        if batch.phase != "train" or self.loader is None:
            return []
        facts = [
            GroupFacts(
                group[0].item.task,
                group[0].item.complexity,
                group[0].item.controller_version,
                [RolloutFacts.of(one.verdict, one.stop_reason == "length") for one in group],
            )
            for group in groups
        ]
        run_id, attempt = self._run()
        records = []
        for move in self.loader.observe(facts):
            logger.info("level of {}: c {:g} → {:g}, {}", move.task, move.before, move.after, move.evidence.reason)
            records.append(
                LevelRecord(
                    run_id=run_id,
                    attempt=attempt,
                    step=batch.step or 0,
                    task=move.task,
                    rule="interval",
                    before=move.before,
                    after=move.after,
                    **dataclasses.asdict(move.evidence),
                )
            )
        return records

    def _run(self) -> tuple[str, int]:
        """Run id and attempt of the dump."""
        return (self.writer.run_id, self.writer.attempt) if self.writer else ("unrecorded", 1)

    def _metrics(
        self, batch: _Batch, groups: Sequence[Sequence[_Rollout]], records: Sequence[GroupRecord], masked: int
    ) -> dict[str, Any]:
        """SkyRL's rollout metrics, recomputed if they depend on rewards, and ours."""
        trajectories = batch.trajectory_of_each_row()
        episodes = list(batch.output.get("env_metrics") or [{} for _ in trajectories])
        for rollout in itertools.chain.from_iterable(groups):
            counts = rollout.verdict.scored.status.is_counted
            episode = episode_metrics(rollout.item, rollout.verdict, self.config.solved_at) if counts else {}
            episodes[rollout.row] = episode
        # SkyRL computed loss-mask and timing metrics before overlong filtering: those stay.
        metrics = dict(batch.output.get("rollout_metrics") or {})
        metrics |= get_rollout_metrics(
            batch.output["response_ids"],
            [sum(reward) if isinstance(reward, list) else reward for reward in batch.output["rewards"]],
            episodes,
            [batch.input["env_classes"][position] for position in trajectories],
        )
        if not records:
            return metrics
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
        metrics["rg_dump/mean_masked"] = masked / len(rollouts)
        metrics["rg_dump/mean_no_response"] = 1 - len(counted_ones) / len(rollouts)
        if batch.phase == "train" and self.loader is not None:
            metrics |= self.loader.metrics()
        if self.writer is not None:
            metrics["rg_dump/max_groups_not_on_disk"] = self.writer.missing
        return metrics

    def _record(self, batch: _Batch, group: Sequence[_Rollout], earned: Sequence[Earned]) -> GroupRecord:
        origin = Origin(*self._run(), batch.phase, batch.step, batch.call)
        version = None if batch.weight_version is None else str(batch.weight_version)
        return group_record(origin, group[0].item, group[0].uid, group, earned, self.config.solved_at, version)

    def _log(self, records: Sequence[GroupRecord]) -> None:
        level = "INFO" if self.config.debug_logging else "DEBUG"
        for record in records:
            logger.log(
                level,
                "rg_dump {} step {} | {} | {} | {} | rewards {}",
                record.phase,
                record.step,
                record.item,
                record.outcome,
                _scores(record),
                " ".join(f"{rollout.reward:.3g}" for rollout in record.rollouts),
            )
        if records:
            logger.log(level, "rg_dump training groups drawn so far: {}", counted(self.summary.drawn))


def _without(end_tokens: Sequence[str], text: str) -> str:
    for token in end_tokens:
        text = text.removesuffix(token)
    return text


def _scores(record: GroupRecord) -> str:
    scores = [rollout.score for rollout in record.rollouts]
    return f"mean {sum(scores) / len(scores):.3f}, best {max(scores):.3f}"


def _rows_of_trajectories(output: GeneratorOutput, count: int) -> list[range]:
    """The output rows of each of `count` trajectories, which SkyRL returns in order."""
    last_flags = output.get("is_last_step")
    if last_flags is None:
        return [range(row, row + 1) for row in range(count)]
    ends = [row + 1 for row, is_last in enumerate(last_flags) if is_last]
    return [range(start, end) for start, end in itertools.pairwise([0, *ends])]


def _share_generation(watches: Sequence[Stopwatch]) -> None:
    """All responses of a batch arrive together, and are then scored one after the other."""
    arrived = min((watch.began + watch.generation for watch in watches), default=0.0)
    for watch in watches:
        watch.generation = max(0.0, arrived - watch.began)


def _write_back(output: GeneratorOutput, group: Sequence[_Rollout], earned: Sequence[Earned]) -> None:
    for rollout, one in zip(group, earned, strict=True):
        given = output["rewards"][rollout.row]
        if isinstance(given, list):
            output["rewards"][rollout.row] = [0.0] * (len(given) - 1) + [one.reward] if given else []
        else:
            output["rewards"][rollout.row] = one.reward
        if one.masked:
            output["loss_masks"][rollout.row] = [0] * len(output["loss_masks"][rollout.row])


def _name_groups(batch: _Batch, records: Sequence[GroupRecord]) -> list[TrajectoryID]:
    """The trajectory of each output row, with an instance id that names its group in the record."""
    given = batch.input["trajectory_ids"]
    assert given is not None
    groups = {record.uid: GroupUid(record.uid, record.group_id) for record in records}
    rows = [given[position] for position in batch.trajectory_of_each_row()]
    return [TrajectoryID(groups.get(row.instance_id, row.instance_id), row.repetition_id) for row in rows]


def _item(batch: _Batch, position: int) -> Item:
    """The question of a trajectory whose environment was never reached."""
    extras = batch.input["env_extras"]
    assert extras is not None
    return Item.from_extra_info(extras[position].get("extra_info"))
