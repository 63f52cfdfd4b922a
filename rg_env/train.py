"""The entrypoint of training: check everything, then run it.

`rg-env train`, `python -m rg_env.train` and SkyRL's own `main_base` with `trainer.override_entrypoint=rg_env.train` all
call it with the same arguments. Ray, torch and SkyRL's trainer are imported after the settings have been checked, so
that a mistake is reported at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rg_env.errors import RGEnvError
from rg_env.output import print_error, print_line, print_text
from rg_env.terminal.reports import Reports
from rg_env.terminal.screen import Screen
from rg_env.terminal.supervisor import supervise

if TYPE_CHECKING:
    from rg_env.skyrl.config import RGTrainConfig

CHECK, VERBOSE = "--check", "--verbose"
"""Arguments: only check the settings; show the whole log."""


def main(argv: Iterable[str] | None = None) -> None:
    """Train, from `argv` or the command line: YAML files and `key=value` overrides. Exits 2 on a wrong setting."""
    args = list(sys.argv[1:] if argv is None else argv)
    rest = [arg for arg in args if arg not in (CHECK, VERBOSE)]
    verbose = VERBOSE in args
    sys.exit(
        run_command(partial(check, everything=verbose), rest) if CHECK in args else run_training(rest, verbose=verbose)
    )


def run_training(args: list[str], *, verbose: bool = False) -> int:
    """Train in another process and show the run on standard output.

    Args:
        verbose: show the whole log instead of a panel or one line per step.

    Returns:
        exit code: 0; 1 after a failure; 2 after a wrong setting; 3 if groups are missing from the dump; 128 + N
        after signal N.
    """
    screen = Screen("train", verbose=verbose)
    code = supervise(lambda: train(args), screen)
    screen.end(code, args)
    return code


def run_command(command: Callable[[Iterable[str]], Any], argv: Iterable[str]) -> int:
    """Run `command` in this process; print user errors as one line.

    Returns:
        exit code: 0; 2 after a wrong setting or an unusable folder; 130 after Ctrl-C.
    """
    try:
        command(argv)
    except RGEnvError as error:
        for mistake in str(error).splitlines():
            print_error(mistake)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def train(argv: Iterable[str]) -> Path:
    """Train to the end; a run that is finished is only reported as such.

    Returns:
        the dump folder of the run.

    Raises:
        ConfigError: before anything is started.
    """
    from rg_env.skyrl.checks import finished_at
    from rg_env.skyrl.config import load_config, typed_settings
    from rg_env.skyrl.run_folder import RunFolder

    args = list(argv)
    cfg = load_config(args)
    folder = RunFolder.of(cfg, typed_settings(args))
    reports = Reports.of_this_process()
    _check_experiment(cfg)
    if (step := finished_at(cfg)) is not None:
        more = "to train on, raise trainer.max_training_steps or epochs; for a new run, trainer.resume_mode=none"
        reports.send(finished=f"the run in {cfg.trainer.ckpt_path} is finished, at step {step}; {more}")
        return Path(cfg.rg_dump.dump_dir)
    folder.enter(cfg)
    from rg_env.skyrl.launch import launch_training

    launch_training(cfg)
    return Path(cfg.rg_dump.dump_dir)


def check(argv: Iterable[str], *, everything: bool = False) -> None:
    """Check the settings of a run and print as YAML what differs from the defaults. Starts and writes nothing.

    Args:
        everything: print all settings.

    GPUs, servers and hubs that this machine lacks are warnings on standard error.

    Raises:
        ConfigError: the settings cannot work on any machine.
    """
    from loguru import logger

    from rg_env.skyrl.config import as_yaml, load_config, typed_settings
    from rg_env.skyrl.run_folder import RunFolder

    logger.configure(handlers=[{"sink": sys.stderr, "level": "WARNING"}])  # what SkyRL's checks tell is no news
    args = list(argv)
    cfg = load_config(args, tolerate=lambda missing: print_error(f"warning: {missing}"))
    RunFolder.of(cfg, typed_settings(args))
    _check_experiment(cfg)
    shown = "all of them" if everything else f"what differs from the defaults ({VERBOSE}: all)"
    print_line(f"# The settings are valid. {shown.capitalize()}:")
    print_text(as_yaml(cfg, everything=everything).rstrip())


def _check_experiment(cfg: RGTrainConfig) -> None:
    """Refuse an `experiment_class` that cannot train, before Ray starts."""
    if cfg.rg_dump.experiment_class is not None:
        from rg_env.skyrl.experiment import training_class

        training_class(cfg)


if __name__ == "__main__":
    main()
