"""The command `rg-env`. Each command reads its arguments, calls the library and prints; no rule lives here.

Nothing heavy is imported before a command needs it: reading dumps must not wait for torch. Exit codes: 0 good, 1 found
problems, 2 bad usage.
"""

from rg_env.cli.app import app, main

__all__ = ["app", "main"]
