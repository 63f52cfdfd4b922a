"""Where a run writes, and which run it continues: starting anew never writes into another run's folder.

The paths of a recipe share a folder, such as `runs/NAME`. A new run gets `runs/NAME-DATE-TIME` in its place, and
`runs/NAME` becomes a link to it. With `trainer.resume_mode=latest` the run that the link names is continued; where it has
no checkpoint, a new run begins. Paths from the command line and URLs are kept, and so are the paths of a recipe that
share no folder, or one with other files in it.
"""  # noqa: E501

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rg_env.config import PREFIX
from rg_env.errors import ConfigError, refuse
from rg_env.settings import set_value, value_of

PATHS = ("trainer.ckpt_path", "trainer.export_path", "trainer.log_path", f"{PREFIX}.dump_dir")
_STEP = re.compile(r"global_step_(\d+)")


@dataclass(frozen=True)
class RunFolder:
    """Where a run writes.

    Attributes:
        link: the folder that the paths of the recipe share; None if there is none.
        paths: the settings of these paths.
        continues: whether the run that `link` names is continued.
    """

    link: Path | None
    paths: tuple[str, ...]
    continues: bool

    @classmethod
    def of(cls, cfg: Any, typed: Collection[str]) -> RunFolder:
        """Decide where a run writes.

        Args:
            cfg: its settings, with absolute paths.
            typed: names of the settings on the command line.

        Raises:
            ConfigError: SkyRL would delete each new checkpoint, because the folder has later ones.
        """
        own = {name: Path(value_of(cfg, name)) for name in PATHS if "://" not in str(value_of(cfg, name))}
        placed = {name: path for name, path in own.items() if name not in typed}
        shared = {path.parent for path in placed.values()}
        link = shared.pop() if len(shared) == 1 else None
        if link is not None and _has_other_files(link, {path.name for path in placed.values()}):
            link = None
        continues = cfg.trainer.resume_mode == "latest" and (
            "://" in str(cfg.trainer.ckpt_path) or newest_step(cfg) is not None  # SkyRL looks behind a URL itself
        )
        if not continues and (link is None or "trainer.ckpt_path" not in placed):
            _refuse_later_steps(cfg)
        return cls(link, tuple(placed), continues)

    def enter(self, cfg: Any) -> None:
        """Make the folder of the run and the link to it, and set the paths to it."""
        if self.link is None:
            return
        folder = self.link.resolve() if self.continues else _new_folder(self.link)
        for name in self.paths:
            set_value(cfg, name, str(folder / Path(value_of(cfg, name)).name))


def _has_other_files(folder: Path, names: set[str]) -> bool:
    """Whether a folder has more in it than a run would write."""
    return folder.is_dir() and not folder.is_symlink() and any(path.name not in names for path in folder.iterdir())


def _new_folder(link: Path) -> Path:
    """A new folder beside `link`, which then links to it. A real folder of that name is renamed."""
    link.parent.mkdir(parents=True, exist_ok=True)
    while True:
        folder = link.with_name(f"{link.name}-{time.strftime('%Y%m%d-%H%M%S')}")
        try:
            folder.mkdir()
            break
        except FileExistsError:  # another run began in this second
            time.sleep(0.1)
        except OSError as error:
            raise ConfigError(f"{folder}: cannot be made ({error.strerror}); choose other paths") from None
    if link.exists() and not link.is_symlink():
        link.rename(folder.with_name(f"{folder.name}-before"))
    draft = folder.with_name(f".{folder.name}.link")
    draft.symlink_to(folder.name)
    os.replace(draft, link)  # noqa: PTH105  # a path with a link at its end
    return folder


def _refuse_later_steps(cfg: Any) -> None:
    """SkyRL keeps the checkpoints of the highest steps: a new run among later ones would lose each of its own."""
    path = Path(cfg.trainer.ckpt_path)
    if "://" in str(path) or cfg.trainer.max_ckpts_to_keep < 0 or cfg.trainer.ckpt_interval < 0 or not path.is_dir():
        return
    resumed = _STEP.search(str(cfg.trainer.resume_path or ""))
    start = int(resumed[1]) if cfg.trainer.resume_mode == "from_path" and resumed else 0
    steps = [int(match[1]) for entry in path.iterdir() if (match := _STEP.fullmatch(entry.name))]
    if steps and max(steps) > start:
        refuse(
            "trainer.ckpt_path",
            str(path),
            f"has a checkpoint of step {max(steps)}, and SkyRL would delete each new one with a lower step; "
            "choose another folder, or continue with trainer.resume_mode=latest",
        )


def check_resumption(cfg: Any) -> Iterator[tuple[str, str]]:
    """The settings, and what would be right, with which a run cannot be resumed."""
    trainer, path = cfg.trainer, str(cfg.trainer.resume_path or "")
    if trainer.resume_mode == "from_path" and "global_step_" not in Path(path).name:
        yield "trainer.resume_path", "trainer.resume_mode=from_path needs a checkpoint, such as …/global_step_40"
    elif trainer.resume_mode == "from_path" and "://" not in path and not Path(path).is_dir():
        yield "trainer.resume_path", "there is no such folder"
    if trainer.resume_mode == "latest" and trainer.ckpt_interval < 0 and newest_step(cfg) is not None:
        right = f"SkyRL cannot resume from {trainer.ckpt_path} with that; set it to 0 to write no more checkpoints, "
        yield "trainer.ckpt_interval", f"{right}or set trainer.resume_mode=none for a new run"


def finished_at(cfg: Any) -> int | None:
    """The last step of the run that `latest` would resume, if there is nothing left to train; else None.

    SkyRL would start everything, evaluate and, with `max_training_steps`, train one step more. Not recognized: a run on
    files that is limited by its epochs, because how many of their rows are too long is not known yet.
    """
    trainer, newest = cfg.trainer, newest_step(cfg)
    if trainer.resume_mode != "latest" or newest is None:
        return None
    limits = [] if trainer.max_training_steps is None else [trainer.max_training_steps]
    if not cfg.data.train_data:
        limits.append(cfg.rg_dump.size // trainer.train_batch_size * trainer.epochs)
    return newest if limits and newest >= min(limits) else None


def newest_step(cfg: Any) -> int | None:
    """The step of the newest checkpoint in a local folder, as SkyRL notes it; None if there is none."""
    try:
        return int(Path(cfg.trainer.ckpt_path, "latest_ckpt_global_step.txt").read_text())
    except (OSError, ValueError):
        return None
