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

# Ray gives a node 30 seconds to start, and asks once more only when this wait is over: on a busy machine too few.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with the latest timeout begin first, so that no process of `make test-long` is left with one at the end."""
    items.sort(key=_timeout, reverse=True)


def _timeout(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0]) if mark else 0.0


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """The messages that are logged as warnings."""
    messages: list[str] = []
    handler = logger.add(lambda message: messages.append(message.record["message"]), level="WARNING")
    yield messages
    logger.remove(handler)
