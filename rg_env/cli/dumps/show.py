from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from rg_env.cli.options import DumpPaths, Where, print_remarks
from rg_env.output import print_error


def show(
    paths: DumpPaths,
    where: Where = None,
    search: Annotated[str, typer.Option(help="Show groups with this text in a message, ignoring case.")] = "",
    plain: Annotated[
        bool, typer.Option("--plain", help="Print plain text, as into a pipe, instead of opening the browser.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of groups to print.")] = None,
    every_rollout: Annotated[
        bool, typer.Option("--every-rollout", help="Print all rollouts, not only the best and the worst.")
    ] = False,
) -> None:
    """Browse the groups of a dump in the terminal, or print them.

    Press ? in the browser for the keys. Into a pipe, or with --plain, --limit or --every-rollout, groups are printed.

    Examples:
      rg-env dumps show dumps/sample
      rg-env dumps show dumps/sample --where outcome=all_failed --search prime
      rg-env dumps show dumps/sample --limit 3 | less
    """
    from rg_env.browser import Query, print_groups
    from rg_env.dump import open_run

    query = Query(tuple(where or ()), search)
    if _is_terminal() and not (plain or limit or every_rollout):
        from rg_env.browser.app import Browser

        browser = Browser(lambda: open_run(*paths), query)
        browser.run()
        if browser.failure:
            raise browser.failure
        return
    dump = open_run(*paths)
    count = print_groups(dump, query, limit=limit, every_rollout=every_rollout)
    print_remarks(dump, biases=False)
    if not count:
        print_error(f"no group matches {query}" if str(query) else "there are no groups")
        sys.exit(1)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
