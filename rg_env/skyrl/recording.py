"""RecordingTrainer: for SkyRL's trainers, records what each step was trained on: groups, and tokens if asked to.

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
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from loguru import logger
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.backends.skyrl_train.utils.io import io
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.generators.base import GeneratorOutput
from skyrl.train.utils.trainer_utils import ResumeMode

from rg_env.choices import TokenSteps
from rg_env.dump import DumpPolicy, DumpWriter, TrainedRecord, claim_run, write_manifest
from rg_env.dump.write.tokens import TokenWriter
from rg_env.errors import ConfigError, refuse
from rg_env.skyrl.group_uid import GroupUid, named, one_uid_per_copy
from rg_env.skyrl.token_batch import FIELDS, BatchRow, token_table

_ROWS = "rg_env_rows"
"""Key of a training batch's metadata: the `BatchRow` of each row that is not padded."""
_TOKENS = "rg_env_tokens"
"""Key of a training batch's metadata: its tensors, before SkyRL drops or normalizes some."""
_CHECKPOINT_WAIT = 3600.0
"""At most so many seconds a checkpoint waits for a disk that works."""
_NAMED = 5
"""At most so many groups are named in a warning."""


class RecordingTrainer:
    """Mixin in front of a trainer of SkyRL's whose generator is a `Recorder` or an `RGDumpGenerator`.

    Attributes:
        dump_tokens: of which steps token records are written: `none`, `FIRST..LAST` or `last:N`.
    """

    generator: Any
    global_step: int
    cfg: Any
    dump_tokens: str = "none"
    _tokens: TokenWriter | None = None

    async def train(self) -> None:
        """As in SkyRL, with token records if asked for.

        Raises:
            ConfigError: the generator does not record, or `dump_tokens` is invalid.
        """
        if not hasattr(self.generator, "writer"):
            name = type(self.generator).__name__
            raise ConfigError(
                f"RecordingTrainer needs a generator that records: use Recorder(generator, …), not {name}"
            )
        try:
            writer, steps = self.generator.writer, TokenSteps.parse(self.dump_tokens)
        except ValueError as error:
            refuse("dump_tokens", self.dump_tokens, str(error))
        if writer is not None and steps is not None:
            self._tokens = TokenWriter(writer.folder, writer.run_id, writer.attempt, steps)
        try:
            await super().train()  # type: ignore[misc]
        finally:
            if self._tokens is not None:
                self._tokens.close()

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
        """As in SkyRL, with the origin of each row in the metadata."""
        batch = super().convert_to_training_input(generator_output, uids)  # type: ignore[misc]
        batch.metadata[_ROWS] = _rows(generator_output, uids)
        return batch

    def compute_advantages_and_returns(self, data: TrainingInputBatch) -> TrainingInputBatch:
        """As in SkyRL. If the step's tokens are wanted, its tensors are kept until it has been trained on."""
        data = super().compute_advantages_and_returns(data)  # type: ignore[misc]
        if self._tokens is not None and self.global_step in self._tokens.steps:
            data.metadata[_TOKENS] = {name: data.get(name) for name in FIELDS}
        return data

    def train_critic_and_policy(self, data: TrainingInputBatch) -> Any:
        """As in SkyRL. Once it has returned, the groups are recorded as trained on."""
        rows = data.metadata.pop(_ROWS, [])
        tensors, padded = data.metadata.pop(_TOKENS, None), data.metadata.get("pad_size", 0)
        status = super().train_critic_and_policy(data)  # type: ignore[misc]
        writer: DumpWriter | None = self.generator.writer
        if writer is not None:
            writer.submit(
                [
                    TrainedRecord(writer.run_id, writer.attempt, self.global_step, group, count)
                    for group, count in Counter(row.group_id for row in rows).items()
                ]
            )
        if self._tokens is not None and tensors is not None and rows:
            self._tokens.submit(self.global_step, partial(token_table, rows, tensors), self._facts(padded))
        return status

    def _facts(self, padded: int) -> dict[str, Any]:
        """What the advantages of a step were computed with."""
        algorithm = self.cfg.trainer.algorithm
        names = ("advantage_estimator", "grpo_norm_by_std", "gamma", "eps_clip_low", "eps_clip_high")
        facts = {name: getattr(algorithm, name) for name in names} | {"padded": padded, "step": self.global_step}
        return facts | {"step_wise": self.cfg.generator.step_wise_trajectories}

    def save_checkpoints(self) -> str:
        """As in SkyRL, after everything that the checkpoint covers has been written to the dump, or the disk failed."""
        writer: DumpWriter | None = self.generator.writer
        if writer is not None and writer.flush(_CHECKPOINT_WAIT):
            groups = writer.missing_groups()
            more = f" and {len(groups) - _NAMED} more" if len(groups) > _NAMED else ""
            names = ", ".join(groups[:_NAMED]) + more if groups else "none; only what was trained on"
            logger.error(
                "dump: the checkpoint of step {} covers groups that are not on disk: {}", self.global_step, names
            )
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


def _rows(output: GeneratorOutput, uids: Sequence[str]) -> list[BatchRow]:
    """Where the rows of a batch come from; empty if that is unknown, because no `Recorder` named them."""
    names = output.get("trajectory_ids") or []
    seen = Counter[tuple[str, int]]()
    rows = []
    for uid, name in zip(uids, names, strict=False):
        if isinstance(uid, GroupUid):
            key = str(uid), name.repetition_id
            rows.append(BatchRow(uid.group_id, name.repetition_id, seen[key], uid.copy))
            seen[key] += 1
    return rows if len(rows) == len(uids) else []
