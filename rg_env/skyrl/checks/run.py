"""Checks beyond single values: tasks, prompts, folders, data files, group and dataset size, and difficulty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loguru import logger

from rg_env.config import PREFIX
from rg_env.dataset import ENV_CLASS, scales_of
from rg_env.dump.files import try_folder
from rg_env.errors import ConfigError, did_you_mean, refuse
from rg_env.prompts import check_worked_examples, format_warning, resolve_system_prompt
from rg_env.skyrl.checks.settings import require, value_of
from rg_env.tasks import TaskMix

_FOLDERS = (f"{PREFIX}.dump_dir", "trainer.ckpt_path", "trainer.export_path", "trainer.log_path")
_NEEDS_GROUPS = ("grpo", "rloo", "maxrl")
"""Advantage estimators that compare a response with the others of its group."""


def check_folders(cfg: Any) -> None:
    """Refuse a folder of the run that cannot be written, and leave nothing behind. Paths with `://` are not checked."""
    for setting in _FOLDERS:
        path = str(value_of(cfg, setting))
        try:
            if "://" not in path:
                try_folder(Path(path).expanduser())
        except OSError as error:
            refuse(setting, path, f"the folder cannot be written ({error.strerror}); choose another one")


def check_run(cfg: Any) -> None:
    """Rows, logger, prompt and what is kept. Raises ConfigError."""
    rg, data = cfg.rg_dump, cfg.data
    import skyrl_gym

    known = [ENV_CLASS, *skyrl_gym.registry] if data.train_data or data.val_data else [ENV_CLASS]
    name, right = cfg.environment.env_class, f"must be {ENV_CLASS}; others need rows of their own in data.train_data"
    if len(known) > 1:
        right = f"must be one of {', '.join(known)}"
    require(cfg, "environment.env_class", name in known, did_you_mean(name, known, right).removeprefix("; "))
    for name in ("train_data", "val_data"):
        for source in getattr(data, name):
            if source.endswith((".parquet", ".json", ".jsonl")) and not Path(source).expanduser().is_file():
                raise ConfigError(f"data.{name}: no file {source!r}; `rg-env dataset --out {source}` makes one")
    complete_at = rg.length_penalty.max_length or cfg.generator.sampling_params.max_generate_length
    fits = rg.length_penalty.buffer is None or rg.length_penalty.buffer <= complete_at
    right = f"must be at most the length at which the penalty is complete, {complete_at}"
    require(cfg, f"{PREFIX}.length_penalty.buffer", fits, right)
    system_prompt = resolve_system_prompt(rg.system_prompt)
    check_worked_examples(rg.worked_examples, rg.format)
    warning = format_warning(
        system_prompt,
        rg.worked_examples,
        format=rg.format,
        prefilled_think=rg.prefilled_think,
        setting=f"{PREFIX}.format",
    )
    if warning and not data.train_data:
        logger.warning(warning)
    if rg.dump_rollouts and rg.rollout_save_score_threshold == 1:
        logger.warning(
            f"{PREFIX}.rollout_save_score_threshold=1.0: no score is above it, so the text of no solved group is kept; "
            "lower it"
        )


def check_training(cfg: Any) -> None:
    """Group size, dataset size and difficulty. Raises ConfigError."""
    size, estimator = cfg.generator.n_samples_per_prompt, value_of(cfg, "trainer.algorithm.advantage_estimator")
    right = f"{estimator} compares the responses of a group, so a group needs at least 2"
    require(cfg, "generator.n_samples_per_prompt", size > 1 or estimator not in _NEEDS_GROUPS, right)
    rg, batch = cfg.rg_dump, cfg.trainer.train_batch_size
    mix = TaskMix.parse(rg.tasks)
    if cfg.data.train_data:
        require(cfg, f"{PREFIX}.complexity", rg.complexity is None, "has no effect with data.train_data")
        return
    require(cfg, f"{PREFIX}.size", rg.size >= batch, f"must be at least trainer.train_batch_size={batch}")
    scales_of(mix, rg.complexity)
