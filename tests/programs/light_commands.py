"""Commands one after another in this process, none of which may import anything heavy.

python -m tests.programs.light_commands '[["dumps", "stats", "FOLDER"], …]'
"""

from __future__ import annotations

import json
import sys

from rg_env.cli import main

HEAVY = ("torch", "ray", "skyrl", "skyrl_gym", "transformers", "omegaconf")

if __name__ == "__main__":
    for command in json.loads(sys.argv[1]):
        sys.argv = ["rg-env", *command]
        try:
            main()
        except SystemExit as ended:
            assert not ended.code, command
        assert not [name for name in HEAVY if name in sys.modules], command
