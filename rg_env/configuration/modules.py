"""Imports modules by name, and knows which have tasks.

Invariant: a module that cannot be imported is one line that names its file and line. Knows no settings, so that the
scorer can ask without importing them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any
from unittest import mock

from rg_env.base.errors import ConfigError, describe

IMPORTS = "RG_ENV_IMPORTS"
"""Environment variable: the modules with tasks, which scorer and dataloader processes import, separated by commas."""


class UserCodeError(ConfigError):
    """An error in the user's code; the message names file and line."""


def import_named(names: Iterable[str]) -> None:
    """Import modules, also from the current folder. Raises UserCodeError: one does not exist or cannot be imported."""
    # Last in the path: a file of the user's must not take the place of an installed module.
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            # The module itself exists: what is missing is something that it imports.
            if error.name not in (name, name.partition(".")[0]):
                raise _failed_import(name, error) from error
            message = f"no module {name!r} in {Path.cwd()} or among the installed packages"
            from rg_env.base.hints import module_meant

            raise UserCodeError(f"{message}{module_meant(name)}") from None
        except SystemExit as error:
            # Only the place: the message says itself what happened there.
            where = str(_failed_import(name, error)).removesuffix(f": {describe(error)}")
            remedy = 'put what ends it under `if __name__ == "__main__":`'
            raise UserCodeError(f"{where}: importing the module {name} exits the process; {remedy}") from error
        except Exception as error:
            raise _failed_import(name, error) from error


def _failed_import(name: str, error: BaseException) -> UserCodeError:
    if isinstance(error, SyntaxError):
        return UserCodeError(f"{error.filename}:{error.lineno}: {describe(error)}")
    files = files_of([name])
    # The innermost frame in the module's own file is the line that its author can change.
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    if frames:
        place = f"{frames[-1].filename}:{frames[-1].lineno}"
    else:
        place = name
    return UserCodeError(f"{place}: {describe(error)}")


@contextmanager
def hidden(package: str) -> Iterator[None]:
    """Inside the block, a package that has not been imported counts as not installed.

    For libraries that import it wherever they find it, although what they are asked for here works without.
    """
    find = PathFinder.find_spec

    def find_others(name: str, *args: Any) -> ModuleSpec | None:
        return None if name == package else find(name, *args)

    # Not None in `sys.modules`: the error of an import would name a submodule, and SkyRL looks for the package's name.
    with mock.patch.object(PathFinder, "find_spec", find_others):
        yield


def files_of(modules: Iterable[str]) -> set[str]:
    """Return the source files of modules; those that have none are left out."""
    files = set()
    for name in modules:
        with suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin is not None:
                files.add(spec.origin)
    return files


def modules_of_tasks() -> list[str]:
    """Return the modules with tasks that this process, or the one that started it, has imported, in whatever way."""
    inherited = [name for name in os.environ.get(IMPORTS, "").split(",") if name]
    registered = [name for name in registered_modules() if name != "__main__"]
    return list(dict.fromkeys([*inherited, *registered]))


def registered_modules() -> list[str]:
    """Return the modules outside of Reasoning Gym whose tasks are registered in this process, sorted."""
    # It is not imported to ask, because that takes seconds.
    if "reasoning_gym" not in sys.modules:
        return []
    datasets = sys.modules["reasoning_gym"].factory.DATASETS
    modules = {dataset_class.__module__ for dataset_class, _ in datasets.values()}
    return sorted(module for module in modules if not module.startswith("reasoning_gym."))


_scorers: set[str] = set()
"""The functions that a task mix of this process names as scorers, and the modules that its user imported."""


def allow_as_scorers(names: Iterable[str]) -> None:
    """Let entries name these functions, or functions of these modules, as their scorers."""
    _scorers.update(names)


def may_score(function: str) -> bool:
    """Return whether an entry, which may come from anywhere, may have its answers scored by this function."""
    return function in _scorers or function.rpartition(".")[0] in _scorers
