"""Score pickled jobs (task, options, arguments) of standard input: python -m tests.programs.score_all sandboxed|free"""

from __future__ import annotations

import json
import pickle
import sys

import reasoning_gym  # noqa: F401 - the sandbox allows no more files afterward

from rg_env.runner.child_sandbox import Sandbox
from rg_env.scoring.upstream import make_scorer

if __name__ == "__main__":
    jobs = pickle.load(sys.stdin.buffer)
    if sys.argv[1] == "sandboxed":
        Sandbox().enter(1 << 30, 60)
    print(json.dumps([make_scorer(task, options)(arguments) for task, options, arguments in jobs]))
