from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import typer

from rg_env.cli.options import DumpPaths, JsonFlag, Where, print_remarks, spinner
from rg_env.output import counted, print_json, print_line


def signs(paths: DumpPaths, where: Where = None, as_json: JsonFlag = False) -> None:
    """Look for signs of reward hacking.

    Exit code 1 if any is found.

    Examples:
      rg-env dumps signs dumps/sample
      rg-env dumps signs runs/a/dumps runs/b/dumps --where "phase = 'eval'"
    """
    from rg_env.analysis.signs import NAMES, find_signs
    from rg_env.dump import open_run

    dump = open_run(*paths).where(where or [])
    with spinner("reading"):
        result = find_signs(dump)
    if as_json:
        print_json([asdict(one) for one in result.found])
    else:
        for one in result.found:
            print_line(f"{one.task}: {one.sign}")
            print_line(f"  {one.what}.")
            print_line(f"  groups: {', '.join(one.groups)}")
            print_line("")
        print_line(counted(len(result.found), "finding") if result.found else "nothing found")
        print_line(
            f"{counted(result.responses, 'response')} read: {result.answers} with an answer, {result.think_blocks} "
            f"with a think block, {result.references} to an item with a known reference answer"
        )
        tasks = Counter(one.sign for one in result.found)
        print_line(f"tasks with each sign: {', '.join(f'{name} {tasks[name]}' for name in NAMES)}")
    print_remarks(dump)
    raise typer.Exit(int(bool(result.found)))
