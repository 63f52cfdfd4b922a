"""Loads the modules, the reward function and the experiment class that a run's settings name.

Invariant: an error in user code is one line with its file and line number; during a run, its traceback is in
`user_code.log` in the run's log folder. Processes that this one starts inherit the names of the modules with tasks.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from rg_env.base.errors import RGEnvError, need, one_line, refuse
from rg_env.configuration.config import PREFIX, RGDumpConfig
from rg_env.configuration.modules import (
    IMPORTS,
    UserCodeError,
    allow_as_scorers,
    files_of,
    import_named,
    registered_modules,
)

_LOG = "user_code.log"
_logged: set[tuple[Path, str, str]] = set()
_FRAME = re.compile(r'File "(.+?)", line (\d+)')


def named_modules(config: RGDumpConfig) -> list[str]:
    """Return the modules of `imports`, and those of `reward` and `experiment_class`."""
    objects = [_module_and_name(path)[0] for path in (config.reward, config.experiment_class) if path]
    return list(dict.fromkeys([*config.imports, *objects]))


def import_modules(config: RGDumpConfig) -> None:
    """Import `imports`, and the modules of `reward` and `experiment_class`; also in processes started from now on.

    Raises:
        ConfigError: a setting is not `module.name`. UserCodeError: a module does not exist or cannot be imported.
    """
    for setting in ("reward", "experiment_class"):
        path = getattr(config, setting)
        right = "write module.name, such as my_code.my_reward"
        need(path is None or all(_module_and_name(path)), f"{PREFIX}.{setting}", path, right)
    names = named_modules(config)
    if not names:
        return
    import_named(names)
    # After the import, so that a module that fails is neither allowed nor handed on to other processes.
    allow_as_scorers(config.imports)
    os.environ[IMPORTS] = ",".join(registered_modules())


def _module_and_name(path: str) -> tuple[str, str]:
    """Return the parts of `module.name` or `module:name`.

    >>> _module_and_name("my.costs.of_tokens"), _module_and_name("my.costs:of_tokens"), _module_and_name("of_tokens")
    (('my.costs', 'of_tokens'), ('my.costs', 'of_tokens'), ('', 'of_tokens'))
    """
    module, _, name = path.replace(":", ".").rpartition(".")
    return module, name


def load_object(setting: str, path: str) -> Any:
    """Import and return the object that a setting names as `module.name` or `module:name`.

    Raises:
        UserCodeError, ConfigError: there is none.
    """
    module, name = _module_and_name(path)
    import_named([module])
    if not hasattr(sys.modules[module], name):
        from rg_env.base.hints import member_meant

        refuse(
            f"{PREFIX}.{setting}", path, f"the module {module} has no {name!r}{member_meant(sys.modules[module], name)}"
        )
    return getattr(sys.modules[module], name)


def in_user_code(error: BaseException, config: RGDumpConfig, folder: str | None) -> UserCodeError | None:
    """Return the one line about an exception that the user's code raised, also in another process; None for any other.

    Args:
        folder: the run's log folder, where the first traceback of each line of code is written; None: nowhere.
    """
    if isinstance(error, RGEnvError):
        return None
    # By its text: Ray writes the traceback of another process into the message, and its frames are only there.
    text = "".join(traceback.format_exception(error))
    files = files_of(named_modules(config))
    frames = []
    for file, line in _FRAME.findall(text):
        if file in files or _is_ours_or_skyrls(file):
            frames.append((file, line))
    # The innermost frame of theirs, ours or SkyRL's says whose error it is; those of other libraries do not count.
    if not frames or frames[-1][0] not in files:
        return None
    file, line = frames[-1]
    message = f"{file}:{line}: {one_line(text.strip().splitlines()[-1], 300)}"
    if folder is None:
        return UserCodeError(message)
    log = Path(folder, _LOG)
    if (log, file, line) not in _logged:  # a function that fails for every group would fill the disk
        _logged.add((log, file, line))
        with suppress(OSError):
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a", encoding="utf-8") as out:
                out.write(text)
    return UserCodeError(f"{message}; the traceback is in {log}")


def _is_ours_or_skyrls(file: str) -> bool:
    return file.startswith(str(Path(__file__).parents[1])) or "/skyrl/" in file or "/skyrl_gym/" in file
