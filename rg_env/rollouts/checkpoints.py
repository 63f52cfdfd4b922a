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
        return [_model(path)] if _holds_model(path) or not _steps(path) else _in(path, _steps(path))
    if checkpoints is None or exports is None:
        refuse(_OPTION, which, "needs the configuration of the run; or name a folder, such as runs/NAME/exports")
    steps, newest = _steps(exports), _newest(checkpoints)
    if newest is not None:
        steps = [step for step in steps if step <= newest]  # a later one is of an earlier run
    if not steps:
        wrote = "" if newest is None else f" up to step {newest}, the newest in {checkpoints / _NEWEST}"
        refuse(
            _OPTION,
            which,
            f"{exports} has no exported model{wrote}; {_how_to_export(checkpoints / f'global_step_{newest or "N"}')}",
        )
    if which == "all":
        return _in(exports, steps)
    if newest is None:
        advice = f"name the folder, such as {exports / f'global_step_{steps[-1]}'}"
        refuse(_OPTION, which, f"there is no {checkpoints / _NEWEST}, which says what is newest; {advice}")
    if steps[-1] != newest:
        advice = f"step {newest} was not exported, only {', '.join(map(str, steps))}; name one of these"
        refuse(_OPTION, which, f"{advice}, or {_how_to_export(checkpoints / f'global_step_{newest}')}")
    return _in(exports, [newest])


def _steps(folder: Path) -> list[int]:
    """The steps that have a folder, whatever is in it."""
    below = folder.iterdir() if folder.is_dir() else ()
    return sorted(int(found[1]) for path in below if (found := _STEP.fullmatch(path.name)))


def _in(folder: Path, steps: list[int]) -> list[Checkpoint]:
    return [_model(folder / f"global_step_{step}") for step in steps]


def _holds_model(path: Path) -> bool:
    return (path / "config.json").is_file() or (path / "policy").is_dir()


def _model(path: Path) -> Checkpoint:
    path = path.resolve()
    folder = path / "policy" if (path / "policy").is_dir() else path
    if (folder / "config.json").is_file():
        step = next((found[1] for part in (folder, path, path.parent) if (found := _STEP.fullmatch(part.name))), None)
        return Checkpoint(folder, f"step {step}" if step else str(folder))
    if (folder / "adapter_config.json").is_file():
        raise ConfigError(f"{_OPTION} {path}: only a LoRA adapter; merge it into its model first (docs/train.md)")
    if (folder / "huggingface").is_dir() or next(folder.glob("*_rank_*.pt"), None):
        raise ConfigError(
            f"{_OPTION} {path}: shards of SkyRL, which only a training loads; {_how_to_export(_step_folder(path))}"
        )
    raise ConfigError(f"{_OPTION} {path}: there is no model, which would have a config.json")


def _step_folder(path: Path) -> Path:
    return path if _STEP.fullmatch(path.name) else path.parent


def _newest(checkpoints: Path) -> int | None:
    file = checkpoints / _NEWEST
    try:
        return int(file.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: does not say which step is newest ({error})") from None


def _how_to_export(step: Path) -> str:
    return (
        "to export a checkpoint, train one step more from it: "
        f"trainer.resume_mode=from_path trainer.resume_path={step} trainer.hf_save_interval=1"
    )
