from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from loguru import logger

settings.register_profile("rg_env", deadline=None)  # a busy machine must not fail a test
settings.load_profile("rg_env")


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """The messages that are logged as warnings."""
    messages: list[str] = []
    handler = logger.add(lambda message: messages.append(message.record["message"]), level="WARNING")
    yield messages
    logger.remove(handler)
