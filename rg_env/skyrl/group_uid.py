"""SkyRL's uid of a prompt, with the id of its group in the record: how a training batch knows its groups.

Invariant: to SkyRL, a `GroupUid` is the plain uid: it compares, hashes and prints as that string. SkyRL drops, repeats
and reorders the uid objects (dynamic sampling, mini-batches of the fully-async loop), so each row keeps the id of its
group without a separate table, and a uid may be that of another group in the next epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Self

from skyrl.train.generators.base import GeneratorOutput


class GroupUid(str):
    """A uid with a group.

    Args:
        uid: SkyRL's uid of the prompt.
        group_id: of the group in the record, see `rg_env.dump.group_id`.
        masked: whether the row is kept out of the loss, because the machine or the user's function failed.

    >>> uid = GroupUid("17", "20261121-053012-ab12:1:train:37:17")
    >>> uid == "17", uid.group_id
    (True, '20261121-053012-ab12:1:train:37:17')
    """

    __slots__ = ("group_id", "masked")
    group_id: str
    masked: bool

    def __new__(cls, uid: str, group_id: str, masked: bool = False) -> Self:
        self = super().__new__(cls, uid)
        self.group_id, self.masked = group_id, masked
        return self

    def __getnewargs__(self) -> tuple[str, str, bool]:  # type: ignore[override]
        return str(self), self.group_id, self.masked


def named(output: GeneratorOutput, uids: Sequence[str]) -> list[str]:
    """The uids of a batch's rows, with the ids of their groups.

    Uids that have them already are kept: SkyRL may have selected rows since, which does not change `trajectory_ids`.
    """
    trajectories = output.get("trajectory_ids")
    if not trajectories or any(isinstance(uid, GroupUid) for uid in uids):
        return list(uids)
    return [trajectory.instance_id for trajectory in trajectories]


def one_uid_per_copy(output: GeneratorOutput, uids: Sequence[str]) -> list[str]:
    """The uids of a batch's rows, made unique to each copy of a group: `17`, then `17#1`, …

    In SkyRL 0.4.0, the copies of a group (`replace`) have its uid, so that SkyRL refuses its own batch: it expects one
    group per uid. A row belongs to the next copy if its trajectory has been complete before.
    """
    trajectories = output["trajectory_ids"]
    last_flags = output.get("is_last_step") or [True] * len(uids)
    assert trajectories is not None
    complete = Counter[tuple[str, int]]()
    result = []
    for uid, trajectory, is_last in zip(uids, trajectories, last_flags, strict=True):
        copy = complete[uid, trajectory.repetition_id]
        complete[uid, trajectory.repetition_id] += is_last
        name = f"{uid}#{copy}" if copy else str(uid)
        result.append(GroupUid(name, uid.group_id, uid.masked) if isinstance(uid, GroupUid) else name)
    return result


def uids_for_advantages(uids: Sequence[str], is_last_step: Sequence[bool]) -> tuple[list[str], list[int]]:
    """The uids with which SkyRL's estimators compute a group's advantages without its masked rows.

    Each masked row gets a uid of its own, since the estimators compare the rewards of equal uids, masked or not.

    Args:
        uids: of a batch's rows.
        is_last_step: whether the row is the last, or the only one, of its trajectory.

    Returns:
        The uids, and the rows that must have no advantage: the masked ones, and a trajectory that they leave alone in
        its group, whose reward SkyRL would take for the advantage.
    """
    masked = [isinstance(uid, GroupUid) and uid.masked for uid in uids]
    with_masked = {uid for uid, is_masked in zip(uids, masked, strict=True) if is_masked}
    sound = Counter(
        uid for uid, is_masked, last in zip(uids, masked, is_last_step, strict=True) if last and not is_masked
    )
    apart = [
        f"{uid} masked {row}" if is_masked else uid
        for row, (uid, is_masked) in enumerate(zip(uids, masked, strict=True))
    ]
    return apart, [row for row, uid in enumerate(uids) if masked[row] or (uid in with_masked and sound[uid] < 2)]
