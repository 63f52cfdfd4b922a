"""The command `rg-env`. Each command parses its arguments, calls the library and prints the result.

Invariant: nothing heavy is imported before a command needs it. Exit codes: 0 success, 1 problems found, 2 bad usage.
"""

from rg_env.cli.app import app, main

__all__ = ["app", "main"]
