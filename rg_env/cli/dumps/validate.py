from __future__ import annotations

from dataclasses import asdict

import typer

from rg_env.cli.options import DumpPaths, JsonFlag, spinner
from rg_env.output import counted, print_json, print_line


def validate(paths: DumpPaths, as_json: JsonFlag = False) -> None:
    """Check every line of a dump, and its files against each other.

    Exit code 1 if there are problems, 3 if the run could not write some groups.

    Examples:
      rg-env dumps validate dumps/sample
      rg-env dumps validate runs/*/dumps --json
    """
    from rg_env.dump import FileKind
    from rg_env.dump.validate import ADVICE
    from rg_env.dump.validate import validate as check

    with spinner("checking"):
        result = check(*paths)
    code = 3 if result.counts["groups_missing"] else int(not result.good)
    if as_json:
        shown = {
            "good": result.good,
            "runs": result.runs,
            "texts": result.texts,
            "ledger_lines": result.records[FileKind.LEDGER],
            "counts": result.counts,
            "findings": [asdict(fault) | {"advice": ADVICE[fault.kind]} for fault in result.kept],
            "remarks": result.remarks,
        }
        print_json(shown)
        raise typer.Exit(code)
    for line in (*result.kept, *result.remarks):
        print_line(line)
    if result.counts.total() > len(result.kept):
        print_line(f"… and {result.counts.total() - len(result.kept)} more")
    kinds = ", ".join(f"{count} {kind}" for kind, count in result.counts.items())
    found = (
        f"{counted(result.counts.total(), 'problem')} found ({kinds})" if result.counts.total() else "no problems found"
    )
    read = f"{counted(result.records[FileKind.LEDGER], 'ledger line')}, {counted(result.texts, 'text')}"
    print_line(f"{counted(result.runs, 'run')}, {read}: {found}")
    raise typer.Exit(code)
