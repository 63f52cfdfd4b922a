"""SkyRL's trainers with our train loader and evaluation set, which report their steps and record what they train on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loguru import logger
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.train.dataset import PromptDataset
from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
from skyrl.train.generators.base import GeneratorOutput
from skyrl.train.trainer import RayPPOTrainer
from torch.utils.data import DataLoader

from rg_env.dataset import EvalSet
from rg_env.errors import ConfigError, RGEnvError
from rg_env.skyrl.group_uid import named
from rg_env.skyrl.loader import AsyncRows, TrainLoader
from rg_env.skyrl.recording import RecordingTrainer
from rg_env.terminal.reports import Reports


class RGTrainerMixin(RecordingTrainer):
    """What both trainers have in common. The generator must be an `RGDumpGenerator`."""

    total_training_steps: int
    dynamic_sampling_state: Any
    all_timings: dict[str, float]
    cfg: Any
    train_dataset: Any
    train_dataloader: TrainLoader
    eval_dataloader: DataLoader[Any] | None
    reports: Reports = Reports()
    _batches_drawn = 0
    """By dynamic sampling, for the next step."""

    def __init__(self, *args: Any, eval_dataset: EvalSet | PromptDataset | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.eval_dataset = eval_dataset
        if eval_dataset is not None:  # the processes of SkyRL's loader would make the evaluation set anew
            batch = {"batch_size": self.cfg.trainer.eval_batch_size, "collate_fn": eval_dataset.collate_fn}
            self.eval_dataloader = DataLoader(eval_dataset, **batch)  # type: ignore[arg-type]

    def report_step(self) -> None:
        """Report and log what has been trained on since the last report, if anything."""
        counts = self.generator.summary.take()
        if not counts.groups:
            return
        step, total = self.global_step, self.total_training_steps or 0
        files = "" if self.generator.writer is None else self.generator.writer.progress
        logger.info("step {}/{} | {} | {}", step, total, counts.line(), files)
        seconds = f"{self.all_timings['step']:.1f} s" if "step" in self.all_timings else ""
        self.reports.step(step, total, counts.as_facts(), seconds, counts.line(), files)
        self.reports.send(files=files)

    async def eval(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As in SkyRL. The result is reported."""
        self.report_step()  # SkyRL logs a step after its evaluation
        self.reports.send(doing="evaluating")
        metrics: dict[str, float] = await super().eval(*args, **kwargs)  # type: ignore[misc]
        counts = self.generator.evaluated.take()
        self.reports.evaluation(self.global_step, counts.as_facts())
        self.reports.send(doing="training")
        return metrics

    def load_checkpoints(self) -> Any:
        """As in SkyRL. The step from which the run continues is reported.

        Raises:
            ConfigError: the checkpoint does not say which rows were trained on. SkyRL only warns, and trains on the
                first rows again.
        """
        loaded = super().load_checkpoints()  # type: ignore[misc]
        if loaded[0] and not self.train_dataloader.is_restored:
            raise ConfigError(
                f"the checkpoint of step {loaded[0]} does not say which rows were trained on, so it is not one of "
                "rg_env; to start from its weights, export them and name the folder in trainer.policy.model.path"
            )
        if loaded[0]:
            self.reports.send(line=f"resumed from step {loaded[0]}", resumed=loaded[0])
        return loaded

    def _build_train_dataloader_and_compute_training_steps(self) -> None:
        """As in SkyRL, with our loader."""
        self.train_dataloader = TrainLoader(self.cfg, self.train_dataset)
        self.total_training_steps = len(self.train_dataloader) * self.cfg.trainer.epochs
        if self.cfg.trainer.max_training_steps is not None:
            self.total_training_steps = min(self.total_training_steps, self.cfg.trainer.max_training_steps)
        logger.info("{} steps, {} in an epoch", self.total_training_steps, len(self.train_dataloader))

    async def train(self) -> None:
        """As in SkyRL, when the evaluation set is there."""
        if isinstance(self.eval_dataset, EvalSet):
            self.reports.begin("making the evaluation set")
            _ = self.eval_dataset.items  # waits; an error in it ends the run before the first step
        self.reports.send(doing="training", under_way=True)
        await super().train()

    def handle_dynamic_sampling(
        self, generator_output: GeneratorOutput, uids: list[str]
    ) -> tuple[GeneratorOutput, list[str], bool]:
        """As in `RecordingTrainer`. In SkyRL 0.4.0, `filter` stops with an assertion at a batch without any signal."""
        self._stop_if_every_reward_call_failed()
        sampling = self.cfg.trainer.algorithm.dynamic_sampling
        self._batches_drawn += 1
        if sampling.type == "filter" and not _has_signal(generator_output, named(generator_output, uids)):
            self._count_batch_without_signal(sampling.max_sample_batches)
            return generator_output, uids, True
        result = super().handle_dynamic_sampling(generator_output, uids)
        if not result[-1]:
            self._batches_drawn = 0
        return result

    def postprocess_generator_output(
        self, generator_output: GeneratorOutput, uids: list[str], *args: Any, **kwargs: Any
    ) -> tuple[GeneratorOutput, list[str]]:
        """As in `RecordingTrainer`, unless the user's reward function failed for all groups."""
        self._stop_if_every_reward_call_failed()
        return super().postprocess_generator_output(generator_output, uids, *args, **kwargs)

    def _stop_if_every_reward_call_failed(self) -> None:
        if self.generator.summary.every_reward_call_failed:
            failed = f"step {self.global_step}: the reward function failed for every group, so nothing can be learned"
            raise RGEnvError(f"{failed}: {min(self.generator.reward_errors)}")

    def _count_batch_without_signal(self, most: int) -> None:
        """Count a batch that SkyRL is not shown."""
        state = self.dynamic_sampling_state = self.dynamic_sampling_state or {"sample_batch_count": 0}
        state["sample_batch_count"] += 1
        if 0 < most <= state["sample_batch_count"]:
            raise RGEnvError(
                f"trainer.algorithm.dynamic_sampling.max_sample_batches={most}: that many batches did not have enough "
                "groups with different rewards; draw easier or harder tasks, or raise the limit"
            )

    def warn_of_dropped_batches(self) -> None:
        """At the end of an epoch, SkyRL drops the rollouts that dynamic sampling has collected for the next step."""
        if self._batches_drawn:
            logger.warning(
                "the epoch ended before dynamic sampling had a batch for step {}: its {} generated batches are not "
                "trained on. With more rows in an epoch, or tasks that are neither too easy nor too hard, less is lost",
                self.global_step,
                self._batches_drawn,
            )
            self._batches_drawn = 0

    def save_checkpoints(self) -> str:
        """As in `RecordingTrainer`. The checkpoint is reported."""
        path = super().save_checkpoints()
        self.reports.send(checkpoint=self.global_step)
        return path


