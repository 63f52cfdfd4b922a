"""SkyRL's trainers: `RecordingTrainer` records which groups each step was trained on, for every environment;
`RGTrainer` and `RGFullyAsyncTrainer` also have our train loader and evaluation set, and report their steps.

    class MyTrainer(RecordingTrainer, RayPPOTrainer): ...

`generate()` cannot know what is trained on: dynamic sampling drops and repeats groups later, and the fully-async loop
trains on groups several steps after they were generated, or never.

Invariant: a group is recorded for a step after that step's training has returned, with the number of its rows in the
training batch, without the rows that SkyRL padded. SkyRL alone decides what is trained on. The trainer keeps nothing
about a batch: the generator's output says which group each row is of, and SkyRL selects and joins its lists.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from loguru import logger
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.train.dataset import PromptDataset
from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
from skyrl.train.generators.base import GeneratorOutput
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils.callbacks import CallbackInput, TrainingCallback
from torch.utils.data import DataLoader

from rg_env.base.errors import ConfigError, RGEnvError, describe
from rg_env.configuration.user_code import in_user_code
from rg_env.dump import DumpWriter, GroupRecord, TrainedRecord, close_all
from rg_env.dump.entry import open_run_of
from rg_env.dump.manifest import Attempt, note_in_manifest
from rg_env.dump.schema import RG_DUMP, has_no_signal
from rg_env.rollouts.faults import explain_dead_reward
from rg_env.rollouts.preflight_limits import FIRST_STEPS
from rg_env.rollouts.symptoms import WATCHED, Symptom, collapse, phantoms, read_steps
from rg_env.rows.eval_set import EvalSet
from rg_env.skyrl.canaries import Canaries, first_items
from rg_env.skyrl.combinations import COMPARE_A_GROUP
from rg_env.skyrl.loader import AsyncRows, TrainLoader
from rg_env.skyrl.resumption import checkpoint_to_load, way_on_from
from rg_env.skyrl.sampling import groups_without_signal, uid_of_each_copy, with_zero_rewards
from rg_env.skyrl.steps import numbers_line
from rg_env.skyrl.tally import Tally, is_unsolved, why_every_reward_call_failed, write_over
from rg_env.terminal.reports import Reports

_GROUPS, _MASKED, _REWARDS, _REPETITIONS = "rg_env_groups", "rg_env_masked", "rg_env_rewards", "rg_env_repetitions"
"""Keys of a training batch's metadata: `group_ids`, `masked` and the reward in 64 bits of each row that is not
padded."""
_OVER_THE_BATCH = ("gae", "reinforce++")
"""Estimators that do not compare the rollouts of a group. A user's own is taken to compare them."""
_REASON = 300
"""Most characters shown of what SkyRL or torch says about a checkpoint."""
_NAMED = 5
"""Most groups that a warning names."""


