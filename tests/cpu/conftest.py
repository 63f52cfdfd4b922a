from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.cpu.toy import build_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="session")
def tied_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("tied"), tied=True)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """The toy is too small for two, and threads that wait for each other suffer most from a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
