"""Recorder: records every group that a generator of SkyRL's returns, of every environment.

    Recorder(generator, writer, tokenizer)

Invariants: the generator's output is passed on as it is, except that in training its `trajectory_ids` name the groups
of the record (`GroupUid`). The reward of a recorded rollout is the one in that output, and its score is the sum of all
rewards that its environment gave, whatever their range. Rows of `rg_dump` have a slot in their `env_extras`, into which
the environment writes its verdict; text, verdict and reward are of one `Rollout`.

Of other environments, what the model wrote and what it was shown after that are decoded from the tokens of the output;
the loss mask says which is which. Not covered: what an environment's `init` adds to the prompt of the row, images, and
the stop reason of a turn that is not the last one of its row, which SkyRL does not keep.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skyrl.train.generators.base import GeneratorInput, GeneratorInterface, GeneratorOutput, TrajectoryID

from rg_env.dataset import ENV_CLASS
from rg_env.dump import DumpWriter, GroupRecord, Phase
from rg_env.dump.schema import Message
from rg_env.errors import ConfigError, RGEnvError
from rg_env.rewards import Origin, Prompt, Rollout, RolloutReward, Stopwatch, group_record
from rg_env.scoring.types import AnswerScore, ParsedResponse, Status, Verdict
from rg_env.skyrl.env import SLOT
from rg_env.skyrl.group_uid import GroupUid
from rg_env.skyrl.turns import TurnReader
from rg_env.tasks import Item


@dataclass(slots=True)
class Call:
    """One `generate()` call.

    Attributes:
        input: with slots for the rows of rg_dump; `output`: what the generator returned.
        number: of the call on its generator.
        step: SkyRL's global step; None outside of training.
        version: of the policy before the call; "" if SkyRL does not know it.
        began: in seconds since 1970-01-01 UTC.
        rollouts, ids: of each trajectory.
        rows: the output rows of each trajectory: one, or one per step in step-wise mode.
        groups: the trajectories of each group, by uid, in order of appearance.
        rewards: the rewards of trajectories, where the rules of their group were applied.
    """

    input: GeneratorInput
    number: int
    phase: Phase
    step: int | None
    version: str
    rollouts: list[Rollout]
    began: float = field(default_factory=time.time)
    output: GeneratorOutput = field(init=False)
    ids: Sequence[TrajectoryID] = ()
    rows: Sequence[range] = ()
    groups: dict[str, list[int]] = field(default_factory=dict)
    rewards: dict[int, RolloutReward] = field(default_factory=dict)

    def env_class(self, trajectory: int) -> str:
        name: str = self.input["env_classes"][trajectory]
        return name

    def groups_of_rg_dump(self) -> list[list[int]]:
        """The trajectories of each group that our environment scored."""
        return [group for group in self.groups.values() if self.env_class(group[0]) == ENV_CLASS]

    def trajectory_of_each_row(self) -> list[int]:
        return [trajectory for trajectory, rows in enumerate(self.rows) for _ in rows]


class Recorder(GeneratorInterface):
    """A generator that records what another one generates.

    Args:
        generator: any generator of SkyRL's.
        writer: of the dump; None: nothing is written.
        tokenizer: of the policy.
        solved_at: by env class, the score from which a rollout counts as solved; 0.99 for all others.

    Raises:
        ConfigError: there is no tokenizer, or the generator records already.
    """

    def __init__(
        self,
        generator: GeneratorInterface,
        writer: DumpWriter | None,
        tokenizer: Any,
        *,
        solved_at: Mapping[str, float] | None = None,
    ) -> None:
        if not hasattr(tokenizer, "decode"):
            raise ConfigError(f"Recorder needs the policy's tokenizer to write texts, not {tokenizer!r}")
        if isinstance(generator, Recorder) or isinstance(getattr(generator, "recorder", None), Recorder):
            raise ConfigError(f"{type(generator).__name__} records already: use one Recorder for a run")
        self.generator = generator
        self.writer = writer
        self._reader = TurnReader(tokenizer)
        self._solved_at = dict(solved_at or {})
        self._calls = itertools.count()
        self._takes_tqdm = "disable_tqdm" in inspect.signature(generator.generate).parameters

    async def generate(self, input_batch: GeneratorInput, disable_tqdm: bool = False) -> GeneratorOutput:
        """Generate, and record every group.

        Raises:
            RGEnvError: it cannot be known which rows of the output belong to which trajectory.
        """
        call = self.begin(input_batch)
        more = {"disable_tqdm": disable_tqdm} if self._takes_tqdm else {}
        self.take(call, await self.generator.generate(call.input, **more))
        await self.write(call, self.records(call))
        return call.output

    # -- the steps of `generate`, for a generator that does something between them

    def begin(self, given: GeneratorInput) -> Call:
        """Before the generator is called with `Call.input`."""
        rollouts = [Rollout() for _ in given["prompts"]]
        extras = given.get("env_extras")
        if extras is not None:
            extras = [
                {**(extra or {}), SLOT: rollout} if env_class == ENV_CLASS else extra
                for extra, rollout, env_class in zip(extras, rollouts, given["env_classes"], strict=True)
            ]
        metadata = given.get("batch_metadata")
        phase, step = (Phase(metadata.training_phase), metadata.global_step) if metadata else (Phase.EVAL, None)
        version = getattr(getattr(self.generator, "inference_engine_client", None), "weight_version", None)
        version = "" if version is None else str(version)
        return Call({**given, "env_extras": extras}, next(self._calls), phase, step, version, rollouts)

    def take(self, call: Call, output: GeneratorOutput) -> None:
        """Note what the generator returned: which rows and groups there are, and the text of each rollout."""
        call.output = output
        call.rows, call.ids = _rows_and_ids(call.input, output)
        for trajectory, name in enumerate(call.ids):
            call.groups.setdefault(name.instance_id, []).append(trajectory)
            self._complete(call, trajectory)

    def records(self, call: Call) -> list[GroupRecord]:
        """The groups of a call, in order of appearance. In training, the output's `trajectory_ids` name them."""
        records = [self._record(call, uid, group) for uid, group in call.groups.items()]
        if call.phase is Phase.TRAIN:
            group_ids = {record.uid: record.group_id for record in records}
            call.output["trajectory_ids"] = [_named(call, row, group_ids) for row in call.trajectory_of_each_row()]
        return records

    async def write(self, call: Call, records: Sequence[GroupRecord]) -> None:
        """Hand the groups to the writer, and wait until the operating system has them."""
        if self.writer is not None:
            await self.writer.write(records)

    def run(self) -> tuple[str, int]:
        """Run id and attempt of the dump."""
        return (self.writer.run_id, self.writer.attempt) if self.writer else ("unrecorded", 1)

    # -- one rollout

    def _complete(self, call: Call, trajectory: int) -> None:
        rollout, output, rows = call.rollouts[trajectory], call.output, call.rows[trajectory]
        stop_reasons = output.get("stop_reasons") or [None] * len(output["response_ids"])
        prompt = [_message(one) for one in call.input["prompts"][trajectory]]
        rollout.stop_reason = stop_reasons[rows[-1]]
        rollout.repetition = call.ids[trajectory].repetition_id
        if call.env_class(trajectory) == ENV_CLASS:
            if rollout.responded:
                rollout.response_tokens = sum(len(output["response_ids"][row]) for row in rows)
            elif not rollout.text:
                rollout.verdict = Verdict.no_response(f"the rollout failed ({rollout.stop_reason})")
                rollout.item = _item(call.input, trajectory)
            text = self._reader.without_end(rollout.text)
            rollout.conversation = [*prompt, {"role": "assistant", "content": text}]
            return
        said: list[Message] = []
        rollout.turns = []
        for row in rows:
            messages, tokens = self._reader.turns(output["response_ids"][row], output["loss_masks"][row])
            said += messages
            reasons = [None] * (len(tokens) - 1) + [stop_reasons[row]]
            rollout.turns += [{"tokens": n, "stop_reason": why} for n, why in zip(tokens, reasons, strict=False)]
        rollout.conversation = [*prompt, *said]
        counts = [turn["tokens"] for turn in rollout.turns]
        rollout.response_tokens = None if None in counts else sum(counts)
        score = sum(_total(output["rewards"][row]) for row in rows)
        rollout.verdict = Verdict(ParsedResponse(None, None, None), AnswerScore(None, None, score, Status.OK))
        rollout.stopwatch = _stopwatch(call, trajectory)

    # -- one group

    def _record(self, call: Call, uid: str, group: Sequence[int]) -> GroupRecord:
        rollouts = [call.rollouts[trajectory] for trajectory in group]
        rewards = [call.rewards.get(trajectory) or _as_returned(call, trajectory) for trajectory in group]
        origin = Origin(*self.run(), call.phase, call.step, call.number, call.version)
        env_class = call.env_class(group[0])
        question = rollouts[0].item or _prompt(call.input, group[0])
        solved_at = self._solved_at.get(env_class, 0.99)
        return group_record(origin, question, uid, rollouts, rewards, solved_at)


