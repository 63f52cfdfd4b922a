"""SkyRL's config with `environment.skyrl_gym.rg_dump` in it, read from YAML files and `key=value` overrides.

Invariant: a config from `load_config` has passed every check of `rg_env.skyrl.checks`; a mistake raises one
`ConfigError` before anything starts. Annotations stay real types (see `rg_env.config`).
"""

import dataclasses
import functools
import json
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.config.config import DataConfig, EnvironmentConfig, SkyRLGymConfig

from rg_env.config import PREFIX, RGDumpConfig
from rg_env.cpu.settings import CPU_OVERRIDES, nano_path
from rg_env.errors import ConfigError, RGEnvError, UnavailableError, one_line, refuse
from rg_env.rewards import load_reward, try_reward_function
from rg_env.settings import read_file, read_value
from rg_env.skyrl.checks import NANO, Setting, check_all, check_quickly, check_setting, limits_of
from rg_env.user_code import import_modules


@dataclass
class RGDataConfig(DataConfig):
    """Empty lists: Reasoning Gym items on demand. Files are read by SkyRL's own PromptDataset."""

    train_data: list[str] = field(default_factory=list)
    val_data: list[str] = field(default_factory=list)


@dataclass
class RGSkyRLGymConfig(SkyRLGymConfig):
    rg_dump: RGDumpConfig = field(default_factory=RGDumpConfig)


@dataclass
class RGEnvironmentConfig(EnvironmentConfig):
    env_class: str = "rg_dump"
    skyrl_gym: RGSkyRLGymConfig = field(default_factory=RGSkyRLGymConfig)


@dataclass
class RGTrainConfig(SkyRLTrainConfig):
    data: RGDataConfig = field(default_factory=RGDataConfig)
    environment: RGEnvironmentConfig = field(default_factory=RGEnvironmentConfig)

    @property
    def rg_dump(self) -> RGDumpConfig:
        return self.environment.skyrl_gym.rg_dump


_TOP_LEVEL = frozenset(declared.name for declared in dataclasses.fields(RGTrainConfig))


class _Draft(RGTrainConfig):
    """A config that SkyRL has not completed, which would import torch and takes seconds."""

    def __post_init__(self) -> None:
        pass


def load_config(args: Iterable[str], *, tolerate: Callable[[UnavailableError], None] | None = None) -> RGTrainConfig:
    """Build the config of a run and check it. Most mistakes are found before torch is imported.

    Args:
        args: YAML files (names ending in .yaml or .yml) and `key=value` overrides, in any order. Later files override
            earlier ones; overrides override files.
        tolerate: called with what this machine lacks (GPUs, servers, a hub), which is otherwise raised.

    Raises:
        RGEnvError: one line naming the setting and what would be right.
    """
    settings = _read_settings(args)
    settings = {**_device_settings(settings), **settings}
    draft = _build(_Draft, settings)
    import_modules(draft.rg_dump)
    if (function := load_reward(draft.rg_dump)) is not None:
        try:
            try_reward_function(function)
        except RGEnvError as error:
            refuse(f"{PREFIX}.reward", draft.rg_dump.reward, f"fails on a made-up group: {error}")
    check_quickly(draft)
    cfg = _build(RGTrainConfig, settings)
    _resolve(cfg)
    check_all(cfg, tolerate=tolerate)
    return cfg


def as_yaml(cfg: RGTrainConfig, *, everything: bool) -> str:
    """Settings as YAML, which `load_config` reads again: all, or those that differ from the defaults of the device."""
    values = _as_plain(cfg)
    if not everything:
        default = _build(RGTrainConfig, _device_settings({f"{PREFIX}.device": cfg.rg_dump.device}))
        _resolve(default)
        values = _differing(values, _as_plain(default))
    return OmegaConf.to_yaml(OmegaConf.create(values)) if values else ""


def _as_plain(cfg: RGTrainConfig) -> dict[str, Any]:
    return dict(json.loads(json.dumps(dataclasses.asdict(cfg), default=str)))


