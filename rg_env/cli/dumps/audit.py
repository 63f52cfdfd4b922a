from __future__ import annotations

import json
import sys

from rg_env.cli.options import DumpPaths, JsonFlag, print_remarks
from rg_env.cli.progress import reading
from rg_env.sanitize import visible


def audit(paths: DumpPaths, as_json: JsonFlag = False) -> None:
    """Find signs of reward hacking and the groups that show them; exit code 1 if there are any.

    Example: rg-env dumps audit dumps/sample
    """
    from rg_env.analysis.signs import find_signs
    from rg_env.dump import open_run

    dump = open_run(*paths)
    with reading(dump, frames=1, texts=1):
        findings = find_signs(dump)
    if as_json:
        print(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        for finding in findings:
            shown = f"{finding.task}: {finding.sign}\n  {finding.what}.\n  groups: {', '.join(finding.groups)}\n"
            print(visible(shown))
        print(f"{len(findings)} findings" if findings else "nothing found")
    print_remarks(dump)
    sys.exit(1 if findings else 0)