def _rows_and_ids(given: GeneratorInput, output: GeneratorOutput) -> tuple[list[range], list[TrajectoryID]]:
    """The output rows and the id of each trajectory of the input, which SkyRL returns in order."""
    count, returned = len(given["prompts"]), output.get("trajectory_ids")
    if returned and any(isinstance(name.instance_id, GroupUid) for name in returned):
        raise RGEnvError("the groups of this batch are recorded already: use one Recorder for a run")
    last_flags = output.get("is_last_step") or [True] * len(output["response_ids"])
    ends = [row + 1 for row, is_last in enumerate(last_flags) if is_last]
    if len(ends) != count:
        raise RGEnvError(
            f"the generator returned {len(ends)} rollouts for {count} prompts, so that no row can be recorded: "
            "it must return all of them in order, several rows of one with `is_last_step`"
        )
    rows = [range(start, end) for start, end in itertools.pairwise([0, *ends])]
    ids = given.get("trajectory_ids") or ([returned[one[-1]] for one in rows] if returned else None)
    if ids is None:
        raise RGEnvError(
            "neither the trainer nor the generator gave `trajectory_ids`, so that the rollouts of a group are unknown: "
            "return them in the GeneratorOutput"
        )
    for one, name in zip(rows, ids, strict=True):
        if returned and any((returned[row].instance_id, returned[row].repetition_id) != _key(name) for row in one):
            raise RGEnvError(
                f"the generator returned rollout {name.to_string()} in another place than it was asked for"
            )
    return rows, list(ids)


