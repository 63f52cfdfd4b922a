"""Loads the modules, the reward function and the experiment class that a run's settings name.

Invariant: an error in user code is one line with its file and line number; during a run, its traceback is in
`user_code.log` in the run's log folder. Processes that this one starts inherit the names of the modules with tasks.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rg_env.config import PREFIX, RGDumpConfig
from rg_env.errors import ConfigError, RGEnvError, describe, need, one_line, refuse
from rg_env.tasks.question_file import allow_modules

IMPORTS = "RG_ENV_IMPORTS"
"""Environment variable: the modules with tasks, which scorer and dataloader processes import, separated by commas."""
_LOG = "user_code.log"
_logged: set[tuple[Path, str, str]] = set()
_FRAME = re.compile(r'File "(.+?)", line (\d+)')


class UserCodeError(ConfigError):
    """An error in the user's code; the message names file and line."""


def named_modules(config: RGDumpConfig) -> list[str]:
    """The modules of `imports`, and those of `reward` and `experiment_class`."""
    objects = [_module_and_name(path)[0] for path in (config.reward, config.experiment_class) if path]
    return list(dict.fromkeys([*config.imports, *objects]))


def import_modules(config: RGDumpConfig) -> None:
    """Import `imports`, and the modules of `reward` and `experiment_class`; also in processes started from now on.

    Raises:
        ConfigError: a setting is not `module.name`. UserCodeError: a module does not exist or cannot be imported.
    """
    for setting in ("reward", "experiment_class"):
        path = getattr(config, setting)
        need(path is None or all(_module_and_name(path)), f"{PREFIX}.{setting}", path, "write module.name")
    names = named_modules(config)
    if not names:
        return
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)
    import_named(names)
    allow_modules(config.imports)
    os.environ[IMPORTS] = ",".join(_registered_modules())


def _module_and_name(path: str) -> tuple[str, str]:
    """The parts of `module.name` or `module:name`.

    >>> _module_and_name("my.costs.of_tokens"), _module_and_name("my.costs:of_tokens"), _module_and_name("of_tokens")
    (('my.costs', 'of_tokens'), ('my.costs', 'of_tokens'), ('', 'of_tokens'))
    """
    module, _, name = path.replace(":", ".").rpartition(".")
    return module, name


def modules_of_tasks() -> list[str]:
    """The modules with tasks that this process, or the one that started it, has imported, in whatever way."""
    inherited = [name for name in os.environ.get(IMPORTS, "").split(",") if name]
    registered = [name for name in _registered_modules() if name != "__main__"]
    return list(dict.fromkeys([*inherited, *registered]))


def _registered_modules() -> list[str]:
    if "reasoning_gym" not in sys.modules:
        return []
    modules = {dataset_class.__module__ for dataset_class, _ in sys.modules["reasoning_gym"].factory.DATASETS.values()}
    return sorted(module for module in modules if not module.startswith("reasoning_gym."))


def load_object(setting: str, path: str) -> Any:
    """The object that a setting names as `module.name` or `module:name`.

    Raises:
        UserCodeError, ConfigError: there is none.
    """
    module, name = _module_and_name(path)
    import_named([module])
    if not hasattr(sys.modules[module], name):
        refuse(f"{PREFIX}.{setting}", path, f"the module {module} has no {name!r}")
    return getattr(sys.modules[module], name)


def in_user_code(error: BaseException, config: RGDumpConfig, folder: str | None) -> UserCodeError | None:
    """The one line about an exception that the user's code raised, also in another process; None for any other.

    Args:
        folder: the run's log folder, where the first traceback of each line of code is written; None: nowhere.
    """
    if isinstance(error, RGEnvError):
        return None
    text = "".join(traceback.format_exception(error))
    files = _files(named_modules(config))
    frames = [(file, line) for file, line in _FRAME.findall(text) if file in files or _is_ours_or_skyrls(file)]
    if not frames or frames[-1][0] not in files:
        return None
    file, line = frames[-1]
    message = f"{file}:{line}: {one_line(text.strip().splitlines()[-1], 300)}"
    if folder is None:
        return UserCodeError(message)
    log = Path(folder, _LOG)
    if (log, file, line) not in _logged:
        _logged.add((log, file, line))
        with suppress(OSError):
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a", encoding="utf-8") as out:
                out.write(text)
    return UserCodeError(f"{message}; the traceback is in {log}")


def import_named(names: Iterable[str]) -> None:
    """Import modules. Raises UserCodeError: one does not exist or cannot be imported."""
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in (name, name.partition(".")[0]):
                raise _failed_import(name, error) from error
            message = f"there is no module {name!r} in {Path.cwd()} or among the installed ones"
            if name.endswith(".py"):
                message += f"; a module is named without .py: {name.removesuffix('.py')}"
            raise UserCodeError(message) from None
        except Exception as error:
            raise _failed_import(name, error) from error


def _failed_import(name: str, error: BaseException) -> UserCodeError:
    if isinstance(error, SyntaxError):
        return UserCodeError(f"{error.filename}:{error.lineno}: {describe(error)}")
    files = _files([name])
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else name
    return UserCodeError(f"{place}: {describe(error)}")


def _files(modules: Iterable[str]) -> set[str]:
    files = set()
    for name in modules:
        with suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin is not None:
                files.add(spec.origin)
    return files


def _is_ours_or_skyrls(file: str) -> bool:
    return file.startswith(str(Path(__file__).parent)) or "/skyrl/" in file or "/skyrl_gym/" in file
