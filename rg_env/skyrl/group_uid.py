"""SkyRL's uid of a prompt, with the id of its group in the record.

Invariant: to SkyRL, a `GroupUid` is the plain uid: it compares, hashes and prints as that string. SkyRL drops, repeats
and reorders the uid objects (dynamic sampling, mini-batches of the fully-async loop), so each row keeps the id of its
group without a separate table.
"""

from __future__ import annotations

from typing import Self


class GroupUid(str):
    """A uid with a group.

    Args:
        uid: SkyRL's uid of the prompt.
        group_id: of the group in the record, see `rg_env.dump.group_id`.

    >>> uid = GroupUid("17", "20261121-053012-ab12:1:train:37:17")
    >>> uid == "17", uid.group_id
    (True, '20261121-053012-ab12:1:train:37:17')
    """

    __slots__ = ("group_id",)
    group_id: str

    def __new__(cls, uid: str, group_id: str) -> Self:
        self = super().__new__(cls, uid)
        self.group_id = group_id
        return self

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.group_id
