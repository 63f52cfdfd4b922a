"""Reasoning Gym is imported without matplotlib, and its users get the real one."""

from __future__ import annotations

import pytest

from tests.running import run_program


@pytest.mark.parametrize("imported", ["after", "before", "meanwhile"])
def test_matplotlib_is_the_real_one_whenever_it_is_imported(imported: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    assert run_program("plots", imported).stdout.rstrip().endswith("matplotlib/__init__.py")
