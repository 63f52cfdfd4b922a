"""Where each setting of a run comes from: the command line, a line of a file, what follows from others, or a default.

Invariant: the values are those of `load_run`, which trains with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rg_env.configuration.config import PREFIX
from rg_env.configuration.setting_names import find_setting, is_group
from rg_env.configuration.settings import lines_of, value_of
from rg_env.skyrl.cpu.cpu_settings import CPU_OVERRIDES
from rg_env.skyrl.train_config import RGTrainConfig, TrainingRun, known_settings


class SettingInForce(NamedTuple):
    """A setting as a run has it.

    Attributes:
        source: `command line`, `FILE, line N`, `device=cpu`, `the run's folder`, `other settings`, `default`, or
            `SkyRL's default`.
    """

    name: str
    value: Any
    source: str


def settings_in_force(args: Iterable[str], run: TrainingRun) -> Iterator[SettingInForce]:
    """Yield every setting of a run, in the order of their declaration.

    Args:
        args: those of `load_run`, which has returned `run`.
    """
    given = _given(args)
    untouched = RGTrainConfig()
    on_cpu = run.cfg.rg_dump.device == "cpu"
    for name in known_settings():
        value = value_of(run.cfg, name)
        if name in given:
            source = given[name]
        elif on_cpu and name in CPU_OVERRIDES:
            source = "device=cpu"
        elif name in run.folder.parts:
            source = "the run's folder"
        elif value != value_of(untouched, name):
            source = "other settings"
        else:
            source = "default" if name.startswith(PREFIX) else "SkyRL's default"
        yield SettingInForce(name, value, source)


def _given(args: Iterable[str]) -> dict[str, str]:
    """Return the source of each setting that was given. What is typed overrides files, and later files earlier ones."""
    of_files: dict[str, str] = {}
    typed: dict[str, str] = {}
    for arg in args:
        key, sign, _ = arg.partition("=")
        if sign:
            typed[find_setting(key)[0]] = "command line"
            continue
        for name, line in lines_of(Path(arg), lambda name: not is_group(name)).items():
            of_files[find_setting(name, whole=True)[0]] = f"{arg}, line {line}"
    return of_files | typed
