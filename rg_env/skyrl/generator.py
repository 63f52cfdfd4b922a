"""RGDumpGenerator: SkyRL's generator, seeing whole groups.

Invariant: the text, the score and the reward of a rollout in the record come from the one slot that its env filled, and
the reward in the record is, number for number, the one handed back to SkyRL. No state of a batch lives on the
generator, so that evaluation may overlap training.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from loguru import logger
from skyrl.train.generators.base import GeneratorInput, GeneratorOutput, TrajectoryID
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.generators.utils import get_rollout_metrics

from rg_env.dump import DumpWriter, GroupRecord, Outcome, RolloutRecord, group_id, has_no_signal, outcome_of
from rg_env.rewards import Candidate, Earned, settle_group
from rg_env.skyrl.env import SLOT, RolloutSlot, as_config
from rg_env.skyrl.group_uid import GroupUid


@dataclass(frozen=True, slots=True)
class _Rollout:
    """One trajectory of the batch: where it stands, what its env left, how it ended."""

    position: int
    row: int
    trajectory: TrajectoryID
    slot: RolloutSlot
    response_tokens: int
    stop_reason: str | None

    def as_candidate(self) -> Candidate:
        assert self.slot.verdict is not None
        return Candidate(self.slot.verdict, self.response_tokens, self.stop_reason in (None, "stop"))


@dataclass(frozen=True, slots=True)
class _Group:
    rollouts: list[_Rollout]
    earned: list[Earned]
    outcome: Outcome


class RGDumpGenerator(SkyRLGymGenerator):
    """Settles rewards group by group and records every group.

    Args:
        writer: where groups go; None records nothing.
        Everything else: as `SkyRLGymGenerator`.
    """

    def __init__(self, *args: Any, writer: DumpWriter | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.config = as_config(getattr(self.skyrl_gym_cfg, "rg_dump", None))
        self.writer = writer
        self._calls = itertools.count()

    async def generate(self, input_batch: GeneratorInput, disable_tqdm: bool = False) -> GeneratorOutput:
        """Generate, settle, record.

        Returns:
            SkyRL's output with final rewards, in the form SkyRL gave them (a list per token, the reward on the last
            one, or a float), with masked rollouts out of the loss and our metrics added. In training, the instance ids
            in `trajectory_ids` are `GroupUid`s in every mode of SkyRL: our trainers learn from them which groups
            were trained on. Rows of other environments are left as they are.
        """
        call = next(self._calls)
        slots = [RolloutSlot() for _ in input_batch["prompts"]]
        extras = [{**(extra or {}), SLOT: slot} for extra, slot in zip(input_batch["env_extras"], slots, strict=True)]
        weight_version = getattr(self.inference_engine_client, "weight_version", None)
        disable_tqdm = disable_tqdm or self.config.suppress_base_env_logs
        output = await super().generate({**input_batch, "env_extras": extras}, disable_tqdm)
        for slot in slots:
            slot.text = self._without_end(slot.text)

        metadata = input_batch.get("batch_metadata")
        phase = metadata.training_phase if metadata else "eval"
        groups = [self._settle(rollouts, train=phase == "train") for rollouts in _groups(input_batch, output, slots)]
        for group in groups:
            _write_back(output, group)
        output["rollout_metrics"] = self._metrics(input_batch, output, slots, groups)
        records = [
            self._record(group, input_batch, phase, metadata.global_step if metadata else None, call, weight_version)
            for group in groups
        ]
        if phase == "train" and input_batch.get("trajectory_ids"):
            output["trajectory_ids"] = _name_groups(input_batch, output, records)
        self._log(records)
        if self.writer is not None:
            await self.writer.write(records, timeout=self.config.dump_ack_timeout)
        return output

    def _without_end(self, text: str) -> str:
        """A response without its end token, which SkyRL's HTTP client spells out: a template would write it again."""
        for end in (getattr(self.tokenizer, "eos_token", None), getattr(self.tokenizer, "pad_token", None)):
            text = text.removesuffix(end) if isinstance(end, str) else text
        return text

    def _settle(self, rollouts: list[_Rollout], train: bool) -> _Group:
        candidates = [rollout.as_candidate() for rollout in rollouts]
        earned = settle_group(
            candidates,
            self.config,
            max_length=self.generator_cfg.sampling_params.max_generate_length,
            penalise=train,
            zero_on_non_stop=self.generator_cfg.zero_reward_on_non_stop,
        )
        return _Group(rollouts, earned, outcome_of([c.verdict.base_score for c in candidates], self.config.solved_at))

    def _metrics(
        self, batch: GeneratorInput, output: GeneratorOutput, slots: Sequence[RolloutSlot], groups: Sequence[_Group]
    ) -> dict[str, Any]:
        """SkyRL's rollout metrics, recomputed where they depend on rewards, and ours."""
        rows = _trajectory_of_row(output, len(slots))
        last = _last_row_of_trajectory(rows)
        # SkyRL computed loss-mask and timing metrics before overlong filtering: those stay.
        metrics = dict(output.get("rollout_metrics") or {})
        metrics |= get_rollout_metrics(
            output["response_ids"],
            output["rewards"],
            [(slots[p].metrics or {}) if row == last[p] else {} for row, p in enumerate(rows)],
            [batch["env_classes"][position] for position in rows],
        )
        if not groups:
            return metrics
        outcomes = Counter(group.outcome for group in groups)
        for outcome in Outcome:
            metrics[f"rg_dump/mean_{outcome}"] = outcomes[outcome] / len(groups)
        silent = sum(has_no_signal([e.reward for e in group.earned]) for group in groups)
        metrics["rg_dump/mean_no_signal"] = silent / len(groups)
        earned = [one for group in groups for one in group.earned]
        metrics["rg_dump/mean_score"] = sum(one.score for one in earned) / len(earned)
        metrics["rg_dump/mean_penalty_factor"] = sum(one.penalty_factor for one in earned) / len(earned)
        metrics["rg_dump/mean_masked"] = sum(one.masked for one in earned) / len(earned)
        if self.writer is not None:
            metrics["rg_dump/max_groups_not_on_disk"] = self.writer.missing
        return metrics

    def _record(
        self,
        group: _Group,
        batch: GeneratorInput,
        phase: str,
        step: int | None,
        call: int,
        weight_version: int | str | None,
    ) -> GroupRecord:
        first = group.rollouts[0]
        item = first.slot.item
        assert item is not None
        run_id, attempt = (self.writer.run_id, self.writer.attempt) if self.writer else ("unrecorded", 1)
        uid = first.trajectory.instance_id
        return GroupRecord(
            item_id=item.item_id,
            run_id=run_id,
            attempt=attempt,
            phase=phase,
            step=step,
            call=call,
            uid=uid,
            group_id=group_id(run_id, attempt, phase, call, uid),
            task=item.task,
            task_config=item.config_json,
            level=item.level,
            entry=item.entry_json,
            outcome=group.outcome,
            no_signal=has_no_signal([one.reward for one in group.earned]),
            rollouts=[
                _rollout_record(rollout, earned, batch["prompts"][rollout.position], weight_version)
                for rollout, earned in zip(group.rollouts, group.earned, strict=True)
            ],
        )

    def _log(self, records: Sequence[GroupRecord]) -> None:
        level = "INFO" if self.config.debug_logging else "DEBUG"
        for record in records:
            logger.log(
                level,
                "rg_dump {} step {} | {} | {} | rewards {}",
                record.phase,
                record.step,
                record.item_id,
                record.outcome,
                " ".join(f"{rollout.reward:.3g}" for rollout in record.rollouts),
            )