def _named(call: Call, trajectory: int, group_ids: Mapping[str, str]) -> TrajectoryID:
    """The id of a trajectory, with the id of its group."""
    uid, repetition = _key(call.ids[trajectory])
    masked = trajectory in call.rewards and call.rewards[trajectory].masked
    return TrajectoryID(GroupUid(uid, group_ids[uid], masked=masked), repetition)


def _key(name: TrajectoryID) -> tuple[str, int]:
    return name.instance_id, name.repetition_id


def _total(reward: float | Sequence[float]) -> float:
    return float(sum(reward)) if isinstance(reward, Sequence) else float(reward)


def _as_returned(call: Call, trajectory: int) -> RolloutReward:
    """The reward where no rules of ours apply. SkyRL trains step-wise rows on the reward of the last one."""
    rows = call.rows[trajectory]
    score = call.rollouts[trajectory].verdict.scored.score
    return RolloutReward(score, 1.0, _total(call.output["rewards"][rows[-1]]), masked=False)


def _item(given: GeneratorInput, trajectory: int) -> Item:
    """The question of a trajectory whose environment was never reached."""
    extras = given["env_extras"]
    assert extras is not None
    return Item.from_extra_info(extras[trajectory].get("extra_info"))


def _prompt(given: GeneratorInput, trajectory: int) -> Prompt:
    """The prompt of another environment, whose id is the same in every run and epoch."""
    env_class = given["env_classes"][trajectory]
    extras = (given.get("env_extras") or [None] * len(given["prompts"]))[trajectory] or {}
    text = json.dumps([env_class, [_message(one) for one in given["prompts"][trajectory]]])
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    task = str(extras.get("data_source") or env_class)
    return Prompt(env_class, task, f"{task}-{digest}")


def _message(message: Mapping[str, Any]) -> Message:
    content = message.get("content")
    return {"role": str(message["role"]), "content": content if isinstance(content, str) else json.dumps(content)}


def _stopwatch(call: Call, trajectory: int) -> Stopwatch | None:
    """The times that SkyRL measured, if it did, with the beginning of the call as the rollout's."""
    row = call.rows[trajectory][-1]
    times, splits = call.output.get("trajectory_generation_times"), call.output.get("trajectory_time_splits") or {}
    if not times:
        return None
    watch = Stopwatch()
    watch.began, watch.ended = call.began, call.began + times[row]
    watch.generation = splits["llm"][row] if "llm" in splits else times[row]
    watch.scoring = splits["env"][row] if "env" in splits else 0.0
    return watch
