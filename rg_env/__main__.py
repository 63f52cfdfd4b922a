"""`python -m rg_env`: the command `rg-env`."""

from rg_env.cli import main

main()
