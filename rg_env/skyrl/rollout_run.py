"""Rollouts without training on SkyRL's engines: `rg-env collect` and `rg-env eval` with a configuration.

Invariant: the same generator as in training samples, scores and records; there is no optimizer. Each question is asked
once, however often the run is resumed. Runs inside the Ray task.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_sampling_params_for_backend
from skyrl.train.entrypoints.main_generate import EvalOnlyEntrypoint
from skyrl.train.generators.utils import prepare_generator_input

from rg_env.dataset import ENV_CLASS, Example
from rg_env.errors import need
from rg_env.rollouts.plan import Claim, Plan, claim
from rg_env.rollouts.questions import Questions, suite_questions, train_questions
from rg_env.skyrl.config import RGTrainConfig
from rg_env.skyrl.experiment import RGHooks, experiment_class, run_environment
from rg_env.skyrl.generator import RGDumpGenerator
from rg_env.skyrl.rollout_job import RolloutJob
from rg_env.suites.suite import FIXED
from rg_env.terminal.reports import Reports


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
        self._questions, facts = self._make_questions()
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
        self.reports.begin("collecting" if training else "evaluating")
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
            self.reports.step(finished, len(self._questions), counts.take().as_facts())

    def _make_questions(self) -> tuple[Sequence[Example], Mapping[str, Any]]:
        """The questions as examples, and what determines them (`Questions.facts`)."""
        rg, data, job = self.cfg.rg_dump, self.cfg.data, self._job
        if job.groups is not None:
            need(
                not data.train_data, "data.train_data", data.train_data, "collect makes its own questions; leave it out"
            )
            questions: Questions = train_questions(rg, job.groups, **self._prompt_limits())
        elif job.suite == FIXED and data.val_data:
            return self._prompt_dataset(data.val_data), {"files": list(data.val_data)}
        else:
            questions = suite_questions(job.suite, rg, **self._prompt_limits())
        return _Examples(questions), questions.facts


class _Examples(Sequence[Example]):
    """Questions as examples for SkyRL, made on demand."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    def __len__(self) -> int:
        return len(self._questions)

    def __getitem__(self, index: Any) -> Any:
        return self._questions[index].as_example()


def _batches(examples: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(itertools.islice(examples, size)):
        yield batch
