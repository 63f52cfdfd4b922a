"""Settings of a command that only sends requests: ours, and those of SkyRL that say how a run was evaluated.

Invariant: needs neither SkyRL nor OmegaConf. Of a training configuration, tasks, seeds, prompt, format, scores and
sampling hold, and what only a trainer needs is ignored, though its name must be one that a trainer knows. A setting
that is typed is honored or refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rg_env.base.atomic import NOT_A_FOLDER_NAME, is_folder_name
from rg_env.base.errors import ConfigError, need, refuse, similar_words
from rg_env.base.output import print_error
from rg_env.configuration.config import PREFIX, RGDumpConfig
from rg_env.configuration.setting_names import find_setting, is_foreign, is_group
from rg_env.configuration.settings import (
    check_value,
    fields_of,
    nearest_recipe,
    read_file,
    read_value,
    replaced_tasks,
    set_value,
)
from rg_env.configuration.user_code import import_modules
from rg_env.tasks.mix import read_spec

_SAMPLING = {"temperature": "temperature", "top_p": "top_p", "max_generate_length": "max_tokens"}
"""Sampling parameters of SkyRL, by the name that a request has for them."""
_OF_REQUEST = {
    **{name: own for own, name in _SAMPLING.items()},
    "max_completion_tokens": "max_generate_length",
    **dict.fromkeys(("model", "messages", "n", "stream"), ""),
}
"""What else fields of a request would replace, with the setting that it is from, if any."""
_NEUTRAL = {"min_p": 0.0, "top_k": -1, "repetition_penalty": 1.0, "stop": None}
"""Sampling parameters that a request does not have, with the values that change nothing."""
_TEMPLATE = "generator.chat_template_kwargs"
_RUN_NAME = "trainer.run_name"
_ELSEWHERE = {
    "generator.chat_template.name_or_path": "the server has one; name another after `--`, and set null here",
    "data.val_data": "the questions are those of --suite; set null here",
}
"""What a request does not have, and where it comes from."""
_BOTH = ("trainer.policy.model.path", _TEMPLATE, *_ELSEWHERE)
_HONORED = {
    "collect": (*_BOTH, "generator.sampling_params."),
    "eval": (
        *_BOTH,
        "trainer.max_prompt_length",
        "generator.eval_n_samples_per_prompt",
        "generator.eval_sampling_params.",
        "generator.sampling_params.max_generate_length",
    ),
}
"""Settings of SkyRL that change something in a command, or how they begin."""
_OF_SAMPLING: dict[str, tuple[Any, dict[str, Any]]] = {
    "temperature": (float, {"at_least": 0}),
    "top_p": (float, {"at_least": 0, "at_most": 1}),
    "max_generate_length": (int, {"at_least": 1}),
    "additional_kwargs": (dict[str, Any] | None, {}),
}
_VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "trainer.policy.model.path": (str | None, {}),
    "trainer.max_prompt_length": (int, {"at_least": 1}),
    "generator.eval_n_samples_per_prompt": (int, {"at_least": 1}),
    _TEMPLATE: (dict[str, Any] | None, {}),
    **{f"generator.sampling_params.{name}": limits for name, limits in _OF_SAMPLING.items()},
    **{f"generator.eval_sampling_params.{name}": limits for name, limits in _OF_SAMPLING.items()},
}
"""Type and limits of each, as `check_value` takes them: SkyRL, which declares them, need not be installed."""
_OF_TRAINING = ("size", "device", "train_unsolved", "stop_on_canaries", "experiment_class")
_UNUSED = {
    "collect": (*_OF_TRAINING, "num_eval_samples_per_task", "eval_seed", "dump_eval_rollouts"),
    "eval": (
        *_OF_TRAINING,
        "seed",
        "length_penalty",
        "dump_rollouts",
        "dump_failed_rollouts",
        "dump_other_rollouts",
        "rollout_save_score_threshold",
    ),
}
"""Our settings that change nothing in a command."""
OF_A_SUITE = (
    "num_eval_samples_per_task",
    "eval_seed",
    "tasks",
    "complexity",
    "format",
    "system_prompt",
    "worked_examples",
)
"""Our settings that suites other than `fixed` have themselves."""


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
        """Return how a run with this configuration samples: in training for `collect`, in its evaluations for `eval`.

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
            is_sent = name in (*_SAMPLING, "additional_kwargs", "logprobs")
            changes_nothing = name in _NEUTRAL and value == _NEUTRAL[name]
            if not (is_sent or changes_nothing):
                known = "temperature, top_p, max_generate_length and additional_kwargs"
                refuse(f"{group}{name}", value, f"requests take only {known}; leave it out")
        values = {"temperature": 1.0, "top_p": 1.0, "max_generate_length": 1024} | own
        if command == "eval" and not own:
            # SkyRL evaluates greedily then, with responses as long as in training.
            values |= {"temperature": 0.0, "max_generate_length": of_training.get("max_generate_length", 1024)}
        return {argument: values[name] for name, argument in _SAMPLING.items()}

    def request(self, command: str) -> dict[str, Any]:
        """Further fields of every request: `additional_kwargs` of the sampling, and arguments of the template.

        Raises:
            ConfigError: a request has one of them already.
        """
        group = _group_of(command)
        fields = dict(self._below(group).get("additional_kwargs") or {})
        for name in fields:
            if name in _OF_REQUEST:
                own = _OF_REQUEST[name]
                right = f"set {group}{own} instead" if own else "leave it out"
                refuse(f"{group}additional_kwargs", {name: fields[name]}, f"every request has it already; {right}")
        return fields | ({"chat_template_kwargs": self.chat_template_kwargs} if self.chat_template_kwargs else {})

    @property
    def run_name(self) -> str:
        """The name of the training that the configuration is for; "" if it has none."""
        return str(self.skyrl.get(_RUN_NAME) or "")

    @property
    def chat_template_kwargs(self) -> dict[str, Any]:
        """Arguments of the chat template."""
        return dict(self.skyrl.get(_TEMPLATE) or {}) | self._below(f"{_TEMPLATE}.")

    def _below(self, prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): value for name, value in self.skyrl.items() if name.startswith(prefix)}


