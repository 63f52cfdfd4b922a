"""Modules that are imported when they are first used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rg_env.tasks.upstream.deferred import deferred

USER = """
from slow_drawing.plots import Figure
import slow_drawing.plots as plots
import slow_drawing

def draw():
    return plots.Figure().name, slow_drawing.plots.NAME, Figure.name
"""


def test_a_deferred_module_is_imported_when_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "slow_drawing"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "plots.py").write_text("NAME = 'plot'\nclass Figure:\n    name = 'figure'\n")
    (tmp_path / "user_of_drawing.py").write_text(USER)
    monkeypatch.syspath_prepend(tmp_path)
    with deferred("slow_drawing", "slow_drawing.plots"):
        import user_of_drawing  # type: ignore[import-not-found]
    assert not {name for name in sys.modules if name.startswith("slow_drawing")}
    assert user_of_drawing.draw() == ("figure", "plot", "figure")
    assert sys.modules["slow_drawing.plots"].NAME == "plot"
    with deferred("slow_drawing", "slow_drawing.plots"):  # too late: it is imported already
        assert sys.modules["slow_drawing.plots"].NAME == "plot"


def test_reasoning_gym_is_imported_without_matplotlib() -> None:
    program = (
        "import sys; from rg_env.tasks.upstream.dataset import reasoning_gym, UpstreamDataset; reasoning_gym();"
        "assert 'matplotlib' not in sys.modules; UpstreamDataset('game_of_life', {}).make(1);"
        "import cellpylib; assert callable(cellpylib.ca_functions.plt.figure)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
