from __future__ import annotations

import os
import sys
from itertools import islice
from typing import Annotated

import typer

from rg_env.choices import SortBy
from rg_env.cli.options import DumpPaths, Where, print_remarks
from rg_env.output import print_error, print_line


def show(
    paths: DumpPaths,
    where: Where = None,
    search: Annotated[str, typer.Option(help="Show groups with this text in a message, ignoring case.")] = "",
    sort: Annotated[
        SortBy | None,
        typer.Option(help="Order by mean score, mean length or spread of scores, the largest first. Default: by step."),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Print plain text, as into a pipe, instead of opening the browser.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of groups to print.")] = None,
    every_rollout: Annotated[
        bool, typer.Option("--every-rollout", help="Print all rollouts, not only the best and the worst.")
    ] = False,
    rollout: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Print only rollout N (`repetition`) of each group.")
    ] = None,
) -> None:
    """Browse the groups of a dump in the terminal, or print them.

    Press ? in the browser for the keys. Into a pipe, or with --plain, --limit, --every-rollout or --rollout, groups are
    printed.

    Examples:
      rg-env dumps show dumps/sample
      rg-env dumps show dumps/sample --where "outcome = 'all_failed'" --search prime
      rg-env dumps show dumps/sample --sort spread --limit 3
    """
    from rg_env.browser import Query, group_lines
    from rg_env.dump import open_run

    conditions = where or []
    query = Query(" AND ".join(f"({part})" if len(conditions) > 1 else part for part in conditions), search)
    if _is_terminal() and not (plain or limit or every_rollout or rollout is not None):
        from rg_env.browser.app import Browser

        error = Browser(lambda: open_run(*paths), query, sort).run()
        if error:
            raise error
        if why := open_run(*paths).why_no_texts():
            print_error(why)
        return
    dump = open_run(*paths)
    count = 0
    for group in islice(query.groups(dump, sort), limit):
        count += 1
        for line in group_lines(group, dump.solved_at(group), every_rollout=every_rollout, repetition=rollout):
            print_line(line)
    if limit is None:
        for _ in dump.ledger(all_attempts=True):  # says which texts are missing
            pass
    print_remarks(dump, biases=False)
    if why := dump.why_no_texts():
        print_error(why)
    elif not count:
        print_error(f"no group matches {query}" if str(query) else "there are no groups")
    if not count:
        sys.exit(1)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
