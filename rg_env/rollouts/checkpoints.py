"""The models that a training run exported, as `--checkpoint` names them.

Invariant: what is evaluated is what was asked for, or it is refused. SkyRL's own file says what is newest, because a
folder may still hold the exports of an earlier run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rg_env.errors import ConfigError, refuse

_STEP = re.compile(r"global_step_(\d+)")
_NEWEST = "latest_ckpt_global_step.txt"
_OPTION = "--checkpoint"


@dataclass(frozen=True)
class Checkpoint:
    """An exported model: a folder with `config.json` and weights.

    Attributes:
        name: the step, or the path of a model from elsewhere.
    """

    folder: Path
    name: str


def find_checkpoints(which: str, checkpoints: Path | None, exports: Path | None) -> list[Checkpoint]:
    """The models that `--checkpoint` names, in the order of their steps.

    Args:
        which: the folder of a model, a folder of exports, `latest` or `all`.
        checkpoints, exports: `trainer.ckpt_path` and `trainer.export_path` of the configuration; None: not given.

    Raises:
        ConfigError: there is none that can be evaluated.
    """
    if which not in ("latest", "all"):
        path = Path(which).expanduser()
        is_model = (path / "config.json").is_file() or (path / "policy").is_dir()
        return [_model(path / name) for name in ([] if is_model else _steps(path).values())] or [_model(path)]
    if checkpoints is None or exports is None:
        refuse(_OPTION, which, "needs the configuration of the run; or name a folder, such as runs/NAME/exports")
    try:
        newest = int((checkpoints / _NEWEST).read_text())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        why = f"{checkpoints / _NEWEST}, which says what is newest, cannot be read ({reason})"
        refuse(_OPTION, which, f"{why}; name a folder, such as {exports}")
    steps = {step: name for step, name in _steps(exports).items() if step <= newest}  # a later one is of another run
    wanted = [name for step, name in steps.items() if which == "all" or step == newest]
    if not wanted:
        others = f"only {', '.join(map(str, steps))}; name one of these, or" if steps else "nor an earlier one;"
        how = _how_to_export(checkpoints / f"global_step_{newest}")
        refuse(_OPTION, which, f"step {newest} was not exported to {exports}, {others} {how}")
    return [_model(exports / name) for name in wanted]


def _steps(folder: Path) -> dict[int, str]:
    """The names of the folders of steps, whatever is in them, by step."""
    below = folder.iterdir() if folder.is_dir() else ()
    return dict(sorted((int(found[1]), path.name) for path in below if (found := _STEP.fullmatch(path.name))))


def _model(path: Path) -> Checkpoint:
    path = path.resolve()
    folder = path / "policy" if (path / "policy").is_dir() else path
    if (folder / "config.json").is_file():
        step = next((found[1] for part in (folder, folder.parent) if (found := _STEP.fullmatch(part.name))), None)
        return Checkpoint(folder, f"step {step}" if step else str(folder))
    if (folder / "adapter_config.json").is_file():
        raise ConfigError(f"{_OPTION} {path}: only a LoRA adapter; merge it into its model first (docs/train.md)")
    if (folder / "huggingface").is_dir() or next(folder.glob("*_rank_*.pt"), None):
        how = _how_to_export(path if _STEP.fullmatch(path.name) else path.parent)
        raise ConfigError(f"{_OPTION} {path}: shards of SkyRL, which only a training loads; {how}")
    raise ConfigError(f"{_OPTION} {path}: there is no model, which would have a config.json")


def _how_to_export(step: Path) -> str:
    return (
        "to export a checkpoint, train one step more from it: "
        f"trainer.resume_mode=from_path trainer.resume_path={step} trainer.hf_save_interval=1"
    )
