from __future__ import annotations

import sys

from rg_env.cli.options import DumpPaths, JsonFlag, print_remarks
from rg_env.cli.progress import reading
from rg_env.output import print_json, print_line


def audit(paths: DumpPaths, as_json: JsonFlag = False) -> None:
    """Find signs of reward hacking and the groups that show them; exit code 1 if there are any.

    Example: rg-env dumps audit dumps/sample
    """
    from rg_env.analysis.signs import Coverage, find_signs
    from rg_env.dump import open_run

    dump = open_run(*paths)
    with reading(dump, frames=1, texts=1):
        findings = find_signs(dump, coverage := Coverage())
    if as_json:
        print_json([finding.as_dict() for finding in findings])
    else:
        for finding in findings:
            print_line(f"{finding.task}: {finding.sign}")
            print_line(f"  {finding.what}.")
            print_line(f"  groups: {', '.join(finding.groups)}")
            print_line("")
        print_line(f"{len(findings)} findings" if findings else "nothing found")
        print_line(coverage)
    print_remarks(dump)
    sys.exit(1 if findings else 0)
