from __future__ import annotations

from dataclasses import asdict

import typer

from rg_env.cli.options import DumpPaths, JsonFlag
from rg_env.cli.progress import late_bar
from rg_env.output import print_json, print_line


def validate(paths: DumpPaths, as_json: JsonFlag = False) -> None:
    """Check every line of a dump, its files against each other, and the manifest.

    Exit code 1 if there are problems; `rg-env dumps recover` repairs them.

    Examples:
      rg-env dumps validate dumps/sample
      rg-env dumps validate runs/*/dumps --json
    """
    from rg_env.dump.repair.validate import bytes_in
    from rg_env.dump.repair.validate import validate as check

    with late_bar("checking", bytes_in(*paths)) as advance:
        result = check(*paths, advance=advance)
    findings = result.findings
    if as_json:
        shown = {
            "good": result.good,
            "runs": result.runs,
            "texts": result.texts,
            "ledger_lines": result.ledger_lines,
            "counts": findings.counts,
            "findings": [asdict(finding) | {"advice": finding.kind.advice} for finding in findings.kept],
            "remarks": result.remarks,
        }
        print_json(shown)
        raise typer.Exit(int(not result.good))
    for line in (*findings.kept, *result.remarks):
        print_line(line)
    if findings.more:
        print_line(f"… and {findings.more} more")
    kinds = ", ".join(f"{count} {kind}" for kind, count in findings.counts.items())
    print_line(
        f"{result.runs} run{'s'[: result.runs != 1]}, {result.ledger_lines} ledger lines, {result.texts} texts: "
        + (f"{findings.total} problems found ({kinds})" if findings.total else "no problems found")
    )
    raise typer.Exit(int(not result.good))
