"""SkyRL's trainers, noting what was really trained on.

`generate()` cannot know: dynamic sampling drops and repeats groups after it, the fully-async loop trains on groups
several steps after they were generated, or never.

Invariant: a group is noted for a step once that step's training has returned, with as many rows as the training batch
held of it; rows that SkyRL padded and rows of other environments are not counted. What is trained on is SkyRL's choice
alone. Nothing about a batch is kept on the trainer: rows know their group by their uid (`GroupUid`), and the count
travels in the batch's own metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
from skyrl.train.generators.base import GeneratorOutput
from skyrl.train.trainer import RayPPOTrainer

from rg_env.dump import DumpWriter, TrainedRecord
from rg_env.skyrl.group_uid import GroupUid
from rg_env.skyrl.progress import ProgressSink

_ROWS_OF_GROUPS = "rg_env_rows_of_groups"
"""In a training batch's metadata: group id → rows."""


class NotesTrainedGroups:
    """Mixin in front of one of SkyRL's trainers, whose generator is an `RGDumpGenerator`."""

    generator: Any
    global_step: int
    cfg: Any

    def handle_dynamic_sampling(
        self, generator_output: GeneratorOutput, uids: list[str]
    ) -> tuple[GeneratorOutput, list[str], bool]:
        """SkyRL's own, with groups named before it picks among them, and each pick under a uid of its own after.

        SkyRL 0.3.0 gives the copies of a group (`replace`) its uid, and so does a prompt that comes round again while a
        batch is being filled (`filter`); it then refuses its own batch, in which every uid must stand for one group.
        """
        output, uids, keep_sampling = super().handle_dynamic_sampling(  # type: ignore[misc]
            generator_output, _named(generator_output, uids)
        )
        if not keep_sampling:
            uids = list(_one_uid_per_group(uids, self.cfg.generator.n_samples_per_prompt))
        return output, uids, keep_sampling

    def postprocess_generator_output(
        self, generator_output: GeneratorOutput, uids: list[str], *args: Any, **kwargs: Any
    ) -> tuple[GeneratorOutput, list[str]]:
        """SkyRL's own, on uids that name their groups."""
        result: tuple[GeneratorOutput, list[str]] = super().postprocess_generator_output(  # type: ignore[misc]
            generator_output, _named(generator_output, uids), *args, **kwargs
        )
        return result

    def convert_to_training_input(self, generator_output: GeneratorOutput, uids: list[str]) -> TrainingInputBatch:
        """SkyRL's own, and the rows of each group in the metadata."""
        batch = super().convert_to_training_input(generator_output, uids)  # type: ignore[misc]
        batch.metadata[_ROWS_OF_GROUPS] = Counter(uid.group_id for uid in uids if isinstance(uid, GroupUid))
        return batch

    def train_critic_and_policy(self, data: TrainingInputBatch) -> Any:
        """SkyRL's own; when it has returned, the groups are noted as trained on."""
        rows = data.metadata.pop(_ROWS_OF_GROUPS, {})
        status = super().train_critic_and_policy(data)  # type: ignore[misc]
        writer: DumpWriter | None = self.generator.writer
        if writer is not None:
            writer.submit_trained(
                [
                    TrainedRecord(writer.run_id, writer.attempt, self.global_step, group, count)
                    for group, count in rows.items()
                ]
            )
        return status

    def save_checkpoints(self) -> str:
        """SkyRL's own, once the record has what the checkpoint is going to cover."""
        if self.generator.writer is not None:
            self.generator.writer.flush(self.cfg.rg_dump.dump_ack_timeout)
        path: str = super().save_checkpoints()  # type: ignore[misc]
        return path


class RGTrainer(NotesTrainedGroups, RayPPOTrainer):
    """SkyRL's synchronous trainer."""


class RGFullyAsyncTrainer(NotesTrainedGroups, FullyAsyncRayPPOTrainer):
    """SkyRL's fully-async trainer, which has no callbacks: it tells how far it is by itself.

    Args:
        progress: whom to tell; None for nobody.
        Everything else: as `FullyAsyncRayPPOTrainer`.
    """

    def __init__(self, *args: Any, progress: ProgressSink | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._progress = progress

    async def _run_training(self, training_input: TrainingInputBatch) -> Any:
        status = await super()._run_training(training_input)
        if self._progress is not None:
            self._progress.report(self.global_step, self.total_training_steps or 0, self.all_metrics)
        return status


def _named(output: GeneratorOutput, uids: Sequence[str]) -> list[str]:
    """The uids of a batch's rows, saying which groups they stand for.

    Those that do so already are right: SkyRL may have picked among rows since, and `trajectory_ids` does not follow.
    """
    trajectories = output.get("trajectory_ids")
    if not trajectories or any(isinstance(uid, GroupUid) for uid in uids):
        return list(uids)
    return [trajectory.instance_id for trajectory in trajectories]


def _one_uid_per_group(uids: Sequence[str], size: int) -> Iterator[str]:
    """Blocks of `size` rows, each under a uid that no other block has: `17`, then `17#1`, …"""
    seen = Counter[str]()
    for start in range(0, len(uids), size):
        block = uids[start : start + size]
        if copies := seen[block[0]]:
            name = f"{block[0]}#{copies}"
            yield from (GroupUid(name, uid.group_id) if isinstance(uid, GroupUid) else name for uid in block)
        else:
            yield from block
        seen[block[0]] += 1
