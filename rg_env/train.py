"""The entrypoint of training and evaluation: check everything, then run it.

`rg-env train`, `python -m rg_env.train` and SkyRL's own `main_base` with `trainer.override_entrypoint=rg_env.train` all
call it with the same arguments. Ray, torch and SkyRL's trainer are imported after the settings have been checked, so
that a mistake is reported at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rg_env.errors import RGEnvError
from rg_env.output import print_error, print_text
from rg_env.terminal.command import run_shown
from rg_env.terminal.reports import Reports

if TYPE_CHECKING:
    from rg_env.rollouts.scores import Summary
    from rg_env.skyrl.checkpoints import Checkpoint
    from rg_env.skyrl.config import RGTrainConfig

CHECK, VERBOSE = "--check", "--verbose"
"""Arguments: only check the settings; show the whole log."""


def main(argv: Iterable[str] | None = None) -> None:
    """Train, from `argv` or the command line: YAML files and `key=value` overrides. Exits 2 on a wrong setting."""
    args = list(sys.argv[1:] if argv is None else argv)
    rest = [arg for arg in args if arg not in (CHECK, VERBOSE)]
    sys.exit(run_command(check, rest) if CHECK in args else run_training(rest, verbose=VERBOSE in args))


def run_training(args: list[str], *, verbose: bool = False) -> int:
    """Train in another process and show the run on standard output.

    Args:
        verbose: show the whole log instead of a panel or one line per step.

    Returns:
        exit code: 0; 1 after a failure; 2 after a wrong setting; 128 + N after signal N.
    """
    return run_shown("train", lambda: train(args), args, verbose=verbose).exit_code


def run_command(command: Callable[[Iterable[str]], Any], argv: Iterable[str]) -> int:
    """Run `command` in this process; print user errors as one line.

    Returns:
        exit code: 0; 2 after a wrong setting or an unusable folder; 130 after Ctrl-C.
    """
    try:
        command(argv)
    except RGEnvError as error:
        print_error(error)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def train(argv: Iterable[str]) -> Path:
    """Train to the end.

    Returns:
        the dump folder of the run.

    Raises:
        ConfigError: before anything is started.
    """
    from rg_env.skyrl.config import load_config

    cfg = load_config(argv)
    Reports.of_this_process().begin("loading SkyRL")
    from rg_env.skyrl.launch import launch_training

    _check_experiment(cfg)
    launch_training(cfg)
    return Path(cfg.rg_dump.dump_dir)


def collect(argv: Iterable[str], *, groups: int, samples: int, folder: Path, resume: bool) -> None:
    """Record `samples` responses to each of `groups` questions of the train split, without training.

    Raises:
        ConfigError: a wrong setting, an unfinished run in the folder, or one with other settings.
    """
    from rg_env.config import PREFIX
    from rg_env.skyrl.config import load_config

    unlike_training = [f"{PREFIX}.dump_other_rollouts=true", f"{PREFIX}.length_penalty.kind=none"]
    cfg = load_config([*unlike_training, *argv, f"{PREFIX}.dump_dir={folder}"], training=False)
    cfg.generator.n_samples_per_prompt = samples  # after the checks of training batches
    from rg_env.skyrl.checkpoints import refuse_resumption
    from rg_env.skyrl.launch import launch_rollouts
    from rg_env.skyrl.rollout_job import RolloutJob

    refuse_resumption(cfg)
    launch_rollouts(cfg, [(None, RolloutJob("collect", cfg.rg_dump.dump_dir, resume, groups))])


def evaluate(
    argv: Iterable[str],
    *,
    suite: str = "fixed",
    samples: int | None = None,
    folder: Path | None = None,
    resume: bool = False,
    checkpoint: str | None = None,
) -> list[Summary]:
    """Evaluate a policy, or checkpoints of a run.

    Args:
        samples: responses to each question; None: `generator.eval_n_samples_per_prompt`.
        folder: of the dump, with one folder in it for each of several checkpoints; None: a new one next to that of the
            configuration, unless `argv` names one.
        checkpoint: a path, `latest` or `all`; None: the policy of the configuration.

    Returns:
        the scores of each.

    Raises:
        ConfigError: a wrong setting, or the folder has an unfinished run.
    """
    from rg_env.config import PREFIX
    from rg_env.rollouts.plan import evaluation_folder
    from rg_env.rollouts.scores import summarize
    from rg_env.skyrl.config import load_config

    args = [*argv, f"{PREFIX}.dump_eval_rollouts=true"]
    args += [f"generator.eval_n_samples_per_prompt={samples}"] if samples else []
    args += [f"{PREFIX}.dump_dir={folder}"] if folder else []
    cfg = load_config(args, training=False)
    from rg_env.skyrl.checkpoints import find_checkpoints, loadable, refuse_resumption
    from rg_env.skyrl.launch import launch_rollouts
    from rg_env.skyrl.rollout_job import RolloutJob

    if checkpoint is None:
        refuse_resumption(cfg)
    dump = evaluation_folder(cfg.rg_dump.dump_dir, args)
    found: list[Checkpoint | None] = [*find_checkpoints(checkpoint, cfg)] if checkpoint else [None]
    names = [one.name if one else cfg.trainer.policy.model.path for one in found]
    with ExitStack() as folders:
        models = [folders.enter_context(loadable(one)) if one else None for one in found]
        dumps = [dump / name.replace(" ", "_") for name in names] if len(found) > 1 else [dump]
        jobs = [
            RolloutJob("eval", str(place), resume, suite=suite, step=one.step if one else None)
            for one, place in zip(found, dumps, strict=True)
        ]
        run_ids = launch_rollouts(cfg, list(zip(models, jobs, strict=True)))
    runs = zip(dumps, run_ids, names, strict=True)
    return [summarize(place, run_id, name, cfg.rg_dump.solved_at) for place, run_id, name in runs]


def check(argv: Iterable[str], *, training: bool = True) -> None:
    """Check the settings of a run and print all of them as YAML. Starts and writes nothing.

    GPUs, servers and hubs that this machine lacks are warnings on standard error.

    Raises:
        ConfigError: the settings cannot work on any machine.
    """
    from rg_env.skyrl.config import as_yaml, load_config

    cfg = load_config(argv, training=training, tolerate=lambda missing: print_error(f"warning: {missing}"))
    _check_experiment(cfg)
    print_text(as_yaml(cfg).rstrip())


def _check_experiment(cfg: RGTrainConfig) -> None:
    """Refuse an `experiment_class` that cannot train, before Ray starts."""
    if cfg.rg_dump.experiment_class is not None:
        from rg_env.skyrl.experiment import training_class

        training_class(cfg)


if __name__ == "__main__":
    main()