class RGTrainer(RGTrainerMixin, RayPPOTrainer):
    """SkyRL's synchronous trainer."""


class RGFullyAsyncTrainer(RGTrainerMixin, FullyAsyncRayPPOTrainer):
    """SkyRL's fully-async trainer. It has no callbacks, so it reports its steps itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.async_train_dataloader = AsyncRows(self.train_dataloader)
        self._trained_step = 0
        """The last step that was trained, in this attempt or an earlier one."""
        self._saved_steps: dict[str, int] = {}

    def _build_train_dataloader_and_compute_training_steps(self) -> None:
        super()._build_train_dataloader_and_compute_training_steps()
        self.num_steps_per_epoch = len(self.train_dataloader)

    async def _run_training(self, training_input: TrainingInputBatch) -> Any:
        status = await super()._run_training(training_input)
        self._trained_step = self.global_step
        self.report_step()
        return status

    def load_checkpoints(self) -> Any:
        loaded = super().load_checkpoints()
        self._trained_step = self._saved_steps["checkpoint"] = loaded[0]
        return loaded

    def save_checkpoints(self) -> str:
        """As of the step that was trained last: SkyRL counts on before its final save. Once for each step."""
        return str(self._save("checkpoint", super().save_checkpoints))

    def save_models(self) -> None:
        """As `save_checkpoints`."""
        self._save("model", super().save_models)

    def _save(self, what: str, save: Callable[[], Any]) -> Any:
        if self._saved_steps.get(what) == self._trained_step:
            return f"{self.cfg.trainer.ckpt_path}/global_step_{self._trained_step}"
        counted, self.global_step = self.global_step, self._trained_step
        try:
            return save()
        finally:
            self._saved_steps[what], self.global_step = self._trained_step, counted


def _has_signal(output: GeneratorOutput, uids: list[str]) -> bool:
    """Whether any group has different rewards; a group of one always counts, as in SkyRL."""
    rewards = [sum(reward) if isinstance(reward, list) else reward for reward in output["rewards"]]
    seen: dict[str, list[float]] = {}
    for uid, reward in zip(uids, rewards, strict=True):
        seen.setdefault(uid, []).append(reward)
    return any(len(group) == 1 or max(group) > min(group) for group in seen.values())
