"""Our settings without SkyRL's configuration: read from `key=value` arguments, written to manifests."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import yaml

from rg_env.config import GONE, PREFIX, RGDumpConfig
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


def generator_settings(
    config: RGDumpConfig, *, samples: int, eval_samples: int, max_tokens: int, temperature: float, top_p: float
) -> dict[str, Any]:
    """The settings of a manifest, under SkyRL's names, so that every tool finds them."""
    generator = {
        "n_samples_per_prompt": samples,
        "eval_n_samples_per_prompt": eval_samples,
        "zero_reward_on_non_stop": False,
        "sampling_params": {"max_generate_length": max_tokens, "temperature": temperature, "top_p": top_p},
    }
    return config.as_nested() | {"generator": generator}


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
        gone = f"; {GONE[key]}" if key in GONE else ""
        hint = gone or did_you_mean(key, _names(config), "docs/settings.md lists them")
        raise ConfigError(f"unknown setting {key!r}{hint}")
    setattr(part, name, value)


def _names(config: Any, prefix: str = "") -> list[str]:
    names = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        nested = dataclasses.is_dataclass(value)
        names += _names(value, f"{prefix}{field.name}.") if nested else [f"{prefix}{field.name}"]
    return names
