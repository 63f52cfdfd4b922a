"""The models that `--model` names: one, or the steps that a training run exported.

Invariant: what is evaluated is what was asked for, or it is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from rg_env.errors import refuse

_STEP = re.compile(r"global_step_(\d+)")
_MERGE = (
    "this is a LoRA adapter without weights; merge it into its model first: AutoPeftModelForCausalLM.from_pretrained("
    "ADAPTER).merge_and_unload().save_pretrained(MERGED), and AutoTokenizer.from_pretrained(ADAPTER)"
    ".save_pretrained(MERGED)"
)


@dataclass(frozen=True)
class Model:
    """A model to evaluate: its folder or its name on a hub or server, and what the result calls it."""

    path: str
    name: str


def find_models(model: str) -> list[Model]:
    """The models in a folder: itself, or every `global_step_N` in it, in order. Anything else is a name.

    Raises:
        ConfigError: the folder has no model that can be evaluated.
    """
    if model == "nano":
        from rg_env.cpu import nano_path

        return [Model(str(nano_path()), model)]
    path = Path(model).expanduser()
    if not path.is_dir():
        is_path = path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1
        if is_path:
            refuse("--model", model, "there is no such folder")
        return [Model(model, model)]
    steps = {int(match[1]): child for child in path.iterdir() if (match := _STEP.fullmatch(child.name))}
    if steps and not (path / "config.json").is_file():
        return [_model(steps[step], f"step {step}") for step in sorted(steps)]
    match = next((found for part in (path, path.parent) if (found := _STEP.fullmatch(part.resolve().name))), None)
    return [_model(path, f"step {match[1]}" if match else str(path.resolve()))]


def _model(path: Path, name: str) -> Model:
    folder = path.resolve()
    folder = folder / "policy" if (folder / "policy").is_dir() else folder
    if (folder / "adapter_config.json").is_file():  # SkyRL writes config.json beside it
        refuse("--model", str(path), _MERGE)
    if not (folder / "config.json").is_file():
        _refuse_without_config(path, folder)
    return Model(str(folder), name)


def _refuse_without_config(path: Path, folder: Path) -> NoReturn:
    if (folder / "huggingface").is_dir() or next(folder.glob("*_rank_*.pt"), None):
        refuse(
            "--model",
            str(path),
            "these are shards of SkyRL, which only a training loads; to export them, train one step more from it: "
            f"trainer.resume_mode=from_path trainer.resume_path={path.resolve()} trainer.hf_save_interval=1",
        )
    refuse("--model", str(path), "there is no model in it, which would have a config.json")
