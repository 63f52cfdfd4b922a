"""Groups as plain text: for pipes, files and terminals without a cursor.

Invariant: no escape sequence is ever printed; lines of messages are indented by two spaces, so that no message looks
like a heading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rg_env.browser.facts import group_facts, place_of, prompt, ranked, rollout_facts, thresholds
from rg_env.browser.query import Query
from rg_env.choices import SortBy
from rg_env.dump import Dump, GroupRecord
from rg_env.dump.frames import ConditionError
from rg_env.output import print_line, visible


def print_groups(
    dump: Dump,
    query: Query,
    *,
    sort: SortBy | None = None,
    limit: int | None = None,
    every_rollout: bool = False,
    rollout: int | None = None,
    write: Callable[[str], object] = print_line,
) -> int:
    """Print the matching groups.

    Args:
        dump: from `open_run`.
        query: the filter.
        sort: None: in the order of the files.
        limit: maximum number of groups.
        every_rollout: print all rollouts, not only the best and the worst.
        rollout: print only the rollout with this number (`repetition`) of each group.
        write: called with each line.

    Returns:
        the number of printed groups.
    """
    count, known = 0, thresholds(dump)
    try:
        for group in query.groups(dump, sort):
            if count == limit:
                break
            count += 1
            for line in group_lines(group, known, every_rollout, rollout):
                write(line)
    except ConditionError:  # nothing matches
        return 0
    return count


def group_lines(
    group: GroupRecord,
    known: Mapping[tuple[str, int], float],
    every_rollout: bool = False,
    chosen: int | None = None,
) -> Iterator[str]:
    """A group as lines; with `chosen`, only that rollout. `known`: see `thresholds`."""
    yield f"== {visible(group.group_id, one_line=True)}"
    yield visible(group_facts(group, known), one_line=True)
    for role, content in prompt(group):
        yield f"-- {visible(role, one_line=True)}"
        yield from _indented(content)
    order = ranked(group)
    for rank, rollout in enumerate(order):
        place = place_of(rank, len(order))
        shown = every_rollout or place in ("best", "worst") if chosen is None else rollout.repetition == chosen
        if not shown:
            continue
        yield f"-- {place} of {len(order)}: {visible(rollout_facts(rollout, group.baseline), one_line=True)}"
        yield from _indented(rollout.transcript())
    yield ""


def _indented(text: str) -> Iterator[str]:
    for line in visible(text).split("\n"):
        yield f"  {line}"
