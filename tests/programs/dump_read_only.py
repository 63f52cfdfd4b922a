"""Write into a folder that is read-only at first, and again later: python -m tests.programs.dump_read_only FOLDER"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from filelock import SoftFileLock  # noqa: F401 - loaded on first use, which the other user's rights may not allow

from rg_env.base.errors import DumpError
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import DumpWriter
from tests.dump.records import RUN_ID, group

NOBODY = 65534

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if os.geteuid() == 0:  # permissions do not bind root
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    folder.chmod(0o555)
    try:
        DumpWriter(folder, RUN_ID, 1)
    except DumpError as error:
        print(error)
    folder.chmod(0o755)
    with DumpWriter(folder, RUN_ID, 1, RGDumpConfig(groups_per_file=2)) as writer:
        assert writer.submit([group(0)]).result(5)
        folder.chmod(0o555)
        assert writer.submit([group(1)]).result(5)  # the open files take it, and cannot get their final names
        assert not writer.submit([group(2)]).result(5)
        assert writer.missing == 1
        folder.chmod(0o755)
        assert writer.submit([group(3)]).result(5)
