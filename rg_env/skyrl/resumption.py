"""Whether a run can be continued, and whether there is anything left to continue.

Invariant: `trainer.resume_mode=latest` continues only the same experiment.
Not covered: code of the user's own that has changed, and runs whose file has no settings.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import zipfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from loguru import logger

from rg_env.base.errors import ConfigError, refuse
from rg_env.configuration.config import PREFIX, RGDumpConfig
from rg_env.configuration.settings import Difference, differences, free_settings
from rg_env.dump.run_file import read_beside, read_run_file
from rg_env.skyrl.cpu.cpu_settings import NANO_FOLDER

_NEWEST = "latest_ckpt_global_step.txt"
"""Where SkyRL notes the step of the newest checkpoint."""
STEP_FOLDER = re.compile(r"global_step_(\d+)")
"""The name of a checkpoint's folder."""


def check_resumption(cfg: Any) -> Iterator[tuple[str, str]]:
    """Yield the settings with which a run cannot be resumed, and what would be right.

    Paths may still be as typed: `train_config` makes them absolute after this check.
    """
    trainer, path = cfg.trainer, str(cfg.trainer.resume_path or "")
    if trainer.resume_mode == "from_path" and "global_step_" not in Path(path).name:
        yield "trainer.resume_path", "trainer.resume_mode=from_path needs a checkpoint, such as …/global_step_40"
    elif trainer.resume_mode == "from_path" and "://" not in path and not os.path.isdir(Path(path).expanduser()):
        yield "trainer.resume_path", "there is no such folder"
    if path and trainer.resume_mode != "from_path":
        right = f"trainer.resume_mode={trainer.resume_mode} does not look at it; set trainer.resume_mode=from_path"
        yield "trainer.resume_path", right
    if trainer.resume_mode == "latest" and trainer.ckpt_interval < 0 and step_in(trainer.ckpt_path) is not None:
        right = f"SkyRL cannot resume from {trainer.ckpt_path} with that; set it to 0 to write no more checkpoints, "
        yield "trainer.ckpt_interval", f"{right}or set trainer.resume_mode=none for a new run"


