"""Shell completion of what only rg_env knows: names of tasks and settings. The shell completes files.

Invariant: a completion imports neither torch nor Ray nor Reasoning Gym.
"""

from __future__ import annotations

from collections.abc import Iterable


def tasks(incomplete: str) -> list[str]:
    """Names of tasks, also after a comma."""
    from rg_env.tasks.audited import AUDITED_TASKS

    before, comma, start = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _starting(start, sorted(AUDITED_TASKS))]


def settings(incomplete: str) -> list[str]:
    """Names of settings, SkyRL's if it is installed; nothing for an empty word, which may become a file."""
    if not incomplete or "=" in incomplete:
        return []
    try:
        from rg_env.skyrl.config import known_settings
    except ImportError:
        return []
    return [f"{name}=" for name in _starting(incomplete, known_settings())]


def _starting(start: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(start)]
