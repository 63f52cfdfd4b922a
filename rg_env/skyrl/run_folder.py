"""Where a run writes, and which run it continues.

Invariant: starting anew never writes into the folder of another run or evaluation, whatever lies beside it.
The paths of a recipe share a folder, such as `runs/NAME`, whose last part `trainer.run_name` replaces. A new run gets
`runs/NAME-DATE-TIME`, and `runs/NAME` becomes a link to it. Anything else of that name is left as it is, and there is no
link. With `trainer.resume_mode=latest`, the newest of these runs is continued if it has a checkpoint.
Not covered: a path from the command line or a URL is used as it is, and so are the paths of a recipe that share no
folder; only checkpoints and models of other runs in them are protected.
"""  # noqa: E501

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loguru import logger

from rg_env.base.atomic import NOT_A_FOLDER_NAME, is_folder_name, make_new_folder
from rg_env.base.errors import refuse
from rg_env.configuration.config import PREFIX
from rg_env.configuration.settings import set_value, value_of
from rg_env.dump.run_file import read_run_file
from rg_env.skyrl.resumption import STEP_FOLDER, step_in

_CKPT, _EXPORT, _NAME = "trainer.ckpt_path", "trainer.export_path", "trainer.run_name"
_PARTS = {_CKPT: "checkpoints", _EXPORT: "exports", "trainer.log_path": "logs", f"{PREFIX}.dump_dir": "dumps"}
"""The settings of a run's paths, and where they are in its folder unless a recipe says otherwise."""
PATHS = tuple(_PARTS)
_WITHOUT_RECIPE = Path("runs", "train")
_STAMP = re.compile(r"-\d{8}-\d{6}")
"""What the name of a run's folder has after the name of its link."""


@dataclass(frozen=True)
class RunFolder:
    """Where a run writes.

    Attributes:
        link: `runs/NAME`, which will name the run; None if its paths are used as they are.
        parts: the settings of the paths in the run's folder, and their names there.
        continued: the folder of the run that is continued; None: it gets a new one.
    """

    link: Path | None
    parts: Mapping[str, str]
    continued: Path | None = None

    @classmethod
    def of(cls, cfg: Any, given: Collection[str], typed: Collection[str]) -> RunFolder:
        """Decide where a run writes. Nothing is made or changed.

        Args:
            given: names of the settings that somebody has set.
            typed: those of them that are on the command line.

        Raises:
            ConfigError: `latest` is to continue a run in a folder where the link would be.
        """
        shared, parts = _shared_folder(cfg, given, typed)
        if shared is None:
            return cls(None, {})
        # A recipe's folder is shared by all of its runs, so its own name is only the default.
        name = cfg.trainer.run_name if _NAME in given else shared.name
        link = shared.with_name(name) if is_folder_name(name) else shared  # the checks refuse other names
        if cfg.trainer.resume_mode != "latest":
            return cls(link, parts)
        # Checkpoints in the run's folder are found by the folder's name; those in a place of their own name the run.
        if _CKPT in parts:
            return cls(link, parts, _newest_run_with_checkpoint(link, parts[_CKPT]))
        return cls(link, parts, _folder_of_the_run_in(value_of(cfg, _CKPT)))

    def place(self, cfg: Any) -> None:
        """Set the paths to the run that is continued; those of a new run go through the link, where a check reads."""
        if self.link is not None:
            self._set_paths(cfg, self.continued or self.link)

    def enter(self, cfg: Any) -> None:
        """Make the folder of a new run and the link to it, and set the paths to it.

        Raises:
            ConfigError: the folder cannot be made.
        """
        if self.link is None:
            return
        if self.continued is None:
            folder = make_new_folder(self.link)
            # The run itself uses the folder: a run that starts later moves the link.
            _link(self.link, folder)
            self._set_paths(cfg, folder)
        if cfg.trainer.run_name == type(cfg.trainer).run_name:  # nobody has set it
            cfg.trainer.run_name = self.link.name

    def _set_paths(self, cfg: Any, folder: Path) -> None:
        for name, part in self.parts.items():
            set_value(cfg, name, str(folder / part))


def _shared_folder(cfg: Any, given: Collection[str], typed: Collection[str]) -> tuple[Path | None, dict[str, str]]:
    """Return the folder that the paths of a recipe share, and the names of all paths that are in it.

    A path that nobody has set is there, too. If nobody has set any, all are in one of our own.
    """
    unset = {name: part for name, part in _PARTS.items() if name not in given}
    if len(unset) == len(_PARTS):
        return _WITHOUT_RECIPE.absolute(), unset
    # Only the paths that a recipe names: one that is typed, or a URL, is used as it is.
    paths = {}
    for name in PATHS:
        text = str(value_of(cfg, name))
        if name in given and name not in typed and "://" not in text:
            paths[name] = Path(text).expanduser().absolute()
    # Paths in different folders are not those of one run, so nothing can replace their folder.
    folders = {path.parent for path in paths.values()}
    if len(folders) != 1:
        return None, {}
    folder = folders.pop()
    if Path.cwd().is_relative_to(folder):  # such as `dump_dir: dumps`: nothing there is the name of a run
        return None, {}
    return folder, unset | {name: path.name for name, path in paths.items()}


