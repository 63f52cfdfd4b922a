"""The entrypoint of training: check everything, then run it.

`rg-env train`, `python -m rg_env.train` and SkyRL's own `main_base` with `trainer.override_entrypoint=rg_env.train` all
call it with the same arguments. Ray, torch and SkyRL's trainer are imported after the settings have been checked, so
that a mistake is reported at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rg_env.base.errors import RGEnvError
from rg_env.base.output import guard_streams, print_error, print_line, print_text
from rg_env.terminal.reports import Reports
from rg_env.terminal.screen import Screen
from rg_env.terminal.supervisor import supervise

if TYPE_CHECKING:
    from rg_env.skyrl.train_config import RGTrainConfig, TrainingRun

CHECK, VERBOSE = "--check", "--verbose"
"""Arguments: only check the settings; show the whole log."""


def main(argv: Iterable[str] | None = None) -> NoReturn:
    """Train in another process and show the run on standard output, or only check its settings.

    Args:
        argv: YAML files and `key=value` overrides, `--check`, `--verbose`; None: the command line.

    Exits with 0; 1 after a failure; 2 after a wrong setting; 3 if groups are missing from the dump; 128 + N after
    signal N.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    settings = [arg for arg in args if arg not in (CHECK, VERBOSE)]
    verbose = VERBOSE in args
    guard_streams()
    if CHECK not in args:
        screen = Screen("train", verbose=verbose)
        code = supervise(lambda: train(settings), screen)
        screen.end(code, settings)
        sys.exit(code)
    try:
        check(settings, everything=verbose)
    except RGEnvError as error:
        for mistake in str(error).splitlines():
            print_error(mistake)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


def train(argv: Iterable[str]) -> Path:
    """Train to the end; a run that is finished is only reported as such.

    Returns:
        the dump folder of the run.

    Raises:
        ConfigError: before anything is started.
    """
    from rg_env.skyrl.resumption import finished_at
    from rg_env.skyrl.train_config import load_run

    run = load_run(argv)
    # Nothing has been written yet: a mistake, or a run that is finished, leaves no folder behind.
    _check_experiment(run.cfg)
    if (step := finished_at(run.cfg)) is not None:
        more = "to train on, raise trainer.max_training_steps or epochs; for a new run, trainer.resume_mode=none"
        finished = f"the run in {run.cfg.trainer.ckpt_path} is finished, at step {step}; {more}"
        Reports.of_this_process().send(finished=finished)
        return Path(run.cfg.rg_dump.dump_dir)
    run.folder.enter(run.cfg)
    # Only now: it imports Ray, which takes seconds, and a wrong setting should be reported at once.
    from rg_env.skyrl.launch import launch_training

    launch_training(run.cfg)
    return Path(run.cfg.rg_dump.dump_dir)


def check(argv: Iterable[str], *, everything: bool = False) -> None:
    """Check the settings of a run and print as YAML what differs from the defaults. Starts and writes nothing.

    Args:
        everything: print all settings.

    GPUs, servers and hubs that this machine lacks are warnings on standard error.

    Raises:
        ConfigError: the settings cannot work on any machine.
    """
    from rg_env.skyrl.train_config import as_yaml

    run = load_quietly(argv)
    _check_experiment(run.cfg)
    _check_prompts(run.cfg)
    print_line("# All settings:" if everything else f"# What differs from the defaults ({VERBOSE}: all):")
    print_text(as_yaml(run, everything=everything).rstrip())
    print_line("# The settings are valid. `rg-env config` with the same arguments says where each comes from.")


def load_quietly(argv: Iterable[str]) -> TrainingRun:
    """`load_run`, of whose log only the warnings are shown, with what this machine lacks among them."""
    from loguru import logger

    from rg_env.skyrl.train_config import load_run

    def warn(message: Any) -> None:
        print_error(f"warning: {message.record['message']}")

    logger.remove()
    logger.add(warn, level="WARNING")  # hide SkyRL's own info messages
    return load_run(argv, tolerate=lambda missing: print_error(f"warning: {missing}"))


def _check_experiment(cfg: RGTrainConfig) -> None:
    """Refuse an `experiment_class` that cannot train, before Ray starts."""
    if cfg.rg_dump.experiment_class is not None:
        from rg_env.skyrl.experiment import training_class

        training_class(cfg)


def _check_prompts(cfg: RGTrainConfig) -> None:
    """Warn of the tasks whose prompts are all too long, as training does; needs the policy's folder."""
    model = cfg.trainer.policy.model.path
    if cfg.data.train_data or not os.path.isdir(model):
        return
    from rg_env.rows.dataset import ReasoningGymDataset
    from rg_env.rows.templates import load_tokenizer

    limits = {"max_prompt_length": cfg.trainer.max_prompt_length, "tokenizer": load_tokenizer(model)}
    kwargs = dict(cfg.generator.chat_template_kwargs)
    # Made for its warnings alone.
    ReasoningGymDataset.train_of(cfg.rg_dump, cfg.rg_dump.size, **limits, chat_template_kwargs=kwargs)


if __name__ == "__main__":
    main()
