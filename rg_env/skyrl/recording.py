"""RecordingTrainer: for SkyRL's trainers, records which groups each step was trained on.

    class MyTrainer(RecordingTrainer, RayPPOTrainer): ...

`generate()` cannot know them: dynamic sampling drops and repeats groups later, and the fully-async loop trains on
groups several steps after they were generated, or never.

Invariant: a group is recorded for a step after that step's training has returned, with the number of its rows in the
training batch, without the rows that SkyRL padded. SkyRL alone decides what is trained on. The trainer keeps nothing
about a batch: rows know their group by their uid (`GroupUid`), and where they come from is in the batch's metadata.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loguru import logger
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.backends.skyrl_train.utils.io import io
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.generators.base import GeneratorOutput
from skyrl.train.utils.trainer_utils import ResumeMode

from rg_env.dump import DumpPolicy, DumpWriter, TrainedRecord, claim_run, write_manifest
from rg_env.errors import ConfigError
from rg_env.skyrl.group_uid import GroupUid, named, one_uid_per_copy, uids_for_advantages

_ROWS = "rg_env_rows"
"""Key of a training batch's metadata: the group id of each row that is not padded."""
_NAMED = 5
"""At most so many groups are named in a warning."""


class RecordingTrainer:
    """Mixin in front of a trainer of SkyRL's whose generator is a `Recorder` or an `RGDumpGenerator`."""

    generator: Any
    global_step: int
    cfg: Any

    async def train(self) -> None:
        """As in SkyRL.

        Raises:
            ConfigError: the generator does not record.
        """
        if not hasattr(self.generator, "writer"):
            name = type(self.generator).__name__
            raise ConfigError(
                f"RecordingTrainer needs a generator that records: use Recorder(generator, …), not {name}"
            )
        await super().train()  # type: ignore[misc]

    def handle_dynamic_sampling(
        self, generator_output: GeneratorOutput, uids: list[str]
    ) -> tuple[GeneratorOutput, list[str], bool]:
        """As in SkyRL, but uids name their groups before it selects some, and copies of a group have unique uids."""
        output, uids, keep_sampling = super().handle_dynamic_sampling(  # type: ignore[misc]
            generator_output, named(generator_output, uids)
        )
        return output, uids if keep_sampling else one_uid_per_copy(output, uids), keep_sampling

    def postprocess_generator_output(
        self, generator_output: GeneratorOutput, uids: list[str], *args: Any, **kwargs: Any
    ) -> tuple[GeneratorOutput, list[str]]:
        """As in SkyRL, on uids that name their groups."""
        result: tuple[GeneratorOutput, list[str]] = super().postprocess_generator_output(  # type: ignore[misc]
            generator_output, named(generator_output, uids), *args, **kwargs
        )
        return result

    def convert_to_training_input(self, generator_output: GeneratorOutput, uids: list[str]) -> TrainingInputBatch:
        """As in SkyRL, with the group of each row in the metadata."""
        batch = super().convert_to_training_input(generator_output, uids)  # type: ignore[misc]
        batch.metadata[_ROWS] = [uid.group_id for uid in uids if isinstance(uid, GroupUid)]
        return batch

    def compute_advantages_and_returns(self, data: TrainingInputBatch) -> TrainingInputBatch:
        """As in SkyRL, but masked rows change no other row's advantages, and have none."""
        uids = data.metadata["uids"]
        step_wise = self.cfg.generator.step_wise_trajectories
        is_last_step = data.metadata["is_last_step"] if step_wise else [True] * len(uids)
        data.metadata["uids"], without_advantage = uids_for_advantages(uids, is_last_step)
        data = super().compute_advantages_and_returns(data)  # type: ignore[misc]
        data.metadata["uids"] = uids
        data["advantages"][without_advantage] = 0.0
        return data

    def train_critic_and_policy(self, data: TrainingInputBatch) -> Any:
        """As in SkyRL. Once it has returned, the groups are recorded as trained on."""
        rows = data.metadata.pop(_ROWS, [])
        status = super().train_critic_and_policy(data)  # type: ignore[misc]
        writer: DumpWriter | None = self.generator.writer
        if writer is not None:
            writer.write_blocking(
                [
                    TrainedRecord(writer.run_id, writer.attempt, self.global_step, group, count)
                    for group, count in Counter(rows).items()
                ]
            )
        return status

    def save_checkpoints(self) -> str:
        """As in SkyRL, after everything that the checkpoint covers has been written to the dump, or the disk failed."""
        writer: DumpWriter | None = self.generator.writer
        if writer is not None:
            writer.write_blocking()
            if groups := writer.missing_groups():
                names = ", ".join(groups[:_NAMED]) + (f" and {len(groups) - _NAMED} more" if groups[_NAMED:] else "")
                what = "dump: the checkpoint of step {} covers groups that are not on disk: {}"
                logger.error(what, self.global_step, names)
        path: str = super().save_checkpoints()  # type: ignore[misc]
        return path


def open_dump(cfg: SkyRLTrainConfig, folder: str | Path) -> DumpWriter:
    """The dump of a run of SkyRL's own trainers, every text of it. A resumed run continues its dump.

    Args:
        cfg: the settings of the run, which the manifest gets.
        folder: created if missing.

    Raises:
        DumpError: the folder cannot be written, or another process writes this run.
    """
    run_id, attempt = claim_run(cfg.trainer.ckpt_path, resuming=resumes(cfg))
    policy = DumpPolicy(dump_other_rollouts=True, dump_eval_rollouts=True)
    writer = DumpWriter(folder, run_id, attempt, policy=policy)
    facts = {"attempt": attempt, "model": cfg.trainer.policy.model.path, "settings": asdict(cfg)}
    write_manifest(writer.folder, run_id, facts)
    return writer


def resumes(cfg: SkyRLTrainConfig) -> bool:
    """Whether SkyRL will load one of this run's own checkpoints.

    With `latest` it starts from scratch if there is none; with `from_path` it may start from another run's.
    """
    mode, own = ResumeMode(cfg.trainer.resume_mode), cfg.trainer.ckpt_path
    if mode is ResumeMode.LATEST:
        return bool(io.exists(f"{own}/latest_ckpt_global_step.txt"))
    if mode is ResumeMode.FROM_PATH:
        return _normal(str(cfg.trainer.resume_path).rstrip("/").rpartition("/")[0]) == _normal(own)
    return False


def _normal(folder: str) -> str:
    return folder.rstrip("/") if "://" in folder else os.path.realpath(folder)