# ------------------------------------------------------------------------------------------------- which run it is
def _newest_run_with_checkpoint(link: Path, checkpoints: str) -> Path | None:
    """Return the run that the link names, or without a link the newest by its name; None if it has no checkpoint.

    Raises:
        ConfigError: there is a folder with a checkpoint in the link's place.
    """
    folder = link.resolve() if _is_our_link(link) else None
    if folder is None:
        if step_in(link / checkpoints) is not None:
            stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(link.stat().st_mtime))
            refuse(
                "trainer.resume_mode",
                "latest",
                f"{link} is a folder, and rg_env continues only runs that it made a folder for; to continue this one, "
                f"rename it to {link.name}-{stamp}; for a new run set trainer.resume_mode=none",
            )
        # Their names sort in the order in which they were started: see `make_new_folder`.
        folder = max(_runs_named(link), key=lambda run: run.name, default=None)
    if folder is None or step_in(folder / checkpoints) is None:
        return None
    return folder


def _runs_named(link: Path) -> Iterator[Path]:
    if not os.path.isdir(link.parent):
        return
    for path in link.parent.iterdir():
        has_name = path.name.startswith(link.name) and _STAMP.fullmatch(path.name.removeprefix(link.name))
        if has_name and path.is_dir():
            yield path


def _is_our_link(link: Path) -> bool:
    """Return whether a link names a run beside it, as those do that rg_env makes."""
    if not link.is_symlink():
        return False
    target = os.readlink(link)  # noqa: PTH115  # as text
    return target.startswith(link.name) and bool(_STAMP.fullmatch(target.removeprefix(link.name)))


def _folder_of_the_run_in(ckpt_path: str) -> Path | None:
    """Return the folder with the dump of the run whose checkpoints are in a folder of the user's own; None if
    unknown."""
    if step_in(ckpt_path) is None:
        return None
    settings: Any = (read_run_file(ckpt_path) or {}).get("settings")
    for name in f"{PREFIX}.dump_dir".split("."):
        settings = settings.get(name) if isinstance(settings, dict) else None
    folder = Path(str(settings)).parent
    return folder if settings and os.path.isdir(folder) else None


def _link(link: Path, folder: Path) -> None:
    """Let the link name a folder beside it, unless something else has its name."""
    if os.path.lexists(link) and not _is_our_link(link):
        logger.warning("{} is not a link made by rg_env and was left alone; this run is in {}", link, folder)
        return
    # A link cannot be changed. A new one takes over the name in one step, so that nobody finds none.
    draft = folder.with_name(f".{folder.name}.link")
    try:
        draft.symlink_to(folder.name)
        os.replace(draft, link)  # noqa: PTH105  # a path with a link at its end
    except OSError as error:  # not every disk has links
        logger.warning("{} cannot be made ({}); this run is in {}", link, error.strerror, folder)


# ----------------------------------------------------------------------------------------------------------- checks
def check_run_name(cfg: Any) -> Iterator[tuple[str, str]]:
    """Refuse a name that cannot be that of a folder."""
    if not is_folder_name(cfg.trainer.run_name):
        yield _NAME, NOT_A_FOLDER_NAME


def refuse_what_is_of_another_run(cfg: Any, folder: RunFolder) -> None:
    """Refuse to start among the checkpoints or models of another run.

    SkyRL keeps the checkpoints of the highest steps, so that it would delete each new one with a lower step, and it
    overwrites models of the same step.

    Raises:
        ConfigError: naming the path.
    """
    trainer = cfg.trainer
    # A run that is continued may find only its own files.
    if trainer.resume_mode == "latest" and step_in(trainer.ckpt_path) is not None:
        return
    # A run that starts from a checkpoint of this folder may find the steps before it, which are its own past.
    start = 0
    resumed = Path(trainer.resume_path or "")
    is_own = trainer.resume_mode == "from_path" and resumed.parent.resolve() == Path(trainer.ckpt_path).resolve()
    if is_own and (match := STEP_FOLDER.fullmatch(resumed.name)):
        start = int(match[1])
    # The folder of the run itself is new. Only a path outside it may have the files of another run.
    if _CKPT not in folder.parts and trainer.ckpt_interval > 0 and not (is_own and trainer.max_ckpts_to_keep < 0):
        last = _last_step_below(trainer.ckpt_path)
        if last > start:
            refuse(
                _CKPT,
                trainer.ckpt_path,
                f"has a checkpoint of step {last}, and SkyRL would delete each new one with a lower step, or overwrite "
                "it; choose another folder, or continue with trainer.resume_mode=latest",
            )
    if _EXPORT not in folder.parts and trainer.hf_save_interval > 0 and not is_own:
        last = _last_step_below(trainer.export_path)
        if last:
            refuse(_EXPORT, trainer.export_path, f"has a model of step {last} of another run; choose another folder")


def _last_step_below(path: str) -> int:
    """Return the highest N of the folders global_step_N in a local folder; 0 if there is none."""
    if "://" in path or not os.path.isdir(path):
        return 0
    matches = [STEP_FOLDER.fullmatch(entry.name) for entry in Path(path).iterdir()]
    return max((int(match[1]) for match in matches if match), default=0)
