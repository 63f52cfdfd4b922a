"""The files of rg_env that training and reading load."""

from __future__ import annotations

import sys

import rg_env.analysis.stats
import rg_env.dump
import rg_env.skyrl.generator

if __name__ == "__main__":
    _ = rg_env.dump.open_run  # loaded on first use
    for name, module in sys.modules.items():
        if name.partition(".")[0] == "rg_env" and module.__file__:
            print(module.__file__)
