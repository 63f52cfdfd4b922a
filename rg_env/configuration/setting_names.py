"""The names of all settings, SkyRL's and ours, and the one that a person means.

Invariant: needs no SkyRL, so that commands which only send requests read a training configuration as training does.
`setting_names.txt` has a name per line; `.*` at its end says that its value has parts with any names. `make docs`
writes it, and `make check` compares it with the installed SkyRL.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

from rg_env.base.errors import ConfigError, similar_words
from rg_env.configuration.config import PREFIX

FILE = "setting_names.txt"
_FREE_FORM = ".*"
_LAST_PART = re.compile(r"(?<![\w.])[a-z]+(?:_[a-z0-9]+)+(?![\w.(])")
"""A word with an underscore, which is a name and no English word, and not a part of a longer name."""
_NOBODY_SETS = ".fake_int4_qat."
"""Settings of an experiment of SkyRL's, whose short names are those of common settings elsewhere (`group_size`)."""
FOREIGN_PAGE = "docs/coming-from.md"
FOREIGN: Mapping[str, str] = MappingProxyType(
    {
        "tokenizer_name": "trainer.policy.model.path",
        "model_name": "trainer.policy.model.path",
        "group_size": "generator.n_samples_per_prompt",
        "max_token_length": "generator.sampling_params.max_generate_length",
        "batch_size": "trainer.train_batch_size",
        "total_steps": "trainer.max_training_steps",
        "steps_per_eval": "trainer.eval_interval",
        "use_wandb": "trainer.logger",
        "wandb_name": "trainer.run_name",
        "num_rollouts_to_keep": "trainer.num_logger_train_samples",
        "num_rollouts_per_group_for_logging": "trainer.num_logger_train_samples",
        "max_eval_samples": "environment.skyrl_gym.rg_dump.num_eval_samples_per_task",
        "dataset": "environment.skyrl_gym.rg_dump.tasks",
        "base_url": "generator.inference_engine.external_proxy_url",
        "num_max_requests_at_once": "generator.inference_engine.max_num_seqs",
        "inference_weight": "",
        "min_batch_allocation": "",
        "eval_handling": "",
        "eval_limit_ratio": "",
        "api_key": "",
        "rollout_server_url": "",
        "num_requests_for_eval": "",
        "complexity_mode": "environment.skyrl_gym.rg_dump.complexity",
        "curriculum_target_accuracy": "",
        "mask_too_long_completions": "generator.apply_overlong_filtering",
        "num_inference_engines": "generator.inference_engine.num_engines",
        "inference_engine_tensor_parallel_size": "generator.inference_engine.tensor_parallel_size",
        "remote_inference_engine_urls": "generator.inference_engine.external_server_urls",
        "async_engine": "",
        "enable_http_endpoint": "",
        "use_sample_packing": "trainer.remove_microbatch_padding",
    }
)
"""Settings of Atropos and of an older SkyRL, by the last part of their names: what replaces each, "" if nothing does.
The page has the same table, with notes."""


USUAL = MappingProxyType(
    {
        "model": "trainer.policy.model.path",
        "model_name_or_path": "trainer.policy.model.path",
        "learning_rate": "trainer.policy.optimizer_config.lr",
        "steps": "trainer.max_training_steps",
        "max_steps": "trainer.max_training_steps",
        "num_train_epochs": "trainer.epochs",
        "per_device_train_batch_size": "trainer.train_batch_size",
        "num_generations": "generator.n_samples_per_prompt",
        "max_tokens": "generator.sampling_params.max_generate_length",
        "max_new_tokens": "generator.sampling_params.max_generate_length",
        "max_completion_length": "generator.sampling_params.max_generate_length",
        "beta": "trainer.algorithm.kl_loss_coef",
        "report_to": "trainer.logger",
        "wandb": "trainer.logger",
    }
)
"""What TRL, Transformers and people usually call a setting. Some are short names of a setting that nobody means:
`model` is that of a judge.
"""


@functools.cache
def setting_names() -> Mapping[str, bool]:
    """Return the name of every setting, and whether its value may have parts with any names."""
    # From a file: SkyRL's own dataclasses would say it, too, but importing them takes seconds.
    names = resources.files("rg_env").joinpath(FILE).read_text().split()
    return MappingProxyType({name.removesuffix(_FREE_FORM): name.endswith(_FREE_FORM) for name in names})


def write_names(settings: Mapping[str, bool]) -> str:
    """Return the text of the file, which `setting_names` reads."""
    lines = []
    for name, is_free_form in settings.items():
        lines.append(f"{name}{_FREE_FORM if is_free_form else ''}\n")
    return "".join(lines)


def is_group(name: str) -> bool:
    """Return whether settings have names that begin with this one."""
    return any(setting.startswith(f"{name}.") for setting in setting_names())


