"""Makes the environment `rg_dump` known to skyrl_gym."""

from __future__ import annotations

import skyrl_gym

from rg_env.dataset import ENV_CLASS


def register() -> None:
    """Let `skyrl_gym.make("rg_dump", ...)` work in this process. Safe to call more than once.

    For stock SkyRL and other generators; `rg-env train` and `rg-env eval` do it themselves.
    """
    if ENV_CLASS not in skyrl_gym.envs.registration.registry:
        skyrl_gym.envs.register(id=ENV_CLASS, entry_point="rg_env.skyrl.env:RGDumpEnv")
