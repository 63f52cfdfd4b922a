"""The hooks that put rg_env's dataset, generator and dump into SkyRL's own experiments.

Runs inside the Ray task. Invariant: however the run ends (its last step, an exception, Ctrl-C, SIGTERM), the dump is
closed. The scorer processes end with the task's process.
"""

from __future__ import annotations

import functools
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from types import FrameType
from typing import Any, cast

from loguru import logger
from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
from skyrl.train.dataset import PromptDataset
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.utils.ray_logging import redirect_actor_output_to_file
from skyrl.train.utils.tracking import Tracking

from rg_env.base.errors import MissingGroupsError, describe, need, one_line
from rg_env.base.wording import counted
from rg_env.configuration.config import PREFIX
from rg_env.configuration.user_code import import_modules, in_user_code, load_object
from rg_env.dump import DumpWriter, close_all, open_dump
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.rows.eval_set import EvalSet
from rg_env.scoring import shared_scorer
from rg_env.skyrl.env import register
from rg_env.skyrl.generator import RGDumpGenerator
from rg_env.skyrl.logs import set_up_logging
from rg_env.skyrl.own_workers import WithoutFlashAttn, has_flash_attn
from rg_env.skyrl.recorder import claimed
from rg_env.skyrl.steps import StepTracking
from rg_env.skyrl.train_config import RGTrainConfig
from rg_env.skyrl.trainers import RGFullyAsyncTrainer, RGTrainer
from rg_env.terminal.reports import Reports

_REASON = 500
"""Most characters of an error that are noted and shown."""


class RGExperiment(BasePPOExp):
    """SkyRL's training on Reasoning Gym items."""

    cfg: RGTrainConfig
    tokenizer: Any
    reports: Reports = Reports()

    def get_eval_dataset(self) -> EvalSet | PromptDataset | None:
        """Return the fixed evaluation set, which is made while the models are loaded, or the files of
        `data.val_data`."""
        if self.cfg.trainer.eval_interval <= 0:
            return None
        if self.cfg.data.val_data:
            return self._prompt_dataset(self.cfg.data.val_data)
        return EvalSet.of(self.cfg.rg_dump, **self._prompt_limits())

    def get_generator(self, cfg: RGTrainConfig, tokenizer: Any, inference_engine_client: Any) -> RGDumpGenerator:
        shared_scorer(cfg.rg_dump.scorer)  # its processes start while the models are loaded
        generator = RGDumpGenerator(
            generator_cfg=cfg.generator,
            skyrl_gym_cfg=cfg.environment.skyrl_gym,
            inference_engine_client=inference_engine_client,
            tokenizer=tokenizer,
            policy_model_name=resolve_policy_model_name(cfg),
            writer=self.writer,
            log_folder=cfg.trainer.log_path,
        )
        if log := generator.rollout_log:
            self.reports.send(line=f"rollout log: {log.path}", rollouts=str(log.path))
        return generator

    def get_tracker(self) -> Tracking:
        """SkyRL's tracker, whose numbers also go to the dump. SwanLab gets the settings as a dict, because it refuses
        SkyRL's config object.
        """
        trainer = self.cfg.trainer
        tracker = Tracking(
            project_name=trainer.project_name,
            experiment_name=trainer.run_name,
            backend=trainer.logger,
            config=asdict(self.cfg) if trainer.logger == "swanlab" else self.cfg,
            tags=trainer.tags,
        )
        return cast(Tracking, StepTracking(tracker, self.writer))

    @functools.cached_property
    def writer(self) -> DumpWriter:
        """Of the dump, which is opened before any model is loaded."""
        cfg = self.cfg
        writer = claimed(cfg, functools.partial(open_writer, cfg))
        line = f"run {writer.run_id}, dump: {writer.folder}"
        self.reports.send(line=line, run_id=writer.run_id, dump=str(writer.folder))
        return writer

    def _prompt_dataset(self, files: list[str]) -> PromptDataset:
        workers = max(1, self.cfg.data.dataloader.num_workers or 0)
        return PromptDataset(files, self.tokenizer, self.cfg.trainer.max_prompt_length, num_workers=workers)

    def _prompt_limits(self) -> dict[str, Any]:
        return {
            "tokenizer": self.tokenizer,
            "max_prompt_length": self.cfg.trainer.max_prompt_length,
            "chat_template_kwargs": dict(self.cfg.generator.chat_template_kwargs),
        }

    def get_train_dataset(self) -> ReasoningGymDataset | PromptDataset:
        """Items on demand, or the files of `data.train_data`."""
        self.reports.begin("checking prompt lengths")
        if self.cfg.data.train_data:
            return self._prompt_dataset(self.cfg.data.train_data)
        rg = self.cfg.rg_dump

        def tell(done: int, total: int) -> None:
            self.reports.send(progress=f"{done} of {total} tasks tried")

        dataset = ReasoningGymDataset.train_of(rg, rg.size, tell, **self._prompt_limits())
        logger.info("task mix: {}", dataset.mix)
        return dataset

    def get_trainer(self, **kwargs: Any) -> RGTrainer | RGFullyAsyncTrainer:
        """Return the trainer of the loop that SkyRL's `trainer.fully_async.enabled` selects."""
        trainer_class = RGFullyAsyncTrainer if self.cfg.trainer.fully_async.enabled else RGTrainer
        trainer: RGTrainer | RGFullyAsyncTrainer = trainer_class(**kwargs)
        trainer.reports = self.reports
        # SkyRL's trainer has just set up the log anew.
        set_up_logging(self.cfg.rg_dump, self.reports)
        return trainer


