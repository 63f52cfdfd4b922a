"""Our settings from `key=value` arguments, without SkyRL's configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import yaml

from rg_env.config import PREFIX, RGDumpConfig
from rg_env.errors import ConfigError, did_you_mean


def apply_overrides(config: RGDumpConfig, overrides: Iterable[str]) -> None:
    """Set `scorer.timeout=10` or `environment.skyrl_gym.rg_dump.scorer.timeout=10`, and check all settings.

    Raises:
        ConfigError: naming the setting and what would be right.
    """
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or override.startswith("-"):
            raise ConfigError(f"{override!r}: expected key=value, such as scorer.timeout=10")
        _set(config, key.removeprefix(f"{PREFIX}."), _value(key, text))
    config.validate()


def _value(key: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"{key}: cannot read {text!r}; quote it") from None


def _set(config: RGDumpConfig, key: str, value: Any) -> None:
    *groups, name = key.split(".")
    part: Any = config
    for group in groups:
        part = getattr(part, group, None) if dataclasses.is_dataclass(part) else None
    known = {field.name for field in dataclasses.fields(part)} if dataclasses.is_dataclass(part) else set()
    if name not in known or dataclasses.is_dataclass(getattr(part, name)):
        raise ConfigError(f"unknown setting {key!r}{did_you_mean(key, _names(config), 'docs/settings.md lists them')}")
    setattr(part, name, value)


def _names(config: Any, prefix: str = "") -> list[str]:
    names = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        nested = dataclasses.is_dataclass(value)
        names += _names(value, f"{prefix}{field.name}.") if nested else [f"{prefix}{field.name}"]
    return names
