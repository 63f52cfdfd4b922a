"""The settings that a run was started with, read back from its manifest.

Invariant: nothing is guessed silently. Where a manifest lacks a setting, today's default is used and `absent` names it.
Needs no SkyRL: only the settings that a dump depends on are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from rg_env.config import LengthPenaltyConfig, RGDumpConfig, ScorerConfig
from rg_env.dump.schema import FileKind, Phase
from rg_env.errors import ConfigError

_PARTS = {"scorer": ScorerConfig, "length_penalty": LengthPenaltyConfig}
_NOT_NEEDED = {"tasks", "worked_examples"}


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of one attempt of a run.

    Attributes:
        config: `environment.skyrl_gym.rg_dump`.
        max_generate_length: in tokens; None where the manifest does not say.
        zero_reward_on_non_stop: SkyRL's switch.
        fully_async: True where calls of `generate()` overlap, so that their groups come in any order.
        samples: rollouts in a group, for each phase; a phase is absent where the manifest does not say.
        absent: settings that the manifest does not have, by their names.
    """

    config: RGDumpConfig
    max_generate_length: int | None
    zero_reward_on_non_stop: bool
    fully_async: bool
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


def default_settings() -> RunSettings:
    """The settings to use where there is no manifest."""
    return _read({})


def batch_limit(settings: Mapping[int, RunSettings], kind: FileKind) -> int | None:
    """The most lines that a batch of this kind can have, over all attempts; None where no manifest says."""
    configs = [attempt.config for attempt in settings.values()]
    limits = [c.failed_groups_per_file if kind is FileKind.FAILED else c.groups_per_file for c in configs]
    return max(limits, default=None)


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
    return RunSettings(
        config=_config(_part(gym, "rg_dump"), absent),
        max_generate_length=longest,
        zero_reward_on_non_stop=bool(zero),
        fully_async=bool(_part(_part(settings, "trainer"), "fully_async").get("enabled")),
        samples={phase: count for phase, count in samples.items() if count},
        absent=tuple(absent),
    )


def _config(values: Mapping[str, Any], absent: list[str]) -> RGDumpConfig:
    """The settings in `values`; what they lack, or have in a form that is invalid today, is added to `absent`."""
    config = RGDumpConfig()
    for field in fields(RGDumpConfig):
        if field.name in _NOT_NEEDED:
            continue
        if field.name not in values:
            absent.append(f"rg_dump.{field.name}")
        elif field.name in _PARTS:
            setattr(config, field.name, _nested(_PARTS[field.name], _part(values, field.name), field.name, absent))
        else:
            _set(config, field.name, values[field.name], absent)
    return config


def _nested(kind: type[Any], values: Mapping[str, Any], name: str, absent: list[str]) -> Any:
    known = {field.name for field in fields(kind)}
    absent += [f"rg_dump.{name}.{missing}" for missing in sorted(known - values.keys())]
    nested = kind(**{key: value for key, value in values.items() if key in known})
    try:
        RGDumpConfig(**{name: nested}).validate()
    except (ConfigError, TypeError):
        absent.append(f"rg_dump.{name}")
        return kind()
    return nested


def _set(config: RGDumpConfig, name: str, value: Any, absent: list[str]) -> None:
    default = getattr(config, name)
    setattr(config, name, value)
    try:
        config.validate()
    except (ConfigError, TypeError):
        setattr(config, name, default)
        absent.append(f"rg_dump.{name}")


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