def open_writer(cfg: RGTrainConfig, run_id: str, attempt: int) -> DumpWriter:
    """Open the dump of this run."""
    trainer = cfg.trainer
    writer = open_dump(
        cfg.rg_dump,
        "train",
        model=trainer.policy.model.path,
        settings=asdict(cfg),
        run_id=run_id,
        attempt=attempt,
        name=trainer.run_name,
    )
    logger.info("dump of run {} (attempt {}): {}", run_id, attempt, cfg.rg_dump.dump_dir)
    return writer


def _close_at_the_end_of(lifeline: int) -> None:
    """Close the dump when the run is to end, although its main thread may be in a call that nothing interrupts."""
    reason = b""
    # Blocks until the process that started Ray closes its side, or dies.
    with suppress(OSError), socket.create_connection(("127.0.0.1", lifeline)) as connection:
        reason = connection.recv(100)  # it is sent before the other side is closed, unless that side is killed
    logger.disable("skyrl")  # it calls what is stopped now a failed training
    close_all(reason.decode() or "killed")


def _close_and_exit(signum: int, frame: FrameType | None) -> None:
    signal.signal(signum, lambda number, _: os._exit(128 + number))  # a second one, although the disk hangs
    close_all(f"stopped by {signal.Signals(signum).name}")
    sys.exit(128 + signum)


def run_training(cfg: RGTrainConfig, reports: Reports | None = None) -> None:
    """Body of the training task.

    Raises:
        MissingGroupsError: the run is over, and its dump lacks groups. UserCodeError: the user's code raised.
    """
    reports = reports or Reports()
    if reports.log_to_file:
        redirect_actor_output_to_file()
    set_up_logging(cfg.rg_dump, reports)
    for variable in ("TENSORBOARD_DIR", "WANDB_DIR"):  # both write to the current folder otherwise
        os.environ.setdefault(variable, cfg.trainer.log_path)
    register()
    import_modules(cfg.rg_dump)
    if reports.lifeline is not None:
        threading.Thread(target=_close_at_the_end_of, args=(reports.lifeline,), daemon=True).start()
    # Python lets only the main thread set a handler.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _close_and_exit)
    kind = training_class(cfg)
    if cfg.rg_dump.device == "cpu":
        from rg_env.skyrl.cpu.cpu_experiment import CPUMixin

        # First among the bases, so that its hooks win over those of the experiment.
        kind = type(f"CPU{kind.__name__}", (CPUMixin, kind), {})
    elif cfg.trainer.strategy == "fsdp" and not has_flash_attn():
        kind = type(kind.__name__, (WithoutFlashAttn, kind), {})
    # Of a class of this run, because the constructor reports already.
    kind = type(kind.__name__, (kind,), {"reports": reports})
    # What stays for SystemExit and KeyboardInterrupt, which are no `Exception`.
    end = "stopped"
    try:
        experiment = kind(cfg)
        reports.begin("loading the policy")
        experiment.run()
        end = "finished"
    except Exception as error:
        known = in_user_code(error, cfg.rg_dump, cfg.trainer.log_path)
        end = f"failed: {one_line(known or describe(error), _REASON)}"
        if known:
            raise known from None
        raise
    finally:
        close_all(end)
    # Only a run that was trained to its end gets here, and may still lack groups in its dump.
    if missing := experiment.writer.missing:
        folder = experiment.writer.folder
        raise MissingGroupsError(
            f"{counted(missing, 'group')} of this run missing from the dump in {folder}: the disk failed"
        )


def training_class(cfg: RGTrainConfig) -> type[RGExperiment]:
    """Return the experiment that trains: ours, or the one that `experiment_class` names.

    Raises:
        ConfigError: it is not a subclass of ours. UserCodeError: it cannot be loaded.
    """
    path = cfg.rg_dump.experiment_class
    if path is None:
        return RGExperiment
    kind = load_object("experiment_class", path)
    ok = isinstance(kind, type) and issubclass(kind, RGExperiment)
    need(ok, f"{PREFIX}.experiment_class", path, "must be a subclass of rg_env.skyrl.experiment.RGExperiment")
    return cast(type[RGExperiment], kind)