def is_foreign(key: str) -> bool:
    """Return whether a key has a name that only Atropos or an older SkyRL knows."""
    return key not in setting_names() and key.rpartition(".")[2] in FOREIGN


def foreign_message(key: str) -> str:
    """Say what replaces a setting of Atropos or an older SkyRL.

    >>> foreign_message("env.group_size")
    "'env.group_size' is a setting of Atropos or an older SkyRL; here it is generator.n_samples_per_prompt"
    """
    replacement = FOREIGN[key.rpartition(".")[2]]
    here = f"here it is {replacement}" if replacement else f"nothing replaces it ({FOREIGN_PAGE})"
    return f"{key!r} is a setting of Atropos or an older SkyRL; {here}"


def foreign_names(key: str, value: object) -> list[str]:
    """Return what replaces the settings in a group of another program's file, such as `env:` of Atropos."""
    if not isinstance(value, Mapping):
        return []
    return [foreign_message(f"{key}.{name}") for name in value if name in FOREIGN]


def with_whole_names(message: str) -> str:
    """Return a message of SkyRL's in which settings have their whole names, where it has the last part alone.

    >>> with_whole_names("max_training_steps must be > 0, got -5")
    'trainer.max_training_steps must be > 0, got -5'
    """
    return _LAST_PART.sub(_whole_name, message)


def _whole_name(last_part: re.Match[str]) -> str:
    names = [name for name in setting_names() if name.endswith(f".{last_part[0]}")]
    # A part that several settings have stays as SkyRL wrote it.
    return names[0] if len(names) == 1 else last_part[0]


def find_setting(key: str, *, whole: bool = False) -> tuple[str, str]:
    """Find the setting or group that a key names, and the key of a part of its value: `tasks.gcd` is `.gcd` of `tasks`.

    Args:
        whole: the name must not be shortened; it may be otherwise where it is unique.

    Raises:
        ConfigError: there is no such setting, or several.
    """
    settings = setting_names()
    if is_foreign(key):
        raise ConfigError(foreign_message(key))
    if key in USUAL:
        raise ConfigError(f"unknown setting {key!r}; {_similar(key)}")
    # A key that begins at the top is whole already: its end must not be looked for in another group.
    whole = whole or is_group(key.partition(".")[0])

    # Parts are cut off at the end until the rest names a setting: the longest name that exists is meant.
    head, rest = key, ""
    while head:
        names = [name for name in settings if name == head or (name.endswith(f".{head}") and not whole)]
        if len(names) > 1:
            raise ConfigError(f"{key} may be {', '.join(names[:-1])} or {names[-1]}: write the whole name")
        if names and rest and not settings[names[0]]:
            raise ConfigError(f"{key}: unknown setting; {names[0]} has no parts")
        if names:
            return names[0], rest
        # A whole group, which null may leave out.
        if not rest and is_group(head):
            return head, ""
        head, _, last = head.rpartition(".")
        rest = f".{last}{rest}"
    raise ConfigError(f"unknown setting {key!r}; {_similar(key)}")


def _similar(key: str) -> str:
    """Say what an unknown name may mean, or where all names are."""
    if usual := USUAL.get(key.rpartition(".")[2]):
        return f"did you mean {usual}?"
    if (dotted := key.replace("/", ".")) in setting_names():
        return f"did you mean {dotted}?"
    if groups := _matching_groups(key):
        return f"did you mean {' or '.join(groups)}?"
    # By the last part, which is what people remember; of several settings with it, the one that is most like the key.
    common = [name for name in setting_names() if _NOBODY_SETS not in name]
    leaves = {name.rpartition(".")[2] for name in common}
    similar = similar_words(key.rpartition(".")[2], leaves)[:1]
    names = [name for name in common if name.rpartition(".")[2] in similar]
    # If none of these is near the whole key, all of them, unless they are too many for a line.
    names = similar_words(key, names)[:1] or names
    if 0 < len(names) <= 3:
        return f"did you mean {' or '.join(names)}?"
    ours = f"docs/settings.md lists those of {PREFIX}, and skyrl/train/config/config.py all others"
    return f"{ours}; {FOREIGN_PAGE} has those of Atropos and older SkyRL"


def _matching_groups(key: str) -> list[str]:
    """Return the setting `kind` of each group that is called like this, and the group of all of ours, `rg_dump`.

    >>> _matching_groups("length_penalty"), _matching_groups("rg_dump.tasks")
    (['environment.skyrl_gym.rg_dump.length_penalty.kind'], ['environment.skyrl_gym.rg_dump.tasks'])
    """
    group = PREFIX.rpartition(".")[2]
    if key.partition(".")[0] == group:
        return [PREFIX + key.removeprefix(group)]
    return [name for name in setting_names() if name.endswith(f".{key}.kind")]
