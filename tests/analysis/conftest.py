from __future__ import annotations

import pytest

from rg_env.configuration.config import ScorerConfig
from rg_env.scoring import Scorer, shared_scorer


@pytest.fixture
def scorer() -> Scorer:
    """The one that `rescore` uses with these settings: a single pool for all tests."""
    return shared_scorer(ScorerConfig(workers=1, timeout=30.0))