def _trajectory_of_row(output: GeneratorOutput, trajectories: int) -> list[int]:
    """The input position that each output row belongs to: one row each, or one per step in step-wise mode."""
    last_flags = output.get("is_last_step")
    if last_flags is None:
        return list(range(trajectories))
    ends = itertools.accumulate(last_flags, initial=0)
    return [position for position, _ in zip(ends, last_flags, strict=False)]


def _last_row_of_trajectory(rows: Sequence[int]) -> dict[int, int]:
    return {position: row for row, position in enumerate(rows)}


def _groups(batch: GeneratorInput, output: GeneratorOutput, slots: Sequence[RolloutSlot]) -> Iterator[list[_Rollout]]:
    """The batch's groups in order of appearance: the trajectories that share an `instance_id`."""
    rows = _trajectory_of_row(output, len(slots))
    last = _last_row_of_trajectory(rows)
    tokens = Counter[int]()
    for row, position in enumerate(rows):
        tokens[position] += len(output["response_ids"][row])
    stop_reasons = output.get("stop_reasons")
    ids = batch.get("trajectory_ids") or [TrajectoryID(str(position), 0) for position in range(len(slots))]
    by_instance: dict[str, list[_Rollout]] = {}
    for position, (trajectory, slot) in enumerate(zip(ids, slots, strict=True)):
        if slot.verdict is None:
            continue  # another environment's row
        row = last[position]
        rollout = _Rollout(
            position, row, trajectory, slot, tokens[position], stop_reasons[row] if stop_reasons else None
        )
        by_instance.setdefault(trajectory.instance_id, []).append(rollout)
    yield from by_instance.values()


def _name_groups(batch: GeneratorInput, output: GeneratorOutput, records: Sequence[GroupRecord]) -> list[TrajectoryID]:
    """The trajectory of each output row, its instance id saying which group of the record it is in."""
    given = batch["trajectory_ids"]
    assert given is not None
    groups = {record.uid: GroupUid(record.uid, record.group_id) for record in records}
    rows = [given[position] for position in _trajectory_of_row(output, len(given))]
    return [TrajectoryID(groups.get(row.instance_id, row.instance_id), row.repetition_id) for row in rows]


def _write_back(output: GeneratorOutput, group: _Group) -> None:
    for rollout, earned in zip(group.rollouts, group.earned, strict=True):
        given = output["rewards"][rollout.row]
        if isinstance(given, list):
            output["rewards"][rollout.row] = [0.0] * (len(given) - 1) + [earned.reward] if given else []
        else:
            output["rewards"][rollout.row] = earned.reward
        if earned.masked:
            output["loss_masks"][rollout.row] = [0] * len(output["loss_masks"][rollout.row])


def _rollout_record(
    rollout: _Rollout, earned: Earned, prompt: list[dict[str, str]], weight_version: int | str | None
) -> RolloutRecord:
    slot = rollout.slot
    verdict = slot.verdict
    assert verdict is not None
    return RolloutRecord(
        conversation=[*prompt, {"role": "assistant", "content": slot.text}],
        score=earned.score,
        reward=earned.reward,
        base_score=verdict.base_score,
        raw_score=verdict.raw_score,
        tagged_score=verdict.tagged_score,
        violation=verdict.parsed.violation,
        status=verdict.status,
        detail=verdict.detail,
        answer=verdict.parsed.answer,
        response_tokens=rollout.response_tokens,
        stop_reason=rollout.stop_reason,
        truncated=rollout.stop_reason == "length",
        penalty_factor=earned.penalty_factor,
        repetition=rollout.trajectory.repetition_id,
        policy_version=None if weight_version is None else str(weight_version),
        normalised=verdict.normalized,
    )