class RecordingTrainer:
    """Mixin in front of a trainer of SkyRL's whose generator is a `Recorder` or an `RGDumpGenerator`."""

    generator: Any
    global_step: int
    cfg: Any
    all_metrics: dict[str, float]

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
        """As in SkyRL, but copies of a group have uids of their own."""
        output, uids, keep_sampling = super().handle_dynamic_sampling(generator_output, uids)  # type: ignore[misc]
        if not keep_sampling:
            uids = uid_of_each_copy(output, uids)
        return output, uids, keep_sampling

    def postprocess_generator_output(
        self, generator_output: Any, uids: list[str], *args: Any, **kwargs: Any
    ) -> tuple[GeneratorOutput, list[str]]:
        """As in SkyRL, but rows that it merges keep their group."""
        # By trajectory: `merge_stepwise_output` of SkyRL 0.4.0 makes new rows, and keeps only lists that it knows.
        lists = [generator_output[key] for key in ("trajectory_ids", "group_ids", "masked")]
        groups = {}
        for trajectory, group, masked in zip(*lists, strict=True):
            groups[trajectory.to_string()] = (group, masked)
        output, uids = super().postprocess_generator_output(generator_output, uids, *args, **kwargs)  # type: ignore[misc]
        if "group_ids" not in output:
            of_rows = [groups[trajectory.to_string()] for trajectory in output["trajectory_ids"]]
            output["group_ids"], output["masked"] = map(list, zip(*of_rows, strict=True))
        return output, uids

    def convert_to_training_input(self, generator_output: Any, uids: list[str]) -> TrainingInputBatch:
        """As in SkyRL, with the group of each row in the metadata."""
        batch = super().convert_to_training_input(generator_output, uids)  # type: ignore[misc]
        # The tensor of rewards, which SkyRL has made, has 32 bits.
        rewards = [sum(of_tokens) for of_tokens in generator_output["rewards"]]
        batch.metadata |= {_GROUPS: generator_output["group_ids"], _MASKED: generator_output["masked"]}
        batch.metadata[_REWARDS] = rewards
        batch.metadata[_REPETITIONS] = [trajectory.repetition_id for trajectory in generator_output["trajectory_ids"]]
        return batch

    def compute_advantages_and_returns(self, data: TrainingInputBatch) -> TrainingInputBatch:
        """As in SkyRL, but masked rows change no other row's advantages, and have none, and the advantages of a group
        whose rewards are equal are exactly 0. SkyRL's metrics of advantages are those of the result.

        Not covered: `advantage_batch_normalize`, for which SkyRL takes the mean over all rows, padding included.
        """
        uids: list[str] = data.metadata["uids"]
        masked: list[bool] = [*data.metadata.pop(_MASKED)]
        rewards: list[float] = [*data.metadata.pop(_REWARDS)]
        padding = len(uids) - len(masked)
        masked += [False] * padding
        rewards += [0.0] * padding
        algorithm = self.cfg.trainer.algorithm
        if algorithm.use_kl_in_reward:  # by now, the penalty is part of what the estimator compares
            rewards = data["rewards"].sum(dim=-1).tolist()
        # An estimator over the whole batch has something to compare with, even for a rollout whose group is masked.
        without_advantage = masked
        if algorithm.advantage_estimator not in _OVER_THE_BATCH:
            without_advantage = self._with_those_not_compared(data, masked, rewards)

        # GRPO, RLOO and MAXRL compare the rewards of equal uids: a masked row gets a uid of its own.
        own_uids = []
        for row, uid in enumerate(uids):
            own_uids.append(f"{uid} masked {row}" if masked[row] else uid)
        # GAE and REINFORCE++ whiten over the response mask, which a masked row still has.
        response_mask = data["response_mask"]
        unmasked = response_mask.clone()
        unmasked[torch.tensor(masked)] = 0
        can_whiten = unmasked.sum() > 1  # SkyRL's `masked_var` raises otherwise

        # A masked rollout may have a reward of NaN (`Recorder`), and NaN times a mask of 0 is still NaN.
        of_tokens = data["rewards"]
        of_tokens[torch.tensor(masked)] = of_tokens[torch.tensor(masked)].nan_to_num(0.0, 0.0, 0.0)

        # Ours hold during SkyRL's computation only: what follows needs the real ids and the whole mask.
        data.metadata["uids"] = own_uids
        data["response_mask"] = seen = unmasked if can_whiten else response_mask
        data = super().compute_advantages_and_returns(data)  # type: ignore[misc]
        data.metadata["uids"], data["response_mask"] = uids, response_mask
        data["advantages"][torch.tensor(without_advantage)] = 0.0
        # SkyRL took these before that, of the rows that are not padded.
        rows = len(uids) - padding
        trained = data["advantages"][:rows][seen[:rows].bool()]
        self.all_metrics["loss/avg_raw_advantages"] = trained.mean().item()
        self.all_metrics["loss/avg_raw_advantages_abs"] = trained.abs().mean().item()
        return data

    def _with_those_not_compared(
        self, data: TrainingInputBatch, masked: Sequence[bool], rewards: Sequence[float]
    ) -> list[bool]:
        """Return the masked rows, and those of a group in which nothing differs that is not masked.

        A single trajectory that is left has nothing to be compared with, and SkyRL would take its reward for the
        advantage. Of equal rewards, the mean in 32 bits may differ in the last bit, and so may the standard deviation
        from 0: GRPO's quotient of both is up to 0.1.
        """
        uids: list[str] = data.metadata["uids"]
        step_wise = self.cfg.generator.step_wise_trajectories
        is_last = data.metadata["is_last_step"] if step_wise else [True] * len(uids)
        with_masked, compared = set[str](), defaultdict[str, list[float]](list)
        for uid, is_masked, last, reward in zip(uids, masked, is_last, rewards, strict=True):
            if is_masked:
                with_masked.add(uid)
            elif last:
                compared[uid].append(reward)
        # An estimator of the user's own may compare with something else than the group.
        compares_groups = self.cfg.trainer.algorithm.advantage_estimator in COMPARE_A_GROUP
        without = set[str]()
        for uid in uids:
            is_alone = uid in with_masked and len(compared[uid]) < 2
            is_equal = compares_groups and len(compared[uid]) > 1 and has_no_signal(compared[uid])
            if is_alone or is_equal:
                without.add(uid)
        return [is_masked or uid in without for uid, is_masked in zip(uids, masked, strict=True)]

    def train_critic_and_policy(self, data: TrainingInputBatch) -> Any:
        """As in SkyRL. Once it has returned, the groups are recorded as trained on."""
        # Taken out, because SkyRL sends the metadata to every worker with the batch.
        group_ids, repetitions = data.metadata.pop(_GROUPS), data.metadata.pop(_REPETITIONS)
        advantages = _last_of_rows(data["advantages"], data["response_mask"])
        status = super().train_critic_and_policy(data)  # type: ignore[misc]
        writer: DumpWriter | None = self.generator.writer
        if writer is not None:
            rows_of = defaultdict[str, list[int]](list)
            for row, group_id in enumerate(group_ids):
                rows_of[group_id].append(row)
            records = []
            for group_id, rows in rows_of.items():
                record = TrainedRecord(
                    writer.run_id,
                    writer.attempt,
                    self.global_step,
                    group_id,
                    len(rows),
                    repetition=[repetitions[row] for row in rows],
                    advantage=[advantages[row] for row in rows],
                )
                records.append(record)
            writer.write_blocking(records)
        return status

    def save_checkpoints(self) -> str:
        """As in SkyRL, after everything that the checkpoint covers has been written to the dump, or the disk failed."""
        writer: DumpWriter | None = self.generator.writer
        if writer is not None:
            writer.write_blocking()  # nothing of its own: it returns when everything handed over before is written
            if groups := writer.missing_groups():
                names = ", ".join(groups[:_NAMED])
                if len(groups) > _NAMED:
                    names += f" and {len(groups) - _NAMED} more"
                logger.error(
                    "dump: the checkpoint of step {} covers groups that are not on disk: {}", self.global_step, names
                )
        path: str = super().save_checkpoints()  # type: ignore[misc]
        return path


