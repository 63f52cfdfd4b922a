"""`rg-env` where no file may grow beyond 20 kB: python -m tests.programs.small_disk collect …"""

from __future__ import annotations

import resource
import sys

if __name__ == "__main__":
    sys.dont_write_bytecode = True  # a compiled module would be cut off, too
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    from rg_env.cli import main

    main()
