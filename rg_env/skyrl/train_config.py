"""SkyRL's config with `environment.skyrl_gym.rg_dump` in it, read from YAML files and `key=value` overrides.

Invariant: a `TrainingRun` has passed every check of `rg_env.skyrl.checks`; otherwise one `ConfigError` has a line for
each mistake, before anything starts. Annotations stay real types (see `rg_env.configuration.config`).
"""

import dataclasses
import functools
import json
import os
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.config.config import DataConfig, EnvironmentConfig, SkyRLGymConfig

from rg_env.base.errors import ConfigError, UnavailableError, need, one_line
from rg_env.base.output import print_error
from rg_env.configuration.config import PREFIX, RGDumpConfig
from rg_env.configuration.modules import hidden
from rg_env.configuration.setting_names import find_setting, foreign_names, is_group, setting_names
from rg_env.configuration.settings import (
    check_value,
    is_within,
    nearest_recipe,
    read_file,
    read_value,
    replaced_tasks,
    set_value,
    value_of,
)
from rg_env.skyrl.checks import (
    MODELS,
    NANO,
    OF_SKYRL,
    SINGLE,
    TOGETHER,
    check_cpu,
    check_reward,
    check_tasks,
    check_typed,
    find_mistakes,
    limits_of,
)
from rg_env.skyrl.combinations import WARNINGS
from rg_env.skyrl.cpu.cpu_settings import CPU_OVERRIDES, nano_path
from rg_env.skyrl.preparation import load_modules, set_wandb_key
from rg_env.skyrl.resumption import check_same_experiment
from rg_env.skyrl.run_folder import PATHS, RunFolder, refuse_what_is_of_another_run
from rg_env.tasks.mix import read_spec


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


class _Draft(RGTrainConfig):
    """A config that SkyRL has not completed, which would import torch and takes seconds."""

    def __post_init__(self) -> None:
        pass


@dataclass(frozen=True)
class TrainingRun:
    """A run whose settings have passed every check.

    Attributes:
        given: the settings that were given, by their whole names.
    """

    cfg: RGTrainConfig
    folder: RunFolder
    given: tuple[str, ...]


def load_run(args: Iterable[str], *, tolerate: Callable[[UnavailableError], None] | None = None) -> TrainingRun:
    """Read the settings of a run and check them. Nearly all mistakes are found before torch is imported.

    Args:
        args: YAML files (names ending in .yaml or .yml) and `key=value` overrides, in any order. Later files override
            earlier ones; overrides override files.
        tolerate: called with what this machine lacks (GPUs, servers, a hub), which is otherwise raised.

    Raises:
        ConfigError: a line for each mistake, naming the setting and what would be right.
    """
    values, typed, mistakes = _read_settings(args)
    given = tuple(dict.fromkeys(find_setting(name)[0] for name in values))
    # A draft first: to complete a config, SkyRL imports torch, and most mistakes are found without it.
    draft = _build(_Draft, values)
    folder = RunFolder.of(draft, given, typed)
    folder.place(draft)
    checks = [*SINGLE]
    # Their tasks and functions are what these two look at.
    if failed := find_mistakes(draft, [load_modules]):
        mistakes += failed
        checks = [check for check in SINGLE if check not in (check_tasks, check_reward)]
    # A value that is wrong is not in the draft, so combinations cannot be judged yet.
    if not mistakes:
        checks += [*TOGETHER, partial(check_typed, typed=typed), *[check_cpu] * (draft.rg_dump.device == "cpu")]
    elif check_tasks in checks and not any(name.startswith(f"{PREFIX}.tasks") for name in typed):
        checks.remove(check_tasks)  # options of tasks need Reasoning Gym, whose import takes seconds
    _refuse(mistakes + find_mistakes(draft, checks))
    for warn in WARNINGS:
        warn(draft)
    # To complete a config, SkyRL imports vLLM where it is installed. Only its engines need it, in other processes.
    with hidden("vllm"):
        cfg = _build(RGTrainConfig, values)
    # Absolute paths first: the settings of an earlier attempt, which are compared, have them, too.
    folder.place(cfg)
    _resolve(cfg)
    set_wandb_key()  # SkyRL refuses a run with wandb that has no key in the environment
    _refuse(find_mistakes(cfg, OF_SKYRL, tolerate))
    check_same_experiment(cfg)
    refuse_what_is_of_another_run(cfg, folder)
    return TrainingRun(cfg, folder, given)


def _refuse(mistakes: Iterable[str]) -> None:
    if lines := "\n".join(mistakes):
        raise ConfigError(lines)


def as_yaml(run: TrainingRun, *, everything: bool) -> str:
    """Settings as YAML, which `load_run` reads again: all, or those that differ from the defaults of the device."""
    default = _build(RGTrainConfig, CPU_OVERRIDES if run.cfg.rg_dump.device == "cpu" else {})
    _resolve(default)
    shown = OmegaConf.create(_plain(dataclasses.asdict(run.cfg)) if everything else {})
    for name in run.given:
        if (value := value_of(run.cfg, name)) != value_of(default, name):
            OmegaConf.update(shown, name, _plain(value), force_add=True)
    return OmegaConf.to_yaml(shown) if shown else ""


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def _build(kind: type[RGTrainConfig], values: Mapping[str, Any]) -> RGTrainConfig:
    try:
        cfg: RGTrainConfig = kind.from_cli_overrides(dict(values))
    except (AssertionError, AttributeError, ValueError, TypeError, OmegaConfBaseException) as error:
        raise ConfigError(one_line(error)) from error
    return cfg