def _group_of(command: str) -> str:
    return f"generator.{'eval_' if command == 'eval' else ''}sampling_params."


def read_settings(args: Iterable[str], command: str, suite: str = "fixed", **ours: Any) -> Settings:
    """Read YAML files and `key=value` settings, which override those in files.

    Args:
        command: `eval` or `collect`.
        suite: the questions of `eval`; one other than `fixed` has tasks, seeds, prompt and format of its own.
        ours: values of our settings that override those in files.

    Raises:
        ConfigError: naming the setting and what would be right.
    """
    config = RGDumpConfig()
    files: dict[str, Any] = {}
    sources: dict[str, str] = {}
    typed: dict[str, Any] = {}
    for arg in args:
        if arg.endswith((".yaml", ".yml")) and "=" not in arg:
            read = {}
            for name, value in read_file(Path(arg), lambda name: not is_group(name)).items():
                read[_whole_name(name, in_file=True)] = value
            if line := replaced_tasks(read, arg, files, sources):
                print_error(line)
            sources |= dict.fromkeys(read, arg)
            files |= read
        else:
            name, value = _read_override(arg)
            _refuse_unused(name, value, command, suite)
            typed[name] = value
    if line := replaced_tasks(typed, "", files, sources):
        print_error(line)
    # The default is a penalty, which has no use without training. A configuration may still set one.
    if command == "collect":
        config.length_penalty.kind = "none"
    for name, value in files.items():
        if _is_ours(name):
            _set(config, name, value)
    config.experiment_class = None  # no trainer is started
    # Stronger than files and weaker than what is typed: which of its texts a training keeps says nothing here.
    for name, value in {"dump_eval_rollouts": True, "dump_other_rollouts": True, **ours}.items():
        setattr(config, name, value)
    for name, value in typed.items():
        if _is_ours(name):
            _set(config, name, value)
    # The mix in place of its file's name: what is compared when a run is continued, and what its manifest says.
    config.tasks = read_spec(config.tasks)
    skyrl = {name: value for name, value in (files | typed).items() if not _is_ours(name)}
    for name, (kind, bounds) in _VALUES.items():
        if name in skyrl:
            check_value(name, skyrl[name], kind, bounds)
    for name, why in _ELSEWHERE.items():
        need(not skyrl.get(name), name, skyrl.get(name), why)
    config.validate()
    import_modules(config)
    settings = Settings(config, skyrl, bool(files))
    if settings.run_name:
        need(is_folder_name(settings.run_name), _RUN_NAME, settings.run_name, NOT_A_FOLDER_NAME)
    return settings


