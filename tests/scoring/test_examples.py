"""The examples in docstrings hold."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["base_score", "functions", "length", "parse", "scorer", "worker"])
def test_the_examples_hold(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"rg_env.scoring.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
