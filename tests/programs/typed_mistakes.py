"""What `rg-env` answers to mistakes, `rg-env train` without its supervisor; help is shown first.

python -m tests.programs.typed_mistakes '[["dumps", "stats", "no/such/folder"], …]' '["torch", …]'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import rg_env.train
from rg_env.base.errors import RGEnvError
from rg_env.terminal.screen import Screen
from tests.programs.typed_commands import answers

HEAVY = ("polars", "pyarrow", "reasoning_gym", "starlette", "uvicorn", "orjson", "rg_env.formats")


def in_this_process(work: Callable[[], object], screen: Screen) -> int:
    try:
        work()
    except RGEnvError as error:
        screen.facts["error"] = str(error)
        return 2
    return 0


if __name__ == "__main__":
    commands, slow = map(json.loads, sys.argv[1:])
    for code, help_text, _, loaded in answers([["dumps", name, "--help"] for name in ("stats", "import")], HEAVY):
        assert (code, loaded) == (0, [])
        assert "Usage" in help_text
    rg_env.train.supervise = in_this_process  # type: ignore[attr-defined]
    print(json.dumps(answers(commands, slow)))
