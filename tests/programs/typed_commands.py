"""What `rg-env` answers to commands that are typed one after another, in this process.

python -m tests.programs.typed_commands '[["train", "a.yaml"], …]' '["torch", …]'

Prints for each command: exit code, standard output, standard error, and which of the named modules are loaded.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout

from rg_env.cli import main

Answer = tuple[object, str, str, list[str]]


def answers(commands: Iterable[Sequence[str]], slow: Sequence[str]) -> list[Answer]:
    given: list[Answer] = []
    for words in commands:
        sys.argv = ["rg-env", *words]
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as error:
            try:
                main()
                code: object = None
            except SystemExit as end:
                code = end.code
        loaded = [name for name in slow if name in sys.modules]
        given.append((code, out.getvalue(), error.getvalue(), loaded))
    return given


if __name__ == "__main__":
    print(json.dumps(answers(json.loads(sys.argv[1]), json.loads(sys.argv[2]))))
