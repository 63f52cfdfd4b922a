"""Plot with cellpylib after Reasoning Gym has been imported, and import matplotlib in another thread meanwhile."""

import builtins
import sys
import threading
from typing import Any

from rg_env.tasks.upstream.patched_dataset import reasoning_gym


def plot_a_game() -> None:
    import cellpylib  # type: ignore[import-untyped]

    cellpylib.plot2d(cellpylib.init_simple2d(5, 5), show=False)
    cellpylib.ca_functions2d.mcoll.LineCollection([])


def import_matplotlib() -> None:
    from matplotlib import cm, pyplot

    assert callable(pyplot.figure)
    assert callable(cm.viridis)


if sys.argv[1:] == ["after"]:
    reasoning_gym()
    assert "matplotlib" not in sys.modules
    plot_a_game()
    import_matplotlib()
elif sys.argv[1:] == ["before"]:
    import_matplotlib()
    first = sys.modules["matplotlib"]
    reasoning_gym()
    assert sys.modules["matplotlib"] is first
    plot_a_game()
else:
    # Placeholders stand for matplotlib when cellpylib is about to be imported.
    plain_import = builtins.__import__
    imported: list[object] = []

    def import_meanwhile(name: str, *how: Any) -> Any:
        if name == "cellpylib" and not imported:
            thread = threading.Thread(target=import_matplotlib)
            thread.start()
            thread.join()
            imported.append(sys.modules["matplotlib"])
        return plain_import(name, *how)

    builtins.__import__ = import_meanwhile  # type: ignore[assignment]
    reasoning_gym()
    assert imported == [sys.modules["matplotlib"]]
    plot_a_game()
print(sys.modules["matplotlib"].__file__)