def _refuse_unused(name: str, value: Any, command: str, suite: str) -> None:
    """Refuse a setting that is typed and would change nothing."""
    if _is_ours(name):
        field = name.removeprefix(f"{PREFIX}.").partition(".")[0]
        is_unused = field in _UNUSED[command]
        if suite != "fixed" and field in OF_A_SUITE:
            refuse(name, value, f"the suite {suite} has its own; leave it out (--items asks only some questions)")
    else:
        is_unused = not name.startswith(_HONORED[command])
    if is_unused:
        refuse(name, value, f"{command} only sends requests, so it would have no effect; leave it out")


def apply_overrides(config: RGDumpConfig, overrides: Iterable[str]) -> None:
    """Set `scorer.timeout=10` or `environment.skyrl_gym.rg_dump.scorer.timeout=10`, and check all settings.

    Raises:
        ConfigError: naming the setting and what would be right.
    """
    for override in overrides:
        _set(config, *_read_override(override))
    config.validate()


def _read_override(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or text.startswith("-"):
        from rg_env.base.hints import word_meant

        meant = word_meant(text, nearest_recipe)
        raise ConfigError(f"{text!r}: expected a .yaml file or key=value without spaces{meant}")
    return _whole_name(name), read_value(name, value)


def _whole_name(key: str, *, in_file: bool = False) -> str:
    """Return the whole name of a setting. On the command line it may be short, and is first looked for among ours.

    Raises:
        ConfigError: there is no such setting, or several.
    """
    ours = [name for name, _ in fields_of(RGDumpConfig())]
    short = key.removeprefix(f"{PREFIX}.")
    # Files have whole names, so a short one is a mistake there.
    if short in ours and not (in_file and short == key):
        return f"{PREFIX}.{short}"
    try:
        return "".join(find_setting(key, whole=in_file))
    except ConfigError:
        near = similar_words(short, ours)
        if not near or is_foreign(key):
            raise
        before = f"{PREFIX}." if in_file else ""  # a file has whole names
        shown = " or ".join(f"{before}{name}" for name in near)
        raise ConfigError(f"unknown setting {key!r}; did you mean {shown}?") from None


def _is_ours(name: str) -> bool:
    return name.startswith(f"{PREFIX}.")


def generator_settings(
    config: RGDumpConfig, *, samples: int, eval_samples: int, max_tokens: int, temperature: float, top_p: float
) -> dict[str, Any]:
    """Return the settings of a manifest, under SkyRL's names, so that every tool finds them."""
    generator = {
        "n_samples_per_prompt": samples,
        "eval_n_samples_per_prompt": eval_samples,
        "zero_reward_on_non_stop": False,
        "sampling_params": {"max_generate_length": max_tokens, "temperature": temperature, "top_p": top_p},
    }
    return config.as_nested() | {"generator": generator}


def _set(config: RGDumpConfig, name: str, value: Any) -> None:
    key = name.removeprefix(f"{PREFIX}.")
    if key not in dict(fields_of(config)):
        raise ConfigError(f"unknown setting {key!r}; docs/settings.md lists them; give a mapping as a whole")
    set_value(config, key, value)
