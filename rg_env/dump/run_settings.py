"""The settings that a run was started with, read back from its manifest. What it lacks, or has with a value that is
invalid today, has its default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from rg_env.config import PREFIX, RGDumpConfig
from rg_env.dump.read.runs import Run
from rg_env.errors import ConfigError
from rg_env.setting_types import check_value

_NOT_NEEDED = {"tasks", "worked_examples"}


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of one attempt of a run: `environment.skyrl_gym.rg_dump`."""

    config: RGDumpConfig


def settings_of(manifest: Mapping[str, Any] | None) -> dict[int, RunSettings]:
    """The settings of every attempt in a manifest; empty without a manifest.

    A manifest without a list of attempts counts as the one attempt that it names.
    """
    if manifest is None:
        return {}
    attempts = manifest.get("attempts")
    starts = [start for start in attempts if isinstance(start, Mapping)] if isinstance(attempts, list) else []
    settings = {}
    for start in starts or [manifest]:
        number = start.get("attempt")
        settings[number if isinstance(number, int) and number else 1] = _read(start)
    return settings


def settings_of_attempts(runs: Iterable[Run]) -> dict[tuple[str, int], RunSettings]:
    """The settings of every attempt that a manifest describes, by run id and attempt."""
    return {(run.run_id, attempt): settings for run in runs for attempt, settings in settings_of(run.manifest).items()}


def default_settings() -> RunSettings:
    """The settings to use where there is no manifest."""
    return RunSettings(RGDumpConfig())


def _read(start: Mapping[str, Any]) -> RunSettings:
    values: Any = start.get("settings")
    for name in PREFIX.split("."):
        values = values.get(name) if isinstance(values, Mapping) else None
    config = RGDumpConfig()
    _fill(config, values)
    return RunSettings(config)


def _fill(config: Any, values: object) -> None:
    for field in fields(config):
        default = getattr(config, field.name)
        if not isinstance(values, Mapping) or field.name not in values or field.name in _NOT_NEEDED:
            continue
        if is_dataclass(default):
            _fill(default, values[field.name])
        else:
            with suppress(ConfigError, TypeError):
                check_value(field.name, values[field.name], field.type, field.metadata)
                setattr(config, field.name, values[field.name])
