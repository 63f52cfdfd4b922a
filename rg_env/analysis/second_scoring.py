"""A second scoring of a sample of groups, as a sign: the score that was recorded is not the one that the scorer gives.

It shows what no property of the record shows for certain: false zeros, scores that belong to another response, and a
verifier that was poisoned during the run.
Invariant: only scores are compared. A response that the scorer failed for, then or now, says nothing.
Not covered: a verifier that is wrong in the same way whenever it is asked.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from rg_env.analysis.rescore import differ, rescore
from rg_env.analysis.verdict_signs import Contradictions, Reading
from rg_env.dump import Dump, GroupRecord, Phase, RolloutRecord
from rg_env.scoring.types import Status

SIGN = "second scoring differs"
_WHAT = "responses have another base score when they are scored again"
_SCORES = (Status.OK, Status.REJECTED, Status.REWARD_ERROR)
"""The outcomes in which a score was given."""


def second_scoring(dump: Dump, *, groups: int, workers: int) -> Iterator[tuple[str, Reading]]:
    """Score a sample again, and yield what differs, by task.

    Args:
        groups: how many are scored again, of the train phase if there is one. Which, their ids alone decide.
        workers: number of answers scored in parallel, at least 1.

    Raises:
        DumpError, ConfigError: as `rescore`.
    """
    by_task = defaultdict[str, Contradictions](Contradictions)

    def note(group: GroupRecord, scored: Sequence[RolloutRecord]) -> None:
        differing, compared = 0, 0
        for old, new in zip(group.rollouts, scored, strict=True):
            if old.status in _SCORES and new.status in _SCORES:
                compared += 1
                differing += differ(old.base_score, new.base_score)
        by_task[group.task].count(group, seen=differing, of=compared)

    rescore(dump, workers=workers, each=note, only=sample(dump.groups(), groups))
    for task in sorted(by_task):
        reading = by_task[task].reading(SIGN, _WHAT)
        if reading is not None:
            yield task, reading


def sample(groups: Iterable[GroupRecord], most: int) -> set[str]:
    """Return the ids of the groups whose hashes are the smallest: the same ones in every order of the files."""
    keys: dict[Phase, list[tuple[int, str]]] = {}
    for phase in Phase:
        keys[phase] = []
    for group in groups:
        digest = blake2b(group.group_id.encode(), digest_size=8).digest()
        # A heap of negated hashes, whose first is the largest kept.
        entry = (-int.from_bytes(digest, "big"), group.group_id)
        kept = keys[group.phase]
        if len(kept) < most:
            heapq.heappush(kept, entry)
        else:
            heapq.heappushpop(kept, entry)
    chosen = keys[Phase.TRAIN] or keys[Phase.EVAL]
    return {group_id for _, group_id in chosen}
