from __future__ import annotations

import sys
from collections import Counter

from rg_env.cli.options import DumpPaths, JsonFlag, Where, print_remarks
from rg_env.cli.progress import reading
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
    from rg_env.analysis import select
    from rg_env.analysis.signs import Consensus, Coverage, Sign, find_signs
    from rg_env.dump import open_run

    dump = open_run(*paths)
    with reading(dump, frames=2 if where else 1, texts=1):
        findings = find_signs(select(dump, where or []), coverage := Coverage(), consensus := Consensus(dump.runs))
    agreements = sorted(consensus.findings(), key=lambda finding: finding.task)
    shown = [*findings, *agreements]
    if as_json:
        print_json([finding.as_dict() for finding in shown])
    else:
        for finding in shown:
            print_line(f"{finding.task}: {finding.sign}")
            print_line(f"  {finding.what}.")
            print_line(f"  groups: {', '.join(finding.groups)}")
            for item in finding.items[:_ITEMS_SHOWN]:
                print_line(f"  {item.item}: {item.agree} of {item.of} answer {item.answer!r}, score {item.score:.2f}")
            if len(finding.items) > _ITEMS_SHOWN:
                print_line(f"  … and {len(finding.items) - _ITEMS_SHOWN} more; --json lists all with their groups")
            print_line("")
        print_line(f"{len(shown)} findings" if shown else "nothing found")
        print_line(coverage)
        print_line("looked for these signs; in parentheses, the number of tasks that show them:")
        tasks = Counter(sign for sign, _ in {(finding.sign, finding.task) for finding in shown})
        for sign in Sign:
            print_line(f"  {sign} ({tasks[sign]})")
    print_remarks(dump)
    sys.exit(1 if findings or (agreements and consensus.several) else 0)
