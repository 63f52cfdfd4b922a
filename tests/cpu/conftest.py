from __future__ import annotations

from pathlib import Path

import pytest

from tests.cpu.toy import build_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="session")
def tied_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("tied"), tied=True)
