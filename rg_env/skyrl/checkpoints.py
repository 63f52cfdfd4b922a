"""Finds the checkpoints and exported models of a run, and makes a checkpoint loadable by the engines.

Invariant: what is evaluated is exactly what was asked for, or it is refused.
Not covered: checkpoints of Megatron, of LoRA adapters, and of meshes with more than one dimension.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rg_env.errors import ConfigError, refuse
from rg_env.skyrl.config import RGTrainConfig

_STEP = re.compile(r"global_step_(\d+)")
_SHARD = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")
_EXPORT = "an exported model (trainer.hf_save_interval)"


@dataclass(frozen=True)
class Checkpoint:
    """A model of a run.

    Attributes:
        folder: with `config.json` and weights, or with SkyRL's shards.
        step: its global step; None for a model from elsewhere.
    """

    folder: Path
    step: int | None

    @property
    def name(self) -> str:
        return str(self.folder) if self.step is None else f"step {self.step}"


def find_checkpoints(which: str, cfg: RGTrainConfig) -> list[Checkpoint]:
    """The checkpoints that `--checkpoint` names, in order of their steps.

    Args:
        which: a path, `latest` or `all`.

    Raises:
        ConfigError: there is none.
    """
    if which not in ("latest", "all"):
        return [_at(Path(which).expanduser())]
    found = {
        checkpoint.step: checkpoint
        for base in (cfg.trainer.ckpt_path, cfg.trainer.export_path)
        for folder in Path(base).glob("global_step_*")
        if (checkpoint := _in_step(folder)) is not None
    }
    if not found:
        where = f"{cfg.trainer.ckpt_path} or {cfg.trainer.export_path}"
        refuse("--checkpoint", which, f"there is no checkpoint or exported model in {where}")
    ordered = sorted(found.values(), key=lambda checkpoint: checkpoint.step or 0)
    return ordered if which == "all" else ordered[-1:]


def refuse_resumption(cfg: RGTrainConfig) -> None:
    """Refuse settings that would make a training load a checkpoint, which an evaluation does not do by itself.

    Raises:
        ConfigError: the configuration resumes, and nothing says which weights to evaluate.
    """
    mode = str(getattr(cfg.trainer.resume_mode, "value", cfg.trainer.resume_mode))
    advice = "an evaluation loads trainer.policy.model.path; name the weights with --checkpoint PATH, latest or all"
    if cfg.trainer.resume_path is not None or mode == "from_path":
        refuse("trainer.resume_path", cfg.trainer.resume_path, advice)
    if mode == "latest" and (Path(cfg.trainer.ckpt_path) / "latest_ckpt_global_step.txt").exists():
        what = f"there are checkpoints in {cfg.trainer.ckpt_path}, but {advice}, or set it to none for the base model"
        refuse("trainer.resume_mode", mode, what)


@contextmanager
def loadable(checkpoint: Checkpoint) -> Iterator[Path]:
    """A model folder with the checkpoint's weights; shards are joined in a temporary one.

    Raises:
        ConfigError: the shards are incomplete or of a kind that cannot be joined.
    """
    if (checkpoint.folder / "config.json").exists():
        yield checkpoint.folder
        return
    with TemporaryDirectory(prefix="rg_env-checkpoint-") as made:
        folder = Path(made)
        shutil.copytree(checkpoint.folder / "huggingface", folder, dirs_exist_ok=True)
        _save(_join(checkpoint.folder), folder)
        yield folder


def _at(path: Path) -> Checkpoint:
    step = next((int(found[1]) for part in (path, path.parent) if (found := _STEP.fullmatch(part.name))), None)
    for folder in (path, path / "policy"):
        if (folder / "config.json").exists() or (folder / "huggingface").is_dir():
            return Checkpoint(folder.resolve(), step)
    raise ConfigError(f"--checkpoint {path}: there is neither a checkpoint of SkyRL nor a model with a config.json")


def _in_step(folder: Path) -> Checkpoint | None:
    try:
        return _at(folder)
    except ConfigError:
        return None


def _join(folder: Path) -> dict[str, Any]:
    """The whole state dict of SkyRL's shards, which are split along their first dimension."""
    import torch

    shards = {int(found[2]): path for path in folder.iterdir() if (found := _SHARD.fullmatch(path.name))}
    sizes = {int(found[1]) for path in folder.iterdir() if (found := _SHARD.fullmatch(path.name))}
    if not shards or sizes != {len(shards)}:
        raise ConfigError(f"{folder}: {len(shards)} shards of a model, {sorted(sizes)} expected; evaluate {_EXPORT}")
    parts = [torch.load(shards[rank], map_location="cpu", weights_only=False) for rank in sorted(shards)]
    return {name: _join_one(folder, name, [part[name] for part in parts]) for name in parts[0]}


def _join_one(folder: Path, name: str, parts: list[Any]) -> Any:
    import torch
    from torch.distributed.tensor import DTensor, Shard

    if not isinstance(parts[0], DTensor):
        return parts[0]
    if list(parts[0].placements) != [Shard(0)] or "lora" in name:
        raise ConfigError(f"{folder}: {name} is distributed as {parts[0].placements}; evaluate {_EXPORT}")
    whole = torch.cat([part._local_tensor for part in parts]) if len(parts) > 1 else parts[0]._local_tensor
    if whole.shape != parts[0].shape:
        raise ConfigError(f"{folder}: the shards of {name} do not add up to {tuple(parts[0].shape)}")
    return whole


def _save(state: Mapping[str, Any], folder: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config)
    missing = model.load_state_dict(dict(state), strict=False)
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    if missing.unexpected_keys or set(missing.missing_keys) - tied:
        raise ConfigError(f"{folder}: the checkpoint does not fit its config.json; evaluate {_EXPORT}")
    model.save_pretrained(folder)
