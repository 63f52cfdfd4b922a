from __future__ import annotations

from hypothesis import settings

settings.register_profile("rg_env", deadline=None)  # a busy machine must not fail a test
settings.load_profile("rg_env")
