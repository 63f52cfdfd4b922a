"""`rg-env train` from a thread of a program: python -m tests.programs.train_in_thread CONFIG.yaml [overrides]"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from rg_env.train import train

if __name__ == "__main__":
    with ThreadPoolExecutor() as threads:
        threads.submit(train, sys.argv[1:]).result()
