"""Resume the run in a folder of checkpoints, and hold it: python -m tests.programs.checkpoints_holder FOLDER"""

from __future__ import annotations

import sys

from rg_env.dump import claim_run
from rg_env.dump.run_file import lock_checkpoints

if __name__ == "__main__":
    locks = lock_checkpoints(sys.argv[1])
    print(*claim_run(sys.argv[1], resuming=True), flush=True)
    sys.stdin.read()