def finished_at(cfg: Any) -> int | None:
    """Return the last step of the run that `latest` would resume, if there is nothing left to train; else None.

    SkyRL would start everything, evaluate and, with `max_training_steps`, train one step more. Not recognized: a run on
    files that is limited by its epochs, because how many of their rows are too long is not known yet.
    """
    trainer = cfg.trainer
    newest = step_in(trainer.ckpt_path) if trainer.resume_mode == "latest" else None
    if newest is None:
        return None
    limits = []
    if trainer.max_training_steps is not None:
        limits.append(trainer.max_training_steps)
    if not cfg.data.train_data:
        # Whole batches only: SkyRL drops the rows that are left over in an epoch.
        limits.append(cfg.rg_dump.size // trainer.train_batch_size * trainer.epochs)
    if limits and newest >= min(limits):
        return newest
    return None


def step_in(ckpt_path: str | Path) -> int | None:
    """Return the step of the newest checkpoint in a folder or behind a URL, as SkyRL notes it; None if there is none.

    Raises:
        ConfigError: the note is not a number: SkyRL was killed while it wrote it.
    """
    try:
        noted = read_beside(ckpt_path, _NEWEST)
    except OSError as error:
        logger.warning("{} cannot be read ({}), so it is not known which run is to be continued", ckpt_path, error)
        return None
    if noted is None:
        return None
    try:
        return int(noted)
    except ValueError:
        raise ConfigError(
            f"{ckpt_path}/{_NEWEST} is empty or cut off: write the number of the newest whole checkpoint into it"
            f"{_newest_whole_step(ckpt_path)}, or set trainer.resume_mode=none for a new run"
        ) from None


def _newest_whole_step(ckpt_path: str | Path) -> str:
    """Return `, 40` where the newest checkpoint that is whole has that step; else an empty text."""
    if "://" in str(ckpt_path):
        return ""
    beyond_all = Path(ckpt_path).expanduser() / f"global_step_{sys.maxsize}"
    whole = _newest_whole_before(beyond_all)
    return f", {whole.name.removeprefix('global_step_')}" if whole else ""


# ----------------------------------------------------------------------------------------------- a broken checkpoint
def check_checkpoint(cfg: Any) -> Iterator[tuple[str, str]]:
    """Refuse to resume from a checkpoint with a file that is cut off, before the models are loaded.

    Not covered: bytes that have changed in the middle of a file, Megatron's `.distcp` files, and URLs.
    """
    checkpoint = checkpoint_to_load(cfg)
    if checkpoint is None or "://" in checkpoint or finished_at(cfg) is not None:
        return
    if broken := _broken_file(Path(checkpoint).expanduser()):
        setting = "trainer.resume_path" if cfg.trainer.resume_mode == "from_path" else "trainer.resume_mode"
        yield setting, f"{broken}; {way_on_from(checkpoint)}"


def checkpoint_to_load(cfg: Any) -> str | None:
    """Return the folder or URL from which SkyRL is going to resume; None if from none."""
    trainer = cfg.trainer
    if trainer.resume_mode == "from_path":
        return str(trainer.resume_path or "").rstrip("/") or None
    step = step_in(trainer.ckpt_path) if trainer.resume_mode == "latest" else None
    if step is None:
        return None
    return f"{trainer.ckpt_path.rstrip('/')}/global_step_{step}"


def way_on_from(checkpoint: str) -> str:
    """Say how to go on where a checkpoint cannot be loaded: from the newest one before it that is whole."""
    whole = None
    if "://" not in checkpoint:
        whole = _newest_whole_before(Path(checkpoint).expanduser())
    if whole is None:
        return "no checkpoint before it is known to be whole; for a new run set trainer.resume_mode=none"
    return (
        f"the newest whole one before it is {whole.name}: to go on from that, "
        f"trainer.resume_mode=from_path trainer.resume_path={whole}"
    )


def _newest_whole_before(checkpoint: Path) -> Path | None:
    last = STEP_FOLDER.fullmatch(checkpoint.name)
    if last is None or not os.path.isdir(checkpoint.parent):
        return None
    earlier = {}
    for folder in checkpoint.parent.iterdir():
        match = STEP_FOLDER.fullmatch(folder.name)
        if match and int(match[1]) < int(last[1]):
            earlier[int(match[1])] = folder
    for _, folder in sorted(earlier.items(), reverse=True):
        # SkyRL writes these two last, and rg_env resumes from none without them.
        is_complete = (folder / "trainer_state.pt").is_file() and (folder / "data.pt").is_file()
        if is_complete and not _broken_file(folder):
            return folder
    return None


def _broken_file(checkpoint: Path) -> str:
    """Say what is wrong with a checkpoint, as far as a look at the end of each file shows; empty if nothing is."""
    if not os.path.isdir(checkpoint):
        return f"there is no {checkpoint}"
    for path in sorted(checkpoint.rglob("*.pt")):
        # Files of `torch.save` are ZIP archives, which have their table of contents at the end.
        if not zipfile.is_zipfile(path):
            return f"{path} is cut off or corrupt"
    return ""


# --------------------------------------------------------------------------------------------- the same experiment?
_DEFINING = tuple(
    f"{name}."
    for name in (
        "trainer.policy.model",
        "trainer.ref.model",
        "trainer.critic.model",
        "trainer.algorithm",
        "trainer.policy.optimizer_config",
        "trainer.critic.optimizer_config",
        "trainer.fully_async.enabled",
        "trainer.seed",
        "trainer.train_batch_size",
        "trainer.policy_mini_batch_size",
        "trainer.critic_mini_batch_size",
        "trainer.update_epochs_per_batch",
        "trainer.max_prompt_length",
        "data.train_data",
        "environment.env_class",
        "generator.n_samples_per_prompt",
        "generator.sampling_params",
        "generator.max_turns",
        "generator.chat_template",
        "generator.chat_template_kwargs",
        "generator.zero_reward_on_non_stop",
        "generator.apply_overlong_filtering",
        PREFIX,
    )
)
"""Settings, or how they begin, that make an experiment."""
_SHOWN = 3
"""Most differences that are named."""


def check_same_experiment(cfg: Any) -> None:
    """Refuse to continue another experiment with `latest`; other differences are a line of the log.

    The settings are those in the run's own file: the checkpoint has them, too, in a pickle, which could run code.

    Raises:
        ConfigError: naming the differences, and how to go on.
    """
    if cfg.trainer.resume_mode != "latest":
        return
    ckpt_path = cfg.trainer.ckpt_path
    step = step_in(ckpt_path)
    if step is None:
        return
    before = (read_run_file(ckpt_path) or {}).get("settings")
    if not isinstance(before, dict):
        return
    changed = list(differences(cfg, before, as_settings(cfg)))
    free = free_settings(RGDumpConfig())
    defining = [difference for difference in changed if _is_defining(difference.setting, free)]
    if defining:
        refuse(
            "trainer.resume_mode",
            "latest",
            f"the run in {ckpt_path} is another experiment: {_listed(defining)}; for a new run set "
            "trainer.resume_mode=none; for a new run that goes on from its weights with these settings, "
            f"trainer.resume_mode=from_path trainer.resume_path={ckpt_path}/global_step_{step}",
        )
    others = [difference for difference in changed if not _is_expected(difference.setting)]
    if others:
        logger.info("continuing with other settings that change no experiment: {}", _listed(others))


def as_settings(cfg: Any) -> dict[str, Any]:
    """Return all settings as JSON has them, for the file of the run; `nano` by its name, wherever it is installed."""
    # As the file of an earlier attempt gives them back, to compare both: lists for tuples, text for enums.
    settings = dict(json.loads(json.dumps(dataclasses.asdict(cfg), default=str)))
    for role in ("policy", "ref", "critic"):
        model = settings["trainer"][role]["model"]
        if model["path"] == str(NANO_FOLDER):
            model["path"] = NANO_FOLDER.name
    return settings


def _is_defining(setting: str, free: Collection[str]) -> bool:
    name = f"{setting}."  # with a dot, as in the table: `trainer.seed` must not stand for `trainer.seed_of_more`
    return name.startswith(_DEFINING) and setting.removeprefix(f"{PREFIX}.") not in free


def _is_expected(setting: str) -> bool:
    """Return whether a run is usually continued with another value."""
    return setting.startswith("trainer.resume_")


def _listed(differences: Sequence[Difference]) -> str:
    shown = [str(difference) for difference in differences[:_SHOWN]]
    if len(differences) > _SHOWN:
        shown.append(f"and {len(differences) - _SHOWN} more")
    return "; ".join(shown)
