from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rg_env.cli.options import JsonFlag
from rg_env.cli.progress import late_bar
from rg_env.errors import DumpError
from rg_env.output import print_json, print_line


def recover(
    path: Annotated[Path, typer.Argument(metavar="DUMP", help="Dump folder or file.")],
    out: Annotated[Path | None, typer.Option(help="Write a repaired copy to this folder, which has no dump.")] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Repair the folder itself and move damaged files to a subfolder.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Repair a damaged dump and check the result.

    No complete group is lost. Exit code 1 if data is lost or still damaged.

    Examples:
      rg-env dumps recover runs/my-run/dumps --out dumps/repaired
      rg-env dumps recover runs/my-run/dumps --in-place
    """
    from rg_env.dump.files import list_files
    from rg_env.dump.repair.in_place import recover_in_place
    from rg_env.dump.repair.recover import recover as repair
    from rg_env.dump.repair.validate import bytes_in, validate

    if (out is None) != in_place:
        raise DumpError("use --out DIR to write a repaired copy, or --in-place to repair the folder itself")
    aside = None
    target = path if out is None else out
    with late_bar("repairing", bytes_in(path)) as advance:
        if out is None:
            reports, aside = recover_in_place(path, advance=advance)
        else:
            reports = repair(path, out, advance=advance)
    copies = [file.path for file in list_files(target)]
    check = [target] if copies and path.is_dir() else copies  # a single file is checked without the others
    still_wrong = validate(*check).findings
    left = [str(finding) for finding in still_wrong.kept]
    verdict = "checked: no problems found" if copies else "nothing could be recovered; no copy was written"
    lost = sum(report.lost for report in reports)
    if as_json:
        shown = {
            "out": str(target),
            "damaged_files": None if aside is None else str(aside),
            "runs": [
                {
                    "run_id": report.run_id,
                    "texts": report.texts,
                    "ledger_lines": report.ledger_lines,
                    "trained": report.trained,
                    "levels": report.levels,
                    "lost": report.lost,
                    "counts": report.changes.counts,
                    "changes": [asdict(change) for change in report.changes.kept],
                }
                for report in reports
            ],
            "still_wrong": left,
        }
        print_json(shown)
    else:
        for report in reports:
            for change in report.changes.kept:
                print_line(change)
            if report.changes.more:
                print_line(f"… and {report.changes.more} more")
            print_line(
                f"run {report.run_id}: {report.ledger_lines} ledger lines, {report.texts} texts in {target}"
                + (f"; {report.lost} lost" if report.lost else "; nothing lost")
            )
        if aside is not None:
            print_line(f"the damaged files are in {aside}")
        for finding in left:
            print_line(f"still damaged: {finding}")
        if not left:
            print_line(verdict)
    raise typer.Exit(int(bool(lost or left)))
