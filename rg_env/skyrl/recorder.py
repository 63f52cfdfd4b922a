"""Recorder: records every group that a generator of SkyRL's returns, of every environment.

    Recorder(generator, open_dump(cfg, "dumps"), tokenizer)

Invariant: the generator's output is passed on as it is, except that in training lists are added to it: of each row
the `groups` and `group_ids` of the record, `masked`, and `trajectory_ids`. SkyRL drops, repeats and reorders rows, and
these lists with them.
A reward that is not a finite number is passed on, too: `RecordingTrainer` keeps its rollout out of the loss, but under
a trainer of SkyRL's alone all advantages of its group are NaN.
"""

from __future__ import annotations

import inspect
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from skyrl.backends.skyrl_train.utils.io import io
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.generators.base import GeneratorInput, GeneratorInterface, GeneratorOutput
from skyrl.train.utils.trainer_utils import ResumeMode

from rg_env.base.choices import SOLVED_AT
from rg_env.base.errors import ConfigError
from rg_env.dump import Attempt, DumpWriter, GroupRecord, claim_run
from rg_env.dump.opening import open_with
from rg_env.dump.run_file import lock_checkpoints
from rg_env.rollouts.rollout import Origin, Prompt, Rollout, group_record
from rg_env.skyrl.generator import RGDumpGenerator
from rg_env.skyrl.groups import UnscoredWarning, fill_groups, origin_of, record_groups, with_slots
from rg_env.skyrl.resumption import as_settings
from rg_env.skyrl.turns import note_turns, noted_dialogs
from rg_env.tasks import Item
from rg_env.tasks.item import ENV_CLASS


class Recorder(GeneratorInterface):
    """A generator that records what another one generates.

    Args:
        generator: any generator of SkyRL's.
        writer: of the dump; None: nothing is written.
        tokenizer: of the policy.
        solved_at: by env class, the score from which a rollout counts as solved; 0.99 for all others.

    Raises:
        ConfigError: there is no tokenizer, or the generator records already.
    """

    def __init__(
        self,
        generator: GeneratorInterface,
        writer: DumpWriter | None,
        tokenizer: Any,
        *,
        solved_at: Mapping[str, float] | None = None,
    ) -> None:
        if not hasattr(tokenizer, "decode"):
            raise ConfigError(f"Recorder needs the policy's tokenizer to write texts, not {tokenizer!r}")
        if isinstance(generator, (Recorder, RGDumpGenerator)):
            raise ConfigError(f"{type(generator).__name__} records already: use one Recorder for a run")
        self.generator = generator
        self.writer = writer
        self._solved_at = solved_at or {}
        self._tokenizer = tokenizer
        note_turns(generator)
        self._calls = itertools.count()
        self._unscored = UnscoredWarning(
            "RecordingTrainer keeps them out of the loss; SkyRL's own trainers make every advantage of their groups NaN"
        )
        # `GeneratorInterface` of SkyRL 0.4.0 lacks this argument, so a generator of the user's own may lack it, too.
        self._takes_tqdm = "disable_tqdm" in inspect.signature(generator.generate).parameters

    async def generate(self, input_batch: GeneratorInput, disable_tqdm: bool = False) -> GeneratorOutput:
        """Generate, and record every group.

        Raises:
            RGEnvError: it cannot be known which rows of the output belong to which rollout.
        """
        engine = getattr(self.generator, "inference_engine_client", None)
        # Before generation: the engine may have other weights after it.
        origin = origin_of(input_batch, self.writer, engine, next(self._calls))
        began = time.time()
        batch = with_slots(input_batch)
        options = {"disable_tqdm": disable_tqdm} if self._takes_tqdm else {}
        with noted_dialogs() as dialogs:
            output = await self.generator.generate(batch, **options)
        groups = fill_groups(batch, output, dialogs=dialogs, tokenizer=self._tokenizer, began=began)
        self._unscored.say(groups)
        records = record_groups(origin, groups, output, self._record)
        if self.writer is not None:
            await self.writer.write(records)
        return output

    def _record(self, origin: Origin, question: Item | Prompt, uid: str, group: Sequence[Rollout]) -> GroupRecord:
        environment = question.environment if isinstance(question, Prompt) else ENV_CLASS
        return group_record(origin, question, uid, group, self._solved_at.get(environment, SOLVED_AT))


def open_dump(cfg: SkyRLTrainConfig, folder: str | Path) -> DumpWriter:
    """Return the dump of a run of SkyRL's own trainers, every text of it. A resumed run continues its dump.

    Args:
        cfg: the settings of the run, which the manifest gets.
        folder: created if missing.

    Raises:
        DumpError: the folder cannot be written, or another process writes this run or its checkpoints.
    """

    def open_writer(run_id: str, attempt: int) -> DumpWriter:
        model, settings = cfg.trainer.policy.model.path, asdict(cfg)
        start = Attempt(attempt=attempt, kind="train", model=model, settings=settings)
        return open_with(folder, run_id, start)

    return claimed(cfg, open_writer)


def claimed(cfg: SkyRLTrainConfig, open_writer: Callable[[str, int], DumpWriter]) -> DumpWriter:
    """Open the dump of a run whose checkpoints no other process may write until the dump is closed.

    Args:
        open_writer: takes run id and attempt.

    Raises:
        DumpError: another process trains with these checkpoints, or they or the dump cannot be written.
    """
    ckpt_path, resuming = cfg.trainer.ckpt_path, resumes(cfg)
    locks = []
    # Runs that neither read nor write checkpoints share none.
    if resuming or cfg.trainer.ckpt_interval > 0:
        locks = lock_checkpoints(ckpt_path)
    try:
        run_id, attempt = claim_run(ckpt_path, resuming=resuming, settings=as_settings(cfg))
        writer = open_writer(run_id, attempt)
    except BaseException:
        for lock in locks:
            lock.release()
        raise
    writer.locks += locks
    return writer


def resumes(cfg: SkyRLTrainConfig) -> bool:
    """Return whether SkyRL will load one of this run's own checkpoints.

    With `latest` it starts from scratch if there is none; with `from_path` it may start from another run's.
    """
    mode, own = ResumeMode(cfg.trainer.resume_mode), cfg.trainer.ckpt_path
    if mode is ResumeMode.LATEST:
        return bool(io.exists(f"{own}/latest_ckpt_global_step.txt"))
    if mode is ResumeMode.FROM_PATH:
        # The checkpoints of a run are in the folder around its global_step_N.
        return _normal(str(cfg.trainer.resume_path).rstrip("/").rpartition("/")[0]) == _normal(own)
    return False


def _normal(folder: str) -> str:
    if "://" in folder:
        return folder.rstrip("/")
    return os.path.realpath(folder)
