from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import typer

from rg_env.cli.options import DumpPaths, JsonFlag, Where, print_remarks
from rg_env.cli.progress import spinner
from rg_env.output import print_json, print_line

_ITEMS_SHOWN = 10


def audit(paths: DumpPaths, where: Where = None, as_json: JsonFlag = False) -> None:
    """Look for signs of reward hacking and for wrong stored answers.

    A stored answer may be wrong if several models, or most samples of one, agree on an answer that scores low. Exit
    code 1 if anything is found, except answers on which only the samples of a single model agree.

    Examples:
      rg-env dumps audit dumps/sample
      rg-env dumps audit runs/a/dumps runs/b/dumps --where phase=eval
    """
    from rg_env.analysis.signs import NAMES, audit_dump
    from rg_env.dump import open_run

    dump = open_run(*paths).where(where or [])
    with spinner("reading"):
        result = audit_dump(dump)
    if as_json:
        print_json([asdict(one) for one in result.found])
    else:
        for one in result.found:
            print_line(f"{one.task}: {one.sign}")
            print_line(f"  {one.what}.")
            print_line(f"  groups: {', '.join(one.groups)}")
            for item in one.items[:_ITEMS_SHOWN]:
                print_line(f"  {item.item}: {item.agree} of {item.of} answer {item.answer!r}, score {item.score:.2f}")
            if len(one.items) > _ITEMS_SHOWN:
                print_line(f"  … and {len(one.items) - _ITEMS_SHOWN} more; --json lists all with their groups")
            print_line("")
        print_line(f"{len(result.found)} findings" if result.found else "nothing found")
        print_line(
            f"{result.responses} responses read: {result.answers} with an answer, {result.think_blocks} with a think "
            f"block, {result.references} to an item with a known reference answer"
        )
        tasks = Counter(one.sign for one in result.found)
        print_line(f"tasks with each sign: {', '.join(f'{name} {tasks[name]}' for name in NAMES)}")
    print_remarks(dump)
    raise typer.Exit(int(any(one.is_problem for one in result.found)))
