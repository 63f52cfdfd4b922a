"""Settings of a command that only sends requests: ours, and those of SkyRL that say how a run was evaluated.

Invariant: needs neither SkyRL nor OmegaConf. A training configuration is taken as it is, because training has checked
it: its tasks, seeds, prompt, format, scores and sampling hold, and what only a trainer needs is ignored. A setting that
is typed is honored or refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rg_env.config import PREFIX, RGDumpConfig
from rg_env.errors import ConfigError, did_you_mean, need, refuse
from rg_env.settings import read_file, read_value
from rg_env.user_code import import_modules

_SAMPLING = {"temperature": "temperature", "top_p": "top_p", "max_generate_length": "max_tokens"}
"""Sampling parameters of SkyRL, by the name that a request has for them."""
_NEUTRAL = {"min_p": 0.0, "top_k": -1, "repetition_penalty": 1.0, "stop": None, "logprobs": None}
"""Sampling parameters that a request does not have, with the values that change nothing."""
_TEMPLATE = "generator.chat_template_kwargs"
_ELSEWHERE = {
    "generator.chat_template.name_or_path": "the server has one; name another after `--`, and set null here",
    "data.val_data": "the questions are those of --suite; set null here",
}
"""What a request does not have, and where it comes from."""
_HONORED = (
    "trainer.policy.model.path",
    "trainer.max_prompt_length",
    "generator.eval_n_samples_per_prompt",
    f"{_TEMPLATE}.",
    *_ELSEWHERE,
    *(
        f"generator.{kind}sampling_params.{name}"
        for kind in ("", "eval_")
        for name in (*_SAMPLING, "additional_kwargs")
    ),
)

_OF_TRAINING = ("size", "device")
_OF_EVALUATION = ("num_eval_samples_per_task", "eval_seed", "dump_eval_rollouts")
_OF_TRAIN_QUESTIONS = ("seed", "length_penalty")
_OF_A_SUITE = (*_OF_EVALUATION[:2], "tasks", "complexity", "format", "system_prompt", "worked_examples")


@dataclass(frozen=True)
class Settings:
    """What the arguments of a command say.

    Attributes:
        rg: complete and valid.
        skyrl: SkyRL's settings that were given, by dotted name.
        has_file: a configuration was named.
    """

    rg: RGDumpConfig
    skyrl: Mapping[str, Any] = field(default_factory=dict)
    has_file: bool = False

    def sampling(self, command: str) -> dict[str, Any]:
        """How a run with this configuration samples: in training for `collect`, in its evaluations for `eval`.

        Returns:
            arguments of `Sampling`; none without a configuration.

        Raises:
            ConfigError: it has parameters that requests do not have.
        """
        group = _group_of(command)
        own, of_training = self._below(group), self._below(_group_of("collect"))
        if not (own or of_training or self.has_file):
            return {}
        for name, value in own.items():
            need(
                name in (*_SAMPLING, "additional_kwargs", "logprobs") or (name in _NEUTRAL and value == _NEUTRAL[name]),
                f"{group}{name}",
                value,
                "requests have temperature, top_p, max_generate_length and additional_kwargs only; leave it out",
            )
        values = {"temperature": 1.0, "top_p": 1.0, "max_generate_length": 1024} | own
        if command == "eval" and not own:  # as SkyRL
            values |= {"temperature": 0.0, "max_generate_length": of_training.get("max_generate_length", 1024)}
        return {theirs: values[name] for name, theirs in _SAMPLING.items()}

    def request(self, command: str) -> dict[str, Any]:
        """Further fields of every request: `additional_kwargs` of the sampling, and arguments of the template."""
        fields = dict(self._below(_group_of(command)).get("additional_kwargs") or {})
        return fields | ({"chat_template_kwargs": self.chat_template_kwargs} if self.chat_template_kwargs else {})

    @property
    def chat_template_kwargs(self) -> dict[str, Any]:
        """Arguments of the chat template."""
        return dict(self.skyrl.get(_TEMPLATE) or {}) | self._below(f"{_TEMPLATE}.")

    def _below(self, prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): value for name, value in self.skyrl.items() if name.startswith(prefix)}


def _group_of(command: str) -> str:
    return f"generator.{'eval_' if command == 'eval' else ''}sampling_params."


def read_settings(
    args: Iterable[str],
    command: str,
    suite: str = "fixed",
    defaults: Mapping[str, Any] = MappingProxyType({}),
    **ours: Any,
) -> Settings:
    """Read YAML files and `key=value` settings, which override those in files.

    Args:
        command: `eval` or `collect`.
        suite: the questions of `eval`; one other than `fixed` has tasks, seeds, prompt and format of its own.
        defaults: values of our settings that files may replace; `ours`: values that replace those in files.

    Raises:
        ConfigError: naming the setting and what would be right.
    """
    known = {f"{PREFIX}.{name}" for name in _places(RGDumpConfig())}
    files: dict[str, Any] = {}
    ours_typed: list[str] = []
    typed: dict[str, Any] = {}
    for arg in args:
        key, sign, text = arg.partition("=")
        if arg.endswith((".yaml", ".yml")) and not sign:
            files |= read_file(Path(arg), lambda name: name in known or name.endswith("_kwargs"))
        elif key.startswith(("trainer.", "generator.", "data.")):
            why = f"{command} only sends requests to a server, so this would change nothing; leave it out"
            need(key.startswith(_HONORED), key, read_value(key, text), why)
            typed[key] = read_value(key, text)
        else:
            _refuse_idle(key, text, command, suite)
            ours_typed.append(arg)
    config = RGDumpConfig(**defaults)
    skyrl = {name: value for name, value in files.items() if not name.startswith(f"{PREFIX}.")} | typed
    for name, why in _ELSEWHERE.items():
        need(not skyrl.get(name), name, skyrl.get(name), why)
    for name, value in files.items():
        if name not in skyrl:
            _set(config, name.removeprefix(f"{PREFIX}."), value)
    config.experiment_class = None  # no trainer is started
    for name, value in ours.items():
        setattr(config, name, value)
    apply_overrides(config, ours_typed)
    import_modules(config)
    return Settings(config, skyrl, bool(files))


def _refuse_idle(key: str, text: str, command: str, suite: str) -> None:
    """Refuse a setting that is typed and would change nothing."""
    name = key.removeprefix(f"{PREFIX}.").partition(".")[0]
    idle = dict.fromkeys(_OF_TRAINING, f"{command} does not train")
    if command == "collect":
        idle |= dict.fromkeys(_OF_EVALUATION, "collect asks training questions")
    else:
        idle |= dict.fromkeys(_OF_TRAIN_QUESTIONS, "eval asks no training questions")
    if suite != "fixed":
        idle |= dict.fromkeys(_OF_A_SUITE, f"the suite {suite} has its own; --items takes a part of its questions")
    if name in idle:
        refuse(key, read_value(key, text), f"{idle[name]}, so this would change nothing; leave it out")


def apply_overrides(config: RGDumpConfig, overrides: Iterable[str]) -> None:
    """Set `scorer.timeout=10` or `environment.skyrl_gym.rg_dump.scorer.timeout=10`, and check all settings.

    Raises:
        ConfigError: naming the setting and what would be right.
    """
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or override.startswith("-"):
            raise ConfigError(f"{override!r}: expected key=value, such as scorer.timeout=10")
        _set(config, key.removeprefix(f"{PREFIX}."), read_value(key, text))
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


def _set(config: RGDumpConfig, key: str, value: Any) -> None:
    places = _places(config)
    if key not in places:
        raise ConfigError(f"unknown setting {key!r}{did_you_mean(key, places, 'docs/settings.md lists them')}")
    setattr(*places[key], value)


def _places(config: Any, prefix: str = "") -> dict[str, tuple[Any, str]]:
    """Every setting by its dotted name: the dataclass that has it, and its name there."""
    found: dict[str, tuple[Any, str]] = {}
    for declared in dataclasses.fields(config):
        value, name = getattr(config, declared.name), f"{prefix}{declared.name}"
        found |= _places(value, f"{name}.") if dataclasses.is_dataclass(value) else {name: (config, declared.name)}
    return found