def _last_of_rows(of_tokens: torch.Tensor, response_mask: torch.Tensor) -> list[float]:
    """Return the value of each row's last token of a response; 0 for a row without any. Both are [rows, tokens]."""
    last = response_mask.shape[1] - 1 - response_mask.flip(1).argmax(1)
    values = of_tokens.gather(1, last.unsqueeze(1)).squeeze(1) * (response_mask.sum(1) > 0)
    return [float(value) for value in values]


def _groups_of(output: GeneratorOutput) -> list[GroupRecord]:
    """Return the groups that the rows of an output are of, each once."""
    records: Sequence[GroupRecord] = output.get("groups") or ()
    # A dict keeps the order of the rows.
    return list({record.group_id: record for record in records}.values())


# ------------------------------------------------------------------------------------------------ rg_env's own trainers
class RGTrainerMixin(RecordingTrainer):
    """What both trainers have in common. The generator must be an `RGDumpGenerator`."""

    total_training_steps: int
    dynamic_sampling_state: Any
    all_timings: dict[str, float]
    train_dataset: Any
    train_dataloader: TrainLoader
    eval_dataloader: DataLoader[Any] | None
    reports: Reports = Reports()
    _tally: Tally
    """Of the step that is being trained, or was trained last."""
    _drawn: Tally
    """Of all groups that were generated for the next step, with dynamic sampling."""
    _groups_trained = 0
    _phantoms: Counter[str]
    """Of all steps of this attempt, as in `Counts`."""
    _watched: dict[int, dict[str, float | None]]
    """The metrics of each step that tell whether the model has collapsed."""
    _has_collapsed = False
    _reported_step = 0
    _batches_drawn = 0
    """By dynamic sampling, for the next step."""

    def __init__(self, *args: Any, eval_dataset: EvalSet | PromptDataset | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tally, self._drawn = Tally(self.generator.config), Tally(self.generator.config)
        self._phantoms, self._watched = Counter(), {}
        self._canaries = self.generator.canaries = Canaries(self.generator.config, self.generator.rollout_log)
        self.eval_dataset = eval_dataset
        if eval_dataset is not None:  # the processes of SkyRL's loader would make the evaluation set anew
            batch = {"batch_size": self.cfg.trainer.eval_batch_size, "collate_fn": eval_dataset.collate_fn}
            self.eval_dataloader = DataLoader(eval_dataset, **batch)  # type: ignore[arg-type]

    def report_step(self) -> None:
        """Report and log the step that was trained last, once."""
        # Evaluation, log and end of a step all report it, in an order that depends on the loop.
        if self.global_step == self._reported_step:
            return
        self._reported_step = self.global_step
        tally = self._tally
        step, total = self.global_step, self.total_training_steps or 0
        trainer = numbers_line(self.all_metrics)
        seconds = ""
        if "step" in self.all_timings:
            seconds = f"{self.all_timings['step']:.1f} s"
        files = "" if self.generator.writer is None else self.generator.writer.progress
        parts = (f"step {step}/{total}", tally.means_line(), trainer, seconds, tally.groups_line(), files)
        line = " | ".join(filter(None, parts))
        logger.info(line)
        counts = tally.total()
        facts: dict[str, Any] = {"groups": counts.kinds, "scorer": counts.statuses, "trainer": trainer}
        facts["symptoms"] = self._symptoms()  # kind and text of each
        # Once some failed, they are a symptom.
        facts["canaries"] = "" if self._canaries.has_failures else self._canaries.line()
        # A collapse stays a symptom of every later step, but the log needs one warning.
        for symptom in facts["symptoms"]:
            if symptom.kind == "collapse" and not self._has_collapsed:
                self._has_collapsed = True
                logger.warning(str(symptom))
        self.reports.send(line=line, step=step, total=total, **facts, **tally.means)
        self._warn_of_dead_reward()

    def _warn_of_dead_reward(self) -> None:
        """After the first steps, say once why nothing can be learned, if that is so."""
        writer: DumpWriter | None = self.generator.writer
        if self.global_step != FIRST_STEPS or writer is None:
            return
        if dead := explain_dead_reward(writer.folder, writer.run_id, FIRST_STEPS):
            logger.warning(dead)

    def _symptoms(self) -> list[Symptom]:
        """Return what is wrong with the training so far."""
        trained_on = self.generator.config.train_unsolved
        of_groups = phantoms(self._phantoms, self._groups_trained, trained_on=trained_on)
        if of_groups and trained_on:
            of_groups = Symptom("phantoms", f"{of_groups.text}; train_unsolved=false excludes them")
        wrong = None
        if self._canaries.has_failures:
            wrong = Symptom("canaries", self._canaries.line())
        symptoms = (wrong, of_groups, collapse(self._watched, self.total_training_steps or 0))
        return [symptom for symptom in symptoms if symptom]

    async def eval(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As in SkyRL, with the figures of all its groups together. The result is reported."""
        self.report_step()  # SkyRL logs a step after its evaluation
        self.reports.send(doing="evaluating")
        self.generator.take_evaluation()  # drops what is left of one that failed
        metrics: dict[str, float] = await super().eval(*args, **kwargs)  # type: ignore[misc]
        tally = self.generator.take_evaluation()
        write_over(metrics, tally, "eval/all/")
        result = f"after step {self.global_step}: {tally.means_line()}"
        self.reports.send(line=f"evaluation {result}", evaluation=result, doing="training")
        return metrics

    def load_checkpoints(self) -> Any:
        """As in SkyRL. The step from which the run continues is reported.

        Raises:
            RGEnvError: the checkpoint cannot be loaded.
            ConfigError: the checkpoint does not say which rows were trained on. SkyRL only warns, and trains on the
                first rows again.
        """
        self.reports.send(doing="loading the checkpoint")
        try:
            step, *others = super().load_checkpoints()  # type: ignore[misc]
        except Exception as error:
            logger.opt(exception=error).error("the checkpoint cannot be loaded")
            checkpoint = checkpoint_to_load(self.cfg) or ""
            cause = getattr(error, "cause", None) or error  # Ray wraps what a worker raised
            why = describe(cause, _REASON)
            raise RGEnvError(f"{checkpoint} cannot be loaded: {why}; {way_on_from(checkpoint)}") from error
        self.reports.send(doing="training")
        if step and not self.train_dataloader.is_restored:
            raise ConfigError(
                f"the checkpoint of step {step} does not say which rows were trained on: its data.pt is missing, "
                "corrupt or not of rg_env; to start from its weights, export them and name the folder in "
                "trainer.policy.model.path"
            )
        if step:
            # An evaluation before the first step would report this one again, without its numbers.
            self._reported_step = step
            self._read_watched(step)
            self.reports.send(line=f"resumed from step {step}", resumed=step)
        if step and step >= self.total_training_steps:
            logger.warning(
                "the checkpoint is of step {} and this run ends with step {}, so that SkyRL trains one step more or "
                "none; raise trainer.max_training_steps or trainer.epochs",
                step,
                self.total_training_steps,
            )
        return step, *others

    def _read_watched(self, last_step: int) -> None:
        """Take over what earlier attempts recorded, up to the checkpoint: a collapse is a fall from the first steps."""
        writer: DumpWriter | None = self.generator.writer
        if writer is None:
            return
        recorded = read_steps(open_run_of(writer.folder, writer.run_id)).get(writer.run_id, {})
        for step, metrics in recorded.items():
            # Later steps are trained again.
            if step <= last_step:
                self._watched[step] = {name: metrics.get(name) for name in WATCHED}

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
            self.reports.begin("building the evaluation set")
            while not self.eval_dataset.is_made(1.0):
                self.reports.send(progress=self.eval_dataset.progress)
            _ = self.eval_dataset.items  # an error in it ends the run before the first step
        await self._begin_canaries()
        self.reports.send(doing="training", under_way=True)
        writer: DumpWriter | None = self.generator.writer
        if writer is not None:
            total = Attempt(total_steps=self.total_training_steps)
            note_in_manifest(writer.folder, writer.run_id, writer.attempt, total)
        await super().train()

    async def _begin_canaries(self) -> None:
        """Try the verifier of each task, so that canaries fail only if it breaks."""
        self.reports.begin("testing the scorers")
        responses = self.cfg.trainer.train_batch_size * self.cfg.generator.n_samples_per_prompt
        await self._canaries.begin(first_items(self.train_dataset), responses)

    def handle_dynamic_sampling(
        self, generator_output: GeneratorOutput, uids: list[str]
    ) -> tuple[GeneratorOutput, list[str], bool]:
        """As in `RecordingTrainer`. In SkyRL 0.4.0, `filter` stops with an assertion at a batch without any signal, and
        takes equal rewards for different ones where their standard deviation is above 0 in the last bit."""
        groups = _groups_of(generator_output)
        # Otherwise dynamic sampling would drop all of them, because their rewards are equal, and draw again.
        self._stop_if_every_reward_call_failed(groups)
        self._drawn.count(groups)
        self._batches_drawn += 1
        # A group of one has nothing to compare, and SkyRL keeps it.
        if self.cfg.generator.n_samples_per_prompt > 1:
            without_signal = groups_without_signal(generator_output, uids, self.generator.config)
            sampling = self.cfg.trainer.algorithm.dynamic_sampling
            # SkyRL's `filter` would stop here with an assertion: the batch is counted, and the next one drawn.
            if sampling.type == "filter" and without_signal.issuperset(uids):
                self._count_batch_without_signal(sampling.max_sample_batches)
                return generator_output, uids, True
            generator_output = with_zero_rewards(generator_output, uids, without_signal)
        output, uids, keep_sampling = super().handle_dynamic_sampling(generator_output, uids)
        if not keep_sampling:  # the step has its batch
            self._batches_drawn = 0
        return output, uids, keep_sampling

    def postprocess_generator_output(
        self, generator_output: GeneratorOutput, uids: list[str], *args: Any, **kwargs: Any
    ) -> tuple[GeneratorOutput, list[str]]:
        """As in `RecordingTrainer`, unless the user's reward function failed for all groups of the step, or the
        verifier is known to be wrong."""
        self._canaries.stop_if_wrong()
        groups = _groups_of(generator_output)
        self._stop_if_every_reward_call_failed(groups)
        # With dynamic sampling, a step may have drawn more groups than it is trained on, in several calls.
        if self.cfg.trainer.algorithm.dynamic_sampling.type is None:
            self._tally = Tally(self.generator.config, groups)
        else:
            self._tally, self._drawn = self._drawn, Tally(self.generator.config)
        if all(generator_output["masked"]):
            logger.warning("step {}: nothing to learn from, every rollout is kept out of the loss", self.global_step)
        return super().postprocess_generator_output(generator_output, uids, *args, **kwargs)

    def train_critic_and_policy(self, data: TrainingInputBatch) -> Any:
        """As in `RecordingTrainer`. Our metrics are then those of the groups that the record has for the step."""
        status = super().train_critic_and_policy(data)
        write_over(self.all_metrics, self._tally)
        self.all_metrics |= self._canaries.end_step().metrics()
        counts = self._tally.total(RG_DUMP)
        self._groups_trained += counts.groups
        self._phantoms += counts.phantoms
        self._watched[self.global_step] = {name: self.all_metrics.get(name) for name in WATCHED}
        return status

    def flush_pending_metrics(self) -> None:
        """As in SkyRL, of a step that was trained. What an interrupted one has so far is not a step of the record."""
        if self.global_step not in self._watched:
            self.all_metrics, self.all_timings = {}, {}
        super().flush_pending_metrics()  # type: ignore[misc]

    def _stop_if_every_reward_call_failed(self, groups: Sequence[GroupRecord]) -> None:
        if error := why_every_reward_call_failed(groups):
            failed = f"step {self.global_step}: the reward function failed for every group, so nothing can be learned"
            raise RGEnvError(f"{failed}: {error}")

    def _count_batch_without_signal(self, most: int) -> None:
        """Count a batch that SkyRL is not shown."""
        # The dict in which SkyRL counts and collects: its next call goes on from this number.
        state = self.dynamic_sampling_state = self.dynamic_sampling_state or {"sample_batch_count": 0}
        state["sample_batch_count"] += 1
        # As in SkyRL, 0 and -1 mean no limit.
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


class _StepReporter(TrainingCallback):
    def on_log(self, trainer: Any, callback_input: CallbackInput, control: Any) -> None:
        trainer.report_step()

    def on_epoch_end(self, trainer: Any, callback_input: CallbackInput, control: Any) -> None:
        trainer.warn_of_dropped_batches()


class RGTrainer(RGTrainerMixin, RayPPOTrainer):
    """SkyRL's synchronous trainer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_callback(_StepReporter())


class RGFullyAsyncTrainer(RGTrainerMixin, FullyAsyncRayPPOTrainer):
    """SkyRL's fully-async trainer. It has no callbacks, so it reports its steps itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # In place of SkyRL's own, which the constructor has made around the same loader.
        self.async_train_dataloader = AsyncRows(self.train_dataloader)
        self._trained_step = 0
        """The last step that was trained, in this attempt or an earlier one."""
        self._saved_steps: dict[str, int] = {}

    def _build_train_dataloader_and_compute_training_steps(self) -> None:
        super()._build_train_dataloader_and_compute_training_steps()
        # SkyRL divides by the size of a mini-batch here, because its loader has single rows; ours counts steps.
        self.num_steps_per_epoch = len(self.train_dataloader)

    async def _run_training(self, training_input: TrainingInputBatch) -> Any:
        status = await super()._run_training(training_input)
        self._trained_step = self.global_step
        return status

    def _should_keep_group(self, group: Any) -> bool:
        """As in SkyRL, with `sample_full_batch`: a group that `train_unsolved: false` leaves out is replaced, too."""
        config = self.generator.config
        if not config.train_unsolved:
            records = _groups_of(group.generator_output)
            if any(is_unsolved(record, config.solved_at) for record in records):
                return False
        return bool(super()._should_keep_group(group))

    def _profiler_step(self) -> None:
        """SkyRL calls this once a step, when the step's seconds are known."""
        super()._profiler_step()
        self.report_step()

    async def train(self) -> None:
        """As in SkyRL. If a rollout raises, SkyRL ends the process without a word: say why and close the dump first."""
        generate = self.generator.generate

        @functools.wraps(generate)
        async def generate_or_report(*args: Any, **kwargs: Any) -> Any:
            try:
                return await generate(*args, **kwargs)
            except Exception as error:
                # SkyRL calls `os._exit` after this, so no `finally` and no `atexit` would close the dump.
                known = in_user_code(error, self.cfg.rg_dump, self.cfg.trainer.log_path) or error
                reason = str(known) if isinstance(known, RGEnvError) else describe(error)
                self.reports.send(error=reason)
                close_all(f"failed: {reason}")
                raise

        self.generator.generate = generate_or_report
        await super().train()

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
        # SkyRL saves at the last step, and once more at the end.
        if self._saved_steps.get(what) == self._trained_step:
            return f"{self.cfg.trainer.ckpt_path}/global_step_{self._trained_step}"
        # SkyRL 0.4.0's fully-async loop counts on before its final save; folder and file are named by this number.
        counted, self.global_step = self.global_step, self._trained_step
        try:
            return save()
        finally:
            self._saved_steps[what], self.global_step = self._trained_step, counted
