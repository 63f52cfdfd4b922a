"""Settings by their dotted names: which exist, their types and limits, and their values.

Invariant: a value that SkyRL can use is never refused here. Types come from SkyRL's dataclasses, names from its
registries; listed here is only what SkyRL checks late or never, which costs the time to load a model.
Not covered: combinations of settings, which the other modules of this package check.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from rg_env.config import PREFIX
from rg_env.errors import ConfigError, need
from rg_env.setting_types import check_value

_SAMPLING = "generator.*sampling_params"
_COUNTS = (
    *("trainer.epochs", "trainer.max_training_steps", "trainer.update_epochs_per_batch", "trainer.*_batch_size*"),
    *("trainer.max_prompt_length", "trainer.placement.*_num_*", "trainer.*.sequence_parallel_size"),
    *("trainer.fully_async.num_parallel_generation_workers", "generator.*n_samples_per_prompt", "generator.max_turns"),
    *("generator.max_input_length", f"{_SAMPLING}.max_generate_length", "generator.inference_engine.num_engines"),
    *("generator.inference_engine.*_parallel_size", "generator.inference_engine.max_num_*"),
)
_NOT_NEGATIVE = (
    *("trainer.*.optimizer_config.[lwmn]*", "trainer.*.model.lora.rank", "trainer.algorithm.kl_loss_coef"),
    *("trainer.algorithm.eps_clip_*", "trainer.fully_async.max_staleness_steps", f"{_SAMPLING}.temperature"),
    *("trainer.seed", "data.dataloader.num_workers"),
)
_LIMITS: dict[str, Mapping[str, Any]] = {
    **{pattern: {"at_least": 1} for pattern in _COUNTS},
    **{pattern: {"at_least": 0} for pattern in _NOT_NEGATIVE},
    "trainer.*_interval": {"at_least": -1},
    "trainer.max_ckpts_to_keep": {"at_least": -1},
    f"{_SAMPLING}.top_k": {"at_least": -1},
    f"{_SAMPLING}.top_p": {"above": 0, "at_most": 1},
    f"{_SAMPLING}.min_p": {"at_least": 0, "at_most": 1},
    "generator.inference_engine.gpu_memory_utilization": {"above": 0, "at_most": 1},
    "trainer.algorithm.temperature": {"above": 0},
    "trainer.*_path": {"filled": True},
    "trainer.strategy": {"choices": ("fsdp", "fsdp2", "megatron")},
    "trainer.algorithm.kl_estimator_type": {"choices": ("k1", "k2", "k3", "abs")},
    "trainer.algorithm.kl_ctrl.type": {"choices": ("fixed", "adaptive")},
    "trainer.algorithm.dynamic_sampling.type": {"choices": ("filter", "replace")},
    "generator.chat_template.source": {"choices": ("name", "file")},
    "generator.inference_engine.backend": {"choices": ("vllm",)},
}
"""Pattern of a setting → its limits, as `rg_env.setting_types.check_value` takes them."""
_SIMILAR = 0.8
"""Likeness of two names, from 0 to 1, from which one may be meant for the other."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as its dataclass declares it.

    Attributes:
        kind: its type.
        limits: as `rg_env.setting_types.check_value` takes them.
        free_form: whether it may have parts with any names.
    """

    kind: Any
    limits: Mapping[str, Any]
    free_form: bool


def value_of(cfg: Any, setting: str) -> Any:
    """The value of a dotted setting, such as `trainer.policy.model.path`; of an enumeration, its text."""
    value = functools.reduce(getattr, setting.split("."), cfg)
    return getattr(value, "value", value)


def require(cfg: Any, setting: str, ok: object, right: str) -> None:
    """Raise `setting=value: right` as a ConfigError unless `ok`."""
    need(ok, setting, value_of(cfg, setting), right)


def limits_of(setting: str) -> Mapping[str, Any]:
    """The limits of one of SkyRL's settings; empty if only its type is checked."""
    return next((limits for pattern, limits in _LIMITS.items() if fnmatchcase(setting, pattern)), {})


def check_setting(key: str, value: Any, known: Mapping[str, Setting]) -> None:
    """Check that a setting exists, and its value by type and limits.

    Args:
        key: dotted; may be inside a free-form setting (`….tasks.chain_sum`), where anything is accepted.
        known: every setting of a run by its dotted name.

    Raises:
        ConfigError: one line. For an unknown setting, it names similar ones.
    """
    parts = key.split(".")
    parent = next((name for n in range(1, len(parts)) if (name := ".".join(parts[:n])) in known), None)
    if setting := known.get(key):
        check_value(key, value, setting.kind, setting.limits)
    elif parent:
        if not known[parent].free_form:
            raise ConfigError(f"unknown setting {key!r}; {parent} has no parts")
    elif member := next((name for name in known if name.startswith(f"{key}.")), None):
        if value is not None:  # null leaves out an optional group; SkyRL checks which are
            raise ConfigError(f"{key} is a group of settings; set one of them, such as {member}")
    else:
        listed = f"docs/settings.md lists those of {PREFIX}, and skyrl/train/config/config.py all others"
        raise ConfigError(f"unknown setting {key!r}; {_similar(key, list(known)) or listed}")


def _similar(key: str, known: Sequence[str]) -> str:
    """Asks for the setting with a similar name, or for those with the same last part, if there are at most three."""
    leaf = key.rpartition(".")[2]
    leaves = {name.rpartition(".")[2] for name in known}
    meant = get_close_matches(leaf, leaves, n=1, cutoff=_SIMILAR)
    found = [name for name in known if name.rpartition(".")[2] in meant]
    found = get_close_matches(key, found, n=1, cutoff=_SIMILAR) or found
    return f"did you mean {' or '.join(found)}?" if 0 < len(found) <= 3 else ""


def check_registered(cfg: Any) -> None:
    """Check the names in registries, which modules of `imports` can extend. Imports torch. Raises ConfigError."""
    from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry, PolicyLossRegistry
    from skyrl.train.utils.tracking import Tracking
    from skyrl.train.utils.trainer_utils import ResumeMode
    from transformers.trainer_utils import SchedulerType

    schedulers = [kind.value for kind in SchedulerType]
    registered = {
        "trainer.logger": Tracking.supported_backends,
        "trainer.resume_mode": [mode.value for mode in ResumeMode],
        "trainer.algorithm.advantage_estimator": AdvantageEstimatorRegistry.list_available(),
        "trainer.algorithm.policy_loss_type": PolicyLossRegistry.list_available(),
        "trainer.policy.optimizer_config.scheduler": schedulers,
        "trainer.critic.optimizer_config.scheduler": schedulers,
    }
    for setting, names in registered.items():
        check_value(setting, value_of(cfg, setting), str | None, {"choices": names})
    tracker = cfg.trainer.logger
    installed = tracker == "console" or importlib.util.find_spec(tracker)
    require(cfg, "trainer.logger", installed, f"the package {tracker} is not installed; install it or use console")
