from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from loguru import logger


@pytest.fixture
def log() -> Iterator[list[str]]:
    """What is logged, as `LEVEL message` lines."""
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(str(message).strip()), format="{level} {message}", level="INFO")
    yield lines
    logger.remove(sink)


@pytest.fixture
def ram_folder() -> Iterator[Path]:
    """A folder in memory where that is possible: what a process leaves behind is the same there, and sooner."""
    shared_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None) as name:
        yield Path(name)