def _differing(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in values.items():
        default = defaults.get(name)
        if isinstance(value, dict) and isinstance(default, dict) and default:
            value = _differing(value, default)
            default = {}
        if value != default:
            found[name] = value
    return found


def _device_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults that a device has in place of SkyRL's."""
    if settings.get(f"{PREFIX}.device") != "cpu":
        return {}
    return CPU_OVERRIDES


def _build(kind: type[RGTrainConfig], settings: Mapping[str, Any]) -> RGTrainConfig:
    try:
        cfg: RGTrainConfig = kind.from_cli_overrides([f"{key}={json.dumps(value)}" for key, value in settings.items()])
    except (AssertionError, AttributeError, ValueError, TypeError, OmegaConfBaseException) as error:
        raise ConfigError(one_line(error)) from error
    return cfg


def _read_settings(args: Iterable[str]) -> dict[str, Any]:
    """The settings that the arguments give, checked one by one. Raises one ConfigError about all mistakes."""
    known = known_settings()
    groups = {name.rsplit(".", depth)[0] for name in known for depth in range(1, name.count(".") + 1)}
    settings: dict[str, Any] = {}
    overrides: dict[str, Any] = {}
    mistakes: list[str] = []
    for arg in args:
        key, sign, text = arg.partition("=")
        if key == "trainer.override_entrypoint":
            continue  # SkyRL's own switch to this entrypoint
        try:
            if arg.endswith((".yaml", ".yml")) and not sign:
                settings |= read_file(Path(arg), lambda name: name not in groups)
            elif sign and key and not key.startswith(("-", "+")):
                overrides[full_name(key)] = read_value(key, text)
            else:
                raise ConfigError(f"{arg!r}: expected a .yaml file or key=value, such as trainer.max_training_steps=10")
        except ConfigError as error:
            mistakes.append(str(error))
    for key, value in (settings | overrides).items():
        try:
            check_setting(key, value, known)
        except ConfigError as error:
            mistakes.append(str(error))
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    if not settings and not overrides:
        raise ConfigError("name a configuration, such as configs/quickstart.yaml, or give key=value settings")
    return settings | overrides


def full_name(key: str) -> str:
    """The dotted name of a setting that a command line may shorten: `tasks` for that of rg_env, where it is unique.

    Raises:
        ConfigError: several settings end with it.
    """
    known = known_settings()
    if key.partition(".")[0] in _TOP_LEVEL:
        return key
    head, rest = key, ""
    while head:
        matches = [name for name in known if name.endswith(f".{head}")]
        if len(matches) == 1 and (not rest or known[matches[0]].free_form):
            return matches[0] + rest
        if len(matches) > 1:
            raise ConfigError(f"{key} may be {', '.join(matches[:-1])} or {matches[-1]}: write the whole name")
        head, _, last = head.rpartition(".")
        rest = f".{last}{rest}"
    return key


def typed_settings(args: Iterable[str]) -> list[str]:
    """The whole names of the settings on a command line that `load_config` accepts."""
    return [full_name(arg.partition("=")[0]) for arg in args if "=" in arg]


@functools.cache
def known_settings() -> Mapping[str, Setting]:
    """Every setting that a run can have, SkyRL's and ours, by its dotted name."""
    return MappingProxyType(dict(_walk(RGTrainConfig, "")))


def _walk(datacls: type, prefix: str) -> Iterator[tuple[str, Setting]]:
    hints = typing.get_type_hints(datacls)
    for declared in dataclasses.fields(datacls):
        name, kind = f"{prefix}{declared.name}", hints[declared.name]
        parts = (kind, *typing.get_args(kind))  # of an optional group, its class and None
        if nested := next((part for part in parts if isinstance(part, type) and dataclasses.is_dataclass(part)), None):
            yield from _walk(nested, f"{name}.")
        else:
            limits = declared.metadata if name.startswith(PREFIX) else limits_of(name)
            free_form = any(part in (dict, Any) or typing.get_origin(part) is dict for part in parts)
            yield name, Setting(kind, limits, free_form)


def _resolve(cfg: RGTrainConfig) -> None:
    """Apply our settings that set SkyRL's, and replace `nano` and relative paths by absolute ones."""
    for role in (cfg.trainer.policy, cfg.trainer.critic, cfg.trainer.ref):
        if role.model.path == NANO:
            role.model.path = str(nano_path())
        elif role.model.path:
            role.model.path = _absolute_if_it_exists(role.model.path)
    for name in ("train_data", "val_data"):
        setattr(cfg.data, name, [_absolute_if_it_exists(source) for source in getattr(cfg.data, name)])
    template = cfg.generator.chat_template
    if template.source == "file" and template.name_or_path:
        template.name_or_path = _absolute(template.name_or_path)
    if cfg.trainer.resume_path:
        cfg.trainer.resume_path = _absolute(cfg.trainer.resume_path)
    rg = cfg.rg_dump
    rg.dump_dir = _absolute(rg.dump_dir)
    for name in ("ckpt_path", "export_path", "log_path"):  # Ray's workers may run in another folder
        setattr(cfg.trainer, name, _absolute(getattr(cfg.trainer, name)))
    if cfg.trainer.logger == "console" and rg.suppress_base_env_logs:
        cfg.trainer.print_example_interval = -1


def _absolute(path: str) -> str:
    """Links are kept: `rg_env.skyrl.run_folder` decides which run one names."""
    return path if "://" in path else str(Path(path).expanduser().absolute())


def _absolute_if_it_exists(path: str) -> str:
    """The absolute path of a file or folder; the name of a model or data set on a hub stays as it is."""
    return _absolute(path) if Path(path).expanduser().exists() else path
