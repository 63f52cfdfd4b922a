"""SkyRL's trainers with our train loader, which also record the groups that each step was trained on.

`generate()` cannot know them: dynamic sampling drops and repeats groups later, and the fully-async loop trains on
groups several steps after they were generated, or never.

Invariant: a group is recorded for a step after that step's training has returned, with the number of its rows in the
training batch. Rows that SkyRL padded and rows of other environments are not counted. SkyRL alone decides what is
trained on. The trainer keeps nothing about a batch: rows know their group by their uid (`GroupUid`), and the count is
part of the batch's metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loguru import logger
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.train.dataset import PromptDataset
from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
from skyrl.train.generators.base import GeneratorOutput
from skyrl.train.trainer import RayPPOTrainer

from rg_env.dump import DumpWriter, TrainedRecord
from rg_env.eval_set import EvalSet
from rg_env.skyrl.group_uid import GroupUid
from rg_env.skyrl.loader import AsyncTrainLoader, EvalLoader, TrainLoader, train_loader
from rg_env.terminal.reports import Reports, numbers

_ROWS_OF_GROUPS = "rg_env_rows_of_groups"
"""Key of a training batch's metadata: group id → number of rows."""


class RGTrainerMixin:
    """What both trainers have in common. The generator must be an `RGDumpGenerator`."""

    generator: Any
    global_step: int
    total_training_steps: int
    all_metrics: dict[str, Any]
    cfg: Any
    train_dataset: Any
    train_dataloader: TrainLoader
    eval_dataloader: EvalLoader | None
    _loader: type[TrainLoader]
    reports: Reports = Reports()

    def __init__(self, *args: Any, eval_dataset: EvalSet | PromptDataset | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.eval_dataset = eval_dataset
        if eval_dataset is not None:
            self.eval_dataloader = EvalLoader(eval_dataset, self.cfg.trainer.eval_batch_size)

    def report_step(self, metrics: Mapping[str, Any]) -> None:
        """Report and log what has been trained on since the last report, if anything."""
        counts = self.generator.summary.take()
        if not counts.groups:
            return
        step, total = self.global_step, self.total_training_steps or 0
        logger.info("step {}/{} | {}", step, total, counts.line())
        facts = {"counts": counts.as_facts(), "line": counts.line(), "metrics": numbers(metrics)}
        self.reports.send("step", step=step, total=total, **facts)

    async def eval(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As in SkyRL. The result is reported."""
        self.report_step(self.all_metrics)  # SkyRL logs a step after its evaluation
        self.reports.phase("evaluating")
        metrics: dict[str, float] = await super().eval(*args, **kwargs)  # type: ignore[misc]
        counts = self.generator.evaluated.take()
        self.reports.send("evaluation", step=self.global_step, counts=counts.as_facts())
        self.reports.phase("training")
        return metrics

    def load_checkpoints(self) -> Any:
        """As in SkyRL. The step from which the run continues is reported."""
        loaded = super().load_checkpoints()  # type: ignore[misc]
        if loaded[0]:
            self.reports.send("resumed", step=loaded[0])
        return loaded

    def _build_train_dataloader_and_compute_training_steps(self) -> None:
        """As in SkyRL, with our loader, which learns from the generator what became of its rows."""
        self.train_dataloader = self.generator.loader = train_loader(self.cfg, self.train_dataset, self._loader)
        self.total_training_steps = len(self.train_dataloader) * self.cfg.trainer.epochs
        if self.cfg.trainer.max_training_steps is not None:
            self.total_training_steps = min(self.total_training_steps, self.cfg.trainer.max_training_steps)
        logger.info("{} steps, {} in an epoch", self.total_training_steps, len(self.train_dataloader))

    async def train(self) -> None:
        """As in SkyRL. The loader's processes end with the training."""
        if isinstance(self.eval_dataset, EvalSet):
            self.reports.phase("making the evaluation set")
            self.eval_dataset.wait()  # an error in it ends the run before the first step
        self.reports.phase("training")
        try:
            await super().train()  # type: ignore[misc]
        finally:
            self.train_dataloader.close()

    def handle_dynamic_sampling(
        self, generator_output: GeneratorOutput, uids: list[str]
    ) -> tuple[GeneratorOutput, list[str], bool]:
        """As in SkyRL, but uids name their groups before it selects some, and every selected group has a unique uid.

        In SkyRL 0.3.0, the copies of a group (`replace`) have the same uid, and so do the groups of a prompt that is
        drawn again while a batch is being filled (`filter`). SkyRL then refuses its own batch, because it expects one
        group per uid. SkyRL's main branch would index `trajectory_time_splits`, a dict, by row.
        """
        dict.pop(generator_output, "trajectory_time_splits", None)
        output, uids, keep_sampling = super().handle_dynamic_sampling(  # type: ignore[misc]
            generator_output, _named(generator_output, uids)
        )
        if not keep_sampling:
            uids = list(_one_uid_per_group(uids, self.cfg.generator.n_samples_per_prompt))
        return output, uids, keep_sampling

    def postprocess_generator_output(
        self, generator_output: GeneratorOutput, uids: list[str], *args: Any, **kwargs: Any
    ) -> tuple[GeneratorOutput, list[str]]:
        """As in SkyRL, on uids that name their groups."""
        result: tuple[GeneratorOutput, list[str]] = super().postprocess_generator_output(  # type: ignore[misc]
            generator_output, _named(generator_output, uids), *args, **kwargs
        )
        return result

    def convert_to_training_input(self, generator_output: GeneratorOutput, uids: list[str]) -> TrainingInputBatch:
        """As in SkyRL, with the number of rows of each group in the metadata."""
        batch = super().convert_to_training_input(generator_output, uids)  # type: ignore[misc]
        batch.metadata[_ROWS_OF_GROUPS] = Counter(uid.group_id for uid in uids if isinstance(uid, GroupUid))
        return batch

    def train_critic_and_policy(self, data: TrainingInputBatch) -> Any:
        """As in SkyRL. Once it has returned, the groups are recorded as trained on."""
        rows = data.metadata.pop(_ROWS_OF_GROUPS, {})
        status = super().train_critic_and_policy(data)  # type: ignore[misc]
        writer: DumpWriter | None = self.generator.writer
        if writer is not None:
            writer.submit(
                [
                    TrainedRecord(writer.run_id, writer.attempt, self.global_step, group, count)
                    for group, count in rows.items()
                ]
            )
        return status

    def save_checkpoints(self) -> str:
        """As in SkyRL, after everything that the checkpoint covers has been written to the dump."""
        if self.generator.writer is not None:
            self.generator.writer.flush(self.cfg.rg_dump.dump_ack_timeout)
        path: str = super().save_checkpoints()  # type: ignore[misc]
        self.reports.send("checkpoint", step=self.global_step)
        return path


class RGTrainer(RGTrainerMixin, RayPPOTrainer):
    """SkyRL's synchronous trainer."""

    _loader = TrainLoader


class RGFullyAsyncTrainer(RGTrainerMixin, FullyAsyncRayPPOTrainer):
    """SkyRL's fully-async trainer. It has no callbacks, so it reports its steps itself."""

    _loader = AsyncTrainLoader

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.async_train_dataloader = self.train_dataloader

    def _build_train_dataloader_and_compute_training_steps(self) -> None:
        super()._build_train_dataloader_and_compute_training_steps()
        self.num_steps_per_epoch = len(self.train_dataloader)

    async def _run_training(self, training_input: TrainingInputBatch) -> Any:
        status = await super()._run_training(training_input)
        self.report_step(self.all_metrics)
        return status


def _named(output: GeneratorOutput, uids: Sequence[str]) -> list[str]:
    """The uids of a batch's rows, with the ids of their groups.

    Uids that have them already are kept: SkyRL may have selected rows since, which does not change `trajectory_ids`.
    """
    trajectories = output.get("trajectory_ids")
    if not trajectories or any(isinstance(uid, GroupUid) for uid in uids):
        return list(uids)
    return [trajectory.instance_id for trajectory in trajectories]


def _one_uid_per_group(uids: Sequence[str], size: int) -> Iterator[str]:
    """The uids of blocks of `size` rows, made unique to each block: `17`, then `17#1`, …"""
    seen = Counter[str]()
    for start in range(0, len(uids), size):
        block = uids[start : start + size]
        if copies := seen[block[0]]:
            name = f"{block[0]}#{copies}"
            yield from (GroupUid(name, uid.group_id) if isinstance(uid, GroupUid) else name for uid in block)
        else:
            yield from block
        seen[block[0]] += 1
