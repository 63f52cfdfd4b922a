"""Rollouts without training on SkyRL's engines: `rg-env collect` and `rg-env eval` with a configuration.

Invariant: the same generator as in training samples, scores and records; there is no optimizer. Each question is asked
once, however often the run is resumed. Runs inside the Ray task.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_sampling_params_for_backend
from skyrl.train.entrypoints.main_generate import EvalOnlyEntrypoint
from skyrl.train.generators.utils import prepare_generator_input

from rg_env.dataset import ENV_CLASS, ReasoningGymDataset
from rg_env.errors import ConfigError
from rg_env.prompts import build_messages
from rg_env.rollouts.plan import Claim, Plan, claim
from rg_env.skyrl.config import RGTrainConfig
from rg_env.skyrl.experiment import RGHooks, experiment_class, run_environment
from rg_env.skyrl.generator import RGDumpGenerator
from rg_env.suites.suite import FIXED, Suite, load_suite
from rg_env.terminal.reports import Reports


@dataclass(frozen=True)
class RolloutJob:
    """What to collect.

    Attributes:
        command: `collect` (phase train) or `eval`.
        folder: of the dump.
        groups: questions of the train split; None for an evaluation.
        suite: of an evaluation.
        step: recorded with every group: the global step of an evaluated checkpoint.
    """

    command: str
    folder: str
    resume: bool
    groups: int | None = None
    suite: str = FIXED
    step: int | None = None


def run_rollouts(cfg: RGTrainConfig, job: RolloutJob, reports: Reports) -> str:
    """Body of the Ray task. Returns the id of the run.

    Raises:
        ConfigError: the dump folder has an unfinished run, or one with other settings.
    """
    with run_environment(cfg, reports):
        experiment = experiment_class(cfg, RolloutExperiment)(cfg)
        experiment.reports = reports
        experiment.prepare(job)
        if not experiment.is_done:
            # Built outside an event loop: SkyRL may run its own loop to build the client.
            asyncio.run(experiment.run(experiment.get_inference_client()))
        return str(experiment.run_id)


class RolloutExperiment(RGHooks, EvalOnlyEntrypoint):
    """SkyRL's entrypoint with engines and without a trainer."""

    def get_eval_dataset(self) -> None:
        """None: `prepare` makes the questions."""

    def prepare(self, job: RolloutJob) -> None:
        """Make the questions, and find the run to continue."""
        self._job = job
        self.cfg.rg_dump.dump_dir = job.folder
        training = job.command == "collect"
        generator = self.cfg.generator
        params = generator.sampling_params if training else generator.eval_sampling_params
        self._samples = generator.n_samples_per_prompt if training else generator.eval_n_samples_per_prompt
        self._params = get_sampling_params_for_backend(generator.inference_engine.backend, params)
        self._questions, facts = self._train_questions() if training else self._suite_questions()
        plan = Plan(
            job.command,
            self.cfg.trainer.policy.model.path if job.step is None else f"step {job.step}",
            len(self._questions),
            self._samples,
            asdict(params),
            facts,
            self.cfg.rg_dump,
        )
        self._claim: Claim = claim(Path(job.folder), plan, resume=job.resume)
        self.recorded = {"plan": plan.facts(), "suite": facts.get("suite")}

    @property
    def run_id(self) -> str:
        return self._claim.run_id

    @property
    def is_done(self) -> bool:
        return len(self._claim.done) >= len(self._questions)

    def _run_identity(self) -> tuple[str, int]:
        return self._claim.run_id, self._claim.attempt

    async def run(self, inference_engine_client: Any) -> None:
        """Generate what is missing, in batches."""
        await inference_engine_client.wake_up()
        generator: RGDumpGenerator = self.get_generator(self.cfg, self.tokenizer, inference_engine_client)
        training = self._job.command == "collect"
        size = self.cfg.trainer.train_batch_size if training else self.cfg.trainer.eval_batch_size
        done = {uid for _, uid in self._claim.done}
        examples = (self._questions[number] for number in range(len(self._questions)))
        missing = (example for example in examples if example[-1] not in done)
        counts = generator.summary if training else generator.evaluated
        finished = len(done)
        self.reports.phase("collecting" if training else "evaluating")
        for batch in _batches(missing, size):
            prompts = [
                {"prompt": messages, "env_class": env_class, "env_extras": extras, "uid": uid}
                for messages, env_class, extras, uid in batch
            ]
            phase = "train" if training else "eval"
            given, _ = prepare_generator_input(
                prompts,
                self._samples,
                self._params,
                ENV_CLASS,
                phase,
                self._job.step,
            )
            await generator.generate(given)
            finished += len(batch)
            facts = counts.take().as_facts()
            self.reports.send("step", step=finished, total=len(self._questions), counts=facts)

    def _train_questions(self) -> tuple[Any, Mapping[str, Any]]:
        rg = self.cfg.rg_dump
        if self.cfg.data.train_data:
            raise ConfigError("data.train_data: collect makes its own questions; leave it out")
        options = self._prompt_options()
        if options["complexity_mode"] == "curriculum":
            raise ConfigError("complexity_mode=curriculum depends on a policy in training; use random or null")
        dataset = ReasoningGymDataset(rg.tasks, size=self._job.groups or 1, seed=rg.seed, split="train", **options)
        return dataset, {"split": "train", "seed": rg.seed, "tasks": rg.tasks}

    def _suite_questions(self) -> tuple[Any, Mapping[str, Any]]:
        rg = self.cfg.rg_dump
        if self._job.suite == FIXED:
            if self.cfg.data.val_data:
                return self._prompt_dataset(self.cfg.data.val_data), {"files": list(self.cfg.data.val_data)}
            suite = load_suite(FIXED, rg)
            dataset = ReasoningGymDataset.fixed_eval(
                rg.tasks, seed=rg.eval_seed, samples_per_task=rg.num_eval_samples_per_task, **self._prompt_options()
            )
            return dataset, {"suite": suite.as_manifest()}
        suite = load_suite(self._job.suite)
        rg.format, rg.system_prompt = suite.format.value, suite.system_prompt
        return _rows(suite), {"suite": suite.as_manifest()}


def _rows(suite: Suite) -> list[Any]:
    """The items of a suite as rows of a dataset."""
    return [
        (
            build_messages(item.entry["question"], item.task, suite.system_prompt),
            ENV_CLASS,
            {"data_source": item.task, "extra_info": item.extra_info()},
            item.id,
        )
        for item in suite.items()
    ]


def _batches(examples: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(itertools.islice(examples, size)):
        yield batch
