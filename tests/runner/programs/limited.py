"""Limits of this process that come and go: python -m tests.runner.programs.limited descriptors|memory"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

from rg_env.runner import ScorerPoolError, guarded

KIND = {"descriptors": resource.RLIMIT_NOFILE, "memory": resource.RLIMIT_AS}[sys.argv[1]]


def lowest() -> int:
    """What this process has already: nothing more can be opened, no thread can have a stack."""
    if KIND == resource.RLIMIT_NOFILE:
        return len(list(Path("/proc/self/fd").iterdir()))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return (pages + 256) * resource.getpagesize()


with guarded("math:factorial", workers=1) as scorer:
    soft, hard = resource.getrlimit(KIND)
    resource.setrlimit(KIND, (lowest(), hard))
    start = time.monotonic()
    try:
        outcome = f"a score: {scorer.score(3).value}"
    except ScorerPoolError as error:
        outcome = f"ScorerPoolError: {error}"
    resource.setrlimit(KIND, (soft, hard))
    print(outcome)
    assert scorer.score(3).value == 6.0
print("recovered")
