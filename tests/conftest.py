from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from loguru import logger

# A busy machine must not fail a test, and everybody runs the same examples. `explore` draws new ones.
settings.register_profile("rg_env", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "rg_env"))


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """The messages that are logged as warnings."""
    messages: list[str] = []
    handler = logger.add(lambda message: messages.append(message.record["message"]), level="WARNING")
    yield messages
    logger.remove(handler)
