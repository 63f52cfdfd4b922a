"""What dynamic sampling is told about a batch: which groups teach nothing, and which rows are copies of others.

Invariant: SkyRL selects whole groups by what it is told here; the recorded rewards stay. Pure functions of an output.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from skyrl.train.generators.base import GeneratorOutput

from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import GroupRecord
from rg_env.skyrl.tally import is_unsolved


def groups_without_signal(output: GeneratorOutput, uids: Sequence[str], config: RGDumpConfig) -> set[str]:
    """Return the uids of the groups from which nothing is learned: all rewards are equal, or `train_unsolved: false`
    keeps them out of the loss."""
    rewards = defaultdict[str, set[float]](set)
    for uid, reward in zip(uids, output["rewards"], strict=True):
        rewards[uid].add(sum(reward) if isinstance(reward, list) else reward)
    without = {uid for uid, of_group in rewards.items() if len(of_group) == 1}
    if not config.train_unsolved:
        groups: Sequence[GroupRecord] = output["groups"]
        without |= {uid for uid, group in zip(uids, groups, strict=True) if is_unsolved(group, config.solved_at)}
    return without


def with_zero_rewards(output: GeneratorOutput, uids: Sequence[str], zeroed: Collection[str]) -> GeneratorOutput:
    """Return an output in which the rewards of these groups are 0, so that SkyRL sees that they are equal: it compares
    their standard deviation, which for equal rewards may be above 0 in the last bit."""
    shown = []
    for uid, reward in zip(uids, output["rewards"], strict=True):
        zero = [0.0] * len(reward) if isinstance(reward, list) else 0.0
        shown.append(zero if uid in zeroed else reward)
    return {**output, "rewards": shown}


def uid_of_each_copy(output: GeneratorOutput, uids: Sequence[str]) -> list[str]:
    """Return the uids of a batch's rows, made unique to each copy of a group: `17`, then `17#1`, …

    In SkyRL 0.4.0, the copies of a group (`replace`) have its uid, so that SkyRL refuses its own batch: it expects one
    group per uid. A row belongs to the next copy if its trajectory has been complete before.
    """
    trajectories = output["trajectory_ids"]
    # Without flags, every row is a whole trajectory.
    last_flags = output.get("is_last_step") or [True] * len(uids)
    assert trajectories is not None
    complete = Counter[tuple[str, int]]()
    result = []
    for uid, trajectory, is_last in zip(uids, trajectories, last_flags, strict=True):
        copy = complete[uid, trajectory.repetition_id]
        complete[uid, trajectory.repetition_id] += is_last
        result.append(f"{uid}#{copy}" if copy else uid)
    return result
