"""Groups as plain text: for pipes, files and terminals without a cursor.

Invariant: no escape sequence is ever printed; lines of messages are indented by two spaces, so that no message looks
like a heading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rg_env.analysis.reparse import faults
from rg_env.browser.index import FOUND_BY, index_rows, last_attempts_only, text_files
from rg_env.browser.query import Query
from rg_env.browser.ranking import group_facts, place_of, prompt, ranked, response, rollout_facts
from rg_env.dump import Dump, GroupRecord, Problem, RolloutRecord
from rg_env.output import print_line
from rg_env.sanitize import visible


def print_groups(
    dump: Dump,
    query: Query,
    *,
    limit: int | None = None,
    every_rollout: bool = False,
    write: Callable[[str], object] = print_line,
    on_problem: Callable[[Problem], object] = lambda problem: None,
) -> int:
    """Print the matching groups in the order of the files.

    Args:
        dump: from `open_run`.
        query: the filter.
        limit: maximum number of groups.
        every_rollout: print all rollouts, not only the best and the worst.
        write: called with each line.
        on_problem: called for each skipped line.

    Returns:
        the number of printed groups.
    """
    count = 0
    for group in matching_groups(dump, query, on_problem):
        if count == limit:
            break
        count += 1
        for line in group_lines(group, every_rollout):
            write(line)
    return count


def matching_groups(
    dump: Dump, query: Query, on_problem: Callable[[Problem], object] = lambda problem: None
) -> Iterator[GroupRecord]:
    """The matching groups, without repeated attempts."""
    files = text_files(dump)
    for chunk in index_rows(dump, cached=False):
        for file, line, why in chunk.rows.drop_nulls("problem").select("file", "line", "problem").iter_rows():
            on_problem(Problem(files[file].path, line, why))
        for row in last_attempts_only(dump, query.filter(chunk.rows)).select(FOUND_BY).iter_rows(named=True):
            if group := query.group_of(files, row):
                yield group


def group_lines(group: GroupRecord, every_rollout: bool = False) -> Iterator[str]:
    """A group as lines."""
    yield f"== {visible(group.group_id, one_line=True)}"
    yield visible(group_facts(group), one_line=True)
    for role, content in prompt(group):
        yield f"-- {visible(role, one_line=True)}"
        yield from _indented(content)
    order = ranked(group)
    for rank, rollout in enumerate(order):
        place = place_of(rank, len(order))
        if not every_rollout and place not in ("best", "worst"):
            continue
        yield f"-- {place} of {len(order)}: {visible(rollout_facts(rollout), one_line=True)}"
        yield from _indented(marked(rollout))
    yield ""


def marked(rollout: RolloutRecord) -> str:
    """The response with a remark in angle quotes at each format violation."""
    text = response(rollout)
    spans, what = faults(text, rollout.violation)
    pieces, position = [], 0
    for start, end in spans:
        pieces += [text[position:start], f"«{what}: »{text[start:end]}" if end > start else f"«{what}»"]
        position = end
    return "".join(pieces) + text[position:]


def _indented(text: str) -> Iterator[str]:
    for line in visible(text).split("\n"):
        yield f"  {line}"
