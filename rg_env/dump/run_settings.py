"""The settings that a run was started with, read back from its manifest.

Invariant: nothing is guessed silently: if a manifest lacks a setting, the current default is used and `absent` lists
it. SkyRL is not needed, because only settings that a dump depends on are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.dump.read.runs import Run
from rg_env.dump.schema import Phase
from rg_env.errors import ConfigError

_NOT_NEEDED = {"tasks", "worked_examples"}


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of one attempt of a run.

    Attributes:
        config: `environment.skyrl_gym.rg_dump`.
        max_generate_length: in tokens; None if the manifest lacks it.
        zero_reward_on_non_stop: SkyRL's switch.
        samples: rollouts per group, by phase; without phases that the manifest lacks.
        absent: names of the settings that the manifest lacks, or has with an invalid value.
    """

    config: RGDumpConfig
    max_generate_length: int | None
    zero_reward_on_non_stop: bool
    samples: Mapping[Phase, int]
    absent: tuple[str, ...]


def settings_of(manifest: Mapping[str, Any] | None) -> dict[int, RunSettings]:
    """The settings of every attempt in a manifest; empty without a manifest.

    A manifest without a list of attempts counts as the one attempt that it names.
    """
    if manifest is None:
        return {}
    attempts = manifest.get("attempts")
    starts = [start for start in attempts if isinstance(start, Mapping)] if isinstance(attempts, list) else []
    return {_whole(start.get("attempt")) or 1: _read(start) for start in starts or [manifest]}


def settings_of_attempts(runs: Iterable[Run]) -> dict[tuple[str, int], RunSettings]:
    """The settings of every attempt that a manifest describes, by run id and attempt."""
    return {(run.run_id, attempt): settings for run in runs for attempt, settings in settings_of(run.manifest).items()}


def default_settings() -> RunSettings:
    """The settings to use where there is no manifest."""
    return _read({})


def _read(start: Mapping[str, Any]) -> RunSettings:
    absent: list[str] = []
    settings = _part(start, "settings")
    gym = _part(_part(settings, "environment"), "skyrl_gym")
    generator = _part(settings, "generator")
    longest = _whole(_part(generator, "sampling_params").get("max_generate_length"))
    zero = generator.get("zero_reward_on_non_stop")
    samples = {
        Phase.TRAIN: _whole(generator.get("n_samples_per_prompt")),
        Phase.EVAL: _whole(generator.get("eval_n_samples_per_prompt")),
    }
    for name, value in (("sampling_params.max_generate_length", longest), ("zero_reward_on_non_stop", zero)):
        if value is None:
            absent.append(f"generator.{name}")
    config = RGDumpConfig()
    _fill(config, _part(gym, "rg_dump"), "rg_dump", config, absent)
    return RunSettings(
        config=config,
        max_generate_length=longest,
        zero_reward_on_non_stop=bool(zero),
        samples={phase: count for phase, count in samples.items() if count},
        absent=tuple(absent),
    )


def _fill(part: Any, values: Mapping[str, Any], name: str, config: RGDumpConfig, absent: list[str]) -> None:
    """Set the fields of `part`, which is `config` or a part of it. Fields without a valid value keep their defaults and
    are added to `absent`.
    """
    for field in fields(part):
        default, full_name = getattr(part, field.name), f"{name}.{field.name}"
        if field.name in _NOT_NEEDED:
            continue
        if field.name not in values:
            absent.append(full_name)
        elif is_dataclass(default):
            _fill(default, _part(values, field.name), full_name, config, absent)
        else:
            setattr(part, field.name, values[field.name])
            try:
                config.validate()
            except (ConfigError, TypeError):
                setattr(part, field.name, default)
                absent.append(full_name)


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
