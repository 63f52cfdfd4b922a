"""Which heavy packages some modules, or names of modules, load: python -m tests.programs.loaded MODULE[:NAME]…"""

from __future__ import annotations

import importlib
import sys

HEAVY = {"torch", "ray", "skyrl", "skyrl_gym", "transformers", "reasoning_gym", "numpy"}

if __name__ == "__main__":
    for path in sys.argv[1:]:
        module_name, _, name = path.partition(":")
        module = importlib.import_module(module_name)
        dir(module)
        if name:
            getattr(module, name)
    print(sorted(HEAVY & {*sys.modules}))