def _read_settings(args: Iterable[str]) -> tuple[dict[str, Any], set[str], list[str]]:
    """Return the values of settings, the names of those that are not from files, and what is wrong with others.

    Raises ConfigError for a file that cannot be read, and for wrong `imports`, without which tasks are unknown.
    """
    files: dict[str, Any] = {}
    sources: dict[str, str] = {}
    typed: dict[str, Any] = {}
    mistakes: list[str] = []
    loose: list[str] = []
    for arg in args:
        key, sign, text = arg.partition("=")
        if key == "trainer.override_entrypoint":
            continue  # SkyRL's own switch to this entrypoint
        if arg.endswith((".yaml", ".yml")) and not sign:
            read = read_file(Path(arg), lambda name: not is_group(name))
            if line := replaced_tasks(read, arg, files, sources):
                print_error(line)
            sources |= dict.fromkeys(read, arg)
            files = _overridden(files, read)
        elif sign and key and not key.startswith(("-", "+")):
            try:
                typed = _overridden(typed, {"".join(find_setting(key)): read_value(key, text)})
            except ConfigError as error:
                mistakes.append(str(error))
        else:
            loose.append(arg)
    if loose:
        from rg_env.base.hints import loose_words

        mistakes += loose_words(loose, setting_names(), nearest_recipe)
    if line := replaced_tasks(typed, "", files, sources):
        print_error(line)
    values = _overridden(files, typed)
    # After merging, because a value that another one overrides need not be right.
    for key, value in list(values.items()):
        try:
            name, rest = find_setting(key, whole=True)
            has_parts = isinstance(values.get(name), Mapping | None)
            need(not rest or has_parts, key, value, f"{name} is {values.get(name)!r} here, which has no such part")
            if name in known_settings() and not rest:
                check_value(name, value, known_settings()[name].kind, known_settings()[name].limits)
            elif not rest and value is None:
                need(name in _optional_groups(), key, value, "is empty; indent the lines below it, or leave it out")
            elif not rest:
                member = next(member for member in known_settings() if member.startswith(f"{name}."))
                raise ConfigError(f"{key}={value!r}: it is a group of settings; set one of them, such as {member}")
        except ConfigError as error:
            if key == f"{PREFIX}.imports":
                raise
            mistakes += foreign_names(key, value) or [str(error)]
            # Left out, so that a config can be built and shows its other mistakes.
            del values[key]
    if not values and not mistakes:
        raise ConfigError("name a configuration, such as configs/quickstart.yaml, or give key=value settings")
    if not mistakes and MODELS[0] not in values:
        mistakes.append(f"no model is set: name a recipe first, such as configs/quickstart.yaml, or set {MODELS[0]}")
    of_device = CPU_OVERRIDES if values.get(f"{PREFIX}.device") == "cpu" else {}
    return of_device | values, set(typed), mistakes


@functools.cache
def _optional_groups() -> Collection[str]:
    """Return the groups of settings that null leaves out."""
    return frozenset(_walk_optional(RGTrainConfig, ""))


def _walk_optional(datacls: type, prefix: str) -> Iterator[str]:
    for name, kind in typing.get_type_hints(datacls).items():
        parts = (kind, *typing.get_args(kind))
        for part in parts:
            if isinstance(part, type) and dataclasses.is_dataclass(part):
                if type(None) in parts:
                    yield f"{prefix}{name}"
                yield from _walk_optional(part, f"{prefix}{name}.")


def _overridden(values: dict[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """`values` overridden by `others`. One that is set as a whole (`tasks`) replaces its parts (`tasks.gcd`), too."""
    kept = {}
    for name, value in values.items():
        is_replaced = any(is_within(name, other) for other in others)
        if not is_replaced:
            kept[name] = value
    return {**kept, **others}


class Setting(NamedTuple):
    """How a setting is declared: its type, its limits, and whether its value may have parts with any names."""

    kind: Any
    limits: Mapping[str, Any]
    is_free_form: bool


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
            is_free_form = any(map(_takes_any_keys, parts))
            yield name, Setting(kind, limits, is_free_form)


def _takes_any_keys(kind: Any) -> bool:
    return kind in (dict, Any) or typing.get_origin(kind) is dict


def _resolve(cfg: RGTrainConfig) -> None:
    """Replace `nano` and relative paths by absolute ones, since Ray's workers may run in another folder, and a mix in a
    file by what it says, which a resumed run is compared with."""
    cfg.rg_dump.tasks = read_spec(cfg.rg_dump.tasks)
    for name in MODELS:
        if path := value_of(cfg, name):
            path = str(nano_path()) if path == NANO else _absolute_if_it_exists(path)
            set_value(cfg, name, path)
    for name in ("data.train_data", "data.val_data"):
        set_value(cfg, name, [_absolute_if_it_exists(source) for source in value_of(cfg, name)])
    paths = [*PATHS, "trainer.resume_path"]
    if cfg.generator.chat_template.source == "file":
        paths.append("generator.chat_template.name_or_path")
    for name in paths:
        if path := value_of(cfg, name):
            set_value(cfg, name, _absolute(path))
    # SkyRL would print an example of its rollouts to the console all the same.
    if cfg.trainer.logger == "console" and cfg.rg_dump.suppress_base_env_logs:
        cfg.trainer.print_example_interval = -1


def _absolute(path: str) -> str:
    """Links are kept: `rg_env.skyrl.run_folder` decides which run one names."""
    if "://" in path:
        return path
    return str(Path(path).expanduser().absolute())


def _absolute_if_it_exists(path: str) -> str:
    """Return the absolute path of a file or folder; the name of a model or data set on a hub stays as it is."""
    if os.path.exists(Path(path).expanduser()):
        return _absolute(path)
    return path
