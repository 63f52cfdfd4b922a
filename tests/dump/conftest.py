from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from loguru import logger

settings.register_profile("dump", deadline=None)  # a busy machine is no failure
settings.load_profile("dump")


@pytest.fixture
def log() -> Iterator[list[str]]:
    """What is logged, as `LEVEL message` lines."""
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(str(message).strip()), format="{level} {message}", level="INFO")
    yield lines
    logger.remove(sink)
