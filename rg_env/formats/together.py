"""Which rows of a source belong together: the turns of one rollout, one rollout that was saved again, the groups of one
prompt; and which steps are evaluations.

Invariant: only what the source tells decides. Rollouts are never made one because they are alike, except where the
program is known to save a rollout more than once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

import msgspec

from rg_env.formats.records import OPEN_THINK, Row, assistant_turns, rest_after

Files = Sequence[list[Row]]
"""The rows of each file."""


def join_turns(files: Files) -> tuple[Files, int]:
    """Make one row of those that are turns of one rollout: of those that share the rollout's name or, without names, of
    neighbors of which the later prompt begins with the earlier prompt and response.

    Returns:
        the rows, and how many of them look like a later turn although their prompt lacks the response before it.
    """
    joined, unclear = [], 0
    for rows in files:
        rollouts: list[list[Row]] = []
        named: dict[str, list[Row]] = {}
        before: Row | None = None
        for row in rows:
            name = row.turn.rollout
            # Without names only neighbors are joined: other rollouts of one question may begin alike.
            if name in named:
                named[name].append(row)
            elif not name and before and _shown_between(before, row) is not None:
                rollouts[-1].append(row)
            else:
                # Said and not joined: the prompt goes on, but after another response than the row before has.
                unclear += int(before is not None and _looks_like_next(before, row))
                rollouts.append([row])
                if name:
                    named[name] = rollouts[-1]
            before = row
        joined.append([_as_one(turns) for turns in rollouts])
    return joined, unclear


def _shown_between(before: Row, row: Row) -> str | None:
    """Return what a prompt has after the prompt and response of the row before; None if it does not begin with them."""
    # Equal prompts are two samples.
    if before.prompt == row.prompt or _question(before) != _question(row):
        return None
    prompt = before.turn.prompt
    response = "".join(message["content"] for message in _given(before))
    # Chat templates leave out the think blocks of earlier turns.
    without_think = response.partition("</think>")[2]
    for start, said in ((prompt, response), (OPEN_THINK.sub("", prompt), without_think)):
        if said.strip():
            shown = rest_after(row.turn.prompt, start, said)
            if shown is not None:
                return shown
    return None


def _given(row: Row) -> list[dict[str, str]]:
    """Return the messages after the prompt up to the last one of the assistant. SkyRL saves what the model was shown
    then at the end of the response, but a template that closes a turn that was cut off has more before it."""
    _, *messages = row.rollout.conversation
    if messages[-1]["role"] == "user":
        messages.pop()
    return messages


def _looks_like_next(before: Row, row: Row) -> bool:
    """Return whether a prompt goes on after the prompt of the row before, but not with the response to it."""
    if row.turn.rollout or before.prompt == row.prompt or _question(before) != _question(row):
        return False
    rest = rest_after(row.turn.prompt, OPEN_THINK.sub("", before.turn.prompt))
    return bool(rest and rest.strip())


def _question(row: Row) -> tuple[str, str, str]:
    group = row.group
    return group.task, group.item, group.entry


def _as_one(rows: list[Row]) -> Row:
    """Return the rollout of these turns. Its reward is that of the last one, as SkyRL and verl count it."""
    if len(rows) == 1:
        return rows[0]
    rows = sorted(rows, key=lambda row: row.turn.number)
    conversation = [rows[0].rollout.conversation[0], *_given(rows[0])]
    for before, row in pairwise(rows):
        shown = _shown_between(before, row)
        # A prompt that was written anew is shown whole.
        if shown is None:
            shown = row.rollout.conversation[0]["content"]
        if shown.strip():
            conversation.append({"role": "user", "content": shown})
        conversation += _given(row)
    last = rows[-1]
    facts = {"conversation": conversation, "turns": assistant_turns(conversation)}
    rollout = msgspec.structs.replace(last.rollout, **facts)
    group = msgspec.structs.replace(last.group, rollouts=[rollout])
    return Row(group, last.has_phase, prompt=rows[0].prompt)


def without_overlap(files: Files) -> Files:
    """Leave out the rows with which a file begins if they are the last ones of the file before: the program saves what
    it has generated last at every step, however much of it is new."""
    kept = []
    before: list[str] = []
    for rows in files:
        keys = [row.key for row in rows]
        shared = 0
        if keys == before:
            shared = len(keys)
        # One equal row may be chance.
        for length in range(2, min(len(before), len(keys)) + 1):
            if keys[length - 1] == before[-1] and keys[:length] == before[-length:]:
                shared = max(shared, length)
        kept.append(rows[shared:])
        before = keys
    return kept


def without_copies(files: Files) -> Files:
    """Leave out rows whose key an earlier row has."""
    seen: set[str] = set()
    kept = []
    for rows in files:
        new = []
        for row in rows:
            if not row.key or row.key not in seen:
                new.append(row)
            seen.add(row.key)
        kept.append(new)
    return kept


def evaluation_steps(rows: Iterable[Row], shortest: int) -> list[int]:
    """Return the steps at which the same prompts come back regularly, which are taken for evaluations, and [] if there
    are none. Prompts of training come back as well when the data set begins again, but not more often than others.

    Args:
        shortest: the smallest distance of two evaluations.
    """
    steps_of: dict[bytes, set[int]] = defaultdict(set)
    last = 0
    for row in rows:
        if row.group.step is not None:
            steps_of[row.prompt].add(row.group.step)
            last = max(last, row.group.step)
    # Prompts with the same steps are one set, and of sets that come back regularly the most frequent one is evaluated.
    prompts = set(map(frozenset, steps_of.values()))
    regular = [steps for steps in prompts if _is_regular(sorted(steps), last, shortest)]
    found: frozenset[int] = max(regular, key=len, default=frozenset())
    # A question that is both trained on and evaluated has more steps.
    others = [len(steps) for steps in prompts if not steps >= found]
    if max(others, default=1) >= len(found):
        return []
    return sorted(found)


def prompts_at(rows: Iterable[Row], steps: Collection[int]) -> set[bytes]:
    """Return the prompts that each of these steps has."""
    at: dict[int, set[bytes]] = defaultdict(set)
    for row in rows:
        step = row.group.step
        if step is not None and step in steps:
            at[step].add(row.prompt)
    if not at:
        return set()
    return set.intersection(*at.values())


def _is_regular(steps: list[int], last: int, shortest: int) -> bool:
    """Return whether these are all multiples of a number up to the last step; the last step itself may be one more."""
    distances = [later - earlier for earlier, later in pairwise(steps)]
    if not distances or distances[0] < shortest:
        return False
    every = distances[0]
    # It must go on to the end: prompts that stop coming back belong to a data set that is over.
    if steps[0] % every or steps[-1] + every <= last:
        return False
    # A trainer evaluates once more when it is done.
    ends_early = distances[-1] < every and steps[-1] == last
    return set(distances[:-1]) <= {every} and (distances[-1] == every or ends_early)


def usual_size(groups: Collection[list[Row]]) -> int:
    """Return the size that more than half of the groups have; 0 if there is none."""
    for size, count in Counter(map(len, groups)).items():
        if 2 * count > len(groups):
            return size
    return 0


def split_repeated(group: list[Row], size: int) -> list[list[Row]]:
    """Split a group that is a multiple of the usual size: its prompt was asked several times in a step. Rows stay in
    the order of the source."""
    if size < 2 or len(group) % size:
        return [group]
    return [group[start : start + size] for start in range(0, len(group), size)]
