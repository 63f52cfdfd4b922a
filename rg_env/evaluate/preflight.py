"""What `rg-env preflight` asks a model: the first training questions of each task, with the settings of the run.

Invariant: questions, prompts, sampling, scores and rewards are those of the run; every response is in a dump. Each part
of the questions is a run of its own in the folder.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from rg_env.base.errors import ConfigError, RGEnvError, describe
from rg_env.configuration.config import RGDumpConfig
from rg_env.evaluate.endpoint import Reply, Sampling
from rg_env.evaluate.job import EndpointOptions, Job
from rg_env.evaluate.outcome import Finished
from rg_env.evaluate.run import run_job
from rg_env.evaluate.suites import Question, Questions
from rg_env.rollouts import preflight_limits as limits
from rg_env.rows.dataset import ReasoningGymDataset, prompt_options
from rg_env.rows.item_source import FIXED_COMPLEXITIES
from rg_env.scoring import shared_scorer
from rg_env.scoring.formatting import canonical
from rg_env.scoring.scorer import reference_answer
from rg_env.tasks import Item

_MOST_ROWS = 1_000_000
"""Rows in which the questions of a task are looked for, if its weight is small."""


class StoppedError(RGEnvError):
    """A signal stopped the requests. The exit code is the signal's, as shells have it."""

    def __init__(self, finished: Finished) -> None:
        super().__init__(finished.end)
        self.exit_code = finished.exit_code


@dataclass
class Preflight:
    """Asks the questions of one run.

    Attributes:
        config: the settings of the run.
        prompt_limits: of its prompts, as in `prompt_options`.
        samples: responses to each question, as in the run.
        folder: gets a folder for each part of the questions.
        batch: questions of a step of the run.
        asked: the dumps of what was asked with the settings of the run; `responses`, `tokens`, `seconds`: their sums.
    """

    config: RGDumpConfig
    prompt_limits: Mapping[str, Any]
    options: EndpointOptions
    samples: int
    folder: Path
    batch: int
    asked: list[Path] = field(default_factory=list)
    responses: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._rows = ReasoningGymDataset.train_of(self.config, self.config.size, **self.prompt_limits)
        wanted: dict[str, list[int]] = {task.name: [] for task in self._rows.mix.tasks}
        lacking = set(wanted)
        for number in range(_MOST_ROWS):
            task = self._rows.task_of_run(number).name
            wanted[task].append(number)
            if len(wanted[task]) == limits.MOST_QUESTIONS:
                lacking.discard(task)
            if not lacking:
                break
        self._wanted = wanted

    def _items(self, task: str, first: int, end: int) -> list[Item]:
        return [self._rows.item_of_run(number) for number in self._wanted[task][first:end]]

    def ask(self) -> None:
        """Ask the least number of questions, and as many more as fit into the time."""
        self._ask_with_settings("dumps", 0, limits.QUESTIONS)
        more = int((limits.MODEL_SECONDS - self.seconds) / max(self.seconds / limits.QUESTIONS, 1e-3))
        end = min(limits.QUESTIONS + more, limits.MOST_QUESTIONS)
        # Fewer more would not narrow the intervals.
        if end >= 2 * limits.QUESTIONS:
            self._ask_with_settings("more", limits.QUESTIONS, end)

    def _ask_with_settings(self, part: str, first: int, end: int) -> None:
        items: list[Item] = []
        for task in self._wanted:
            items += self._items(task, first, end)
        began = time.monotonic()
        self.asked.append(self._run(part, items, self.samples, self.options.sampling.max_tokens, is_counted=True))
        self.seconds += time.monotonic() - began

    def ask_longer(self, tasks: Sequence[str]) -> Path | None:
        """Ask the questions of some tasks again, with the longest responses that the model has room for; None if it
        refuses all of `LONGER`. Raises StoppedError."""
        items: list[Item] = []
        for task in tasks:
            items += self._items(task, 0, limits.QUESTIONS)
        if not items:
            return None
        for factor in limits.LONGER:
            try:
                longest = factor * self.options.sampling.max_tokens
                return self._run(f"length-x{factor}", items, self.samples, longest)
            except StoppedError:
                raise
            except RGEnvError:  # the server refuses responses of this length
                continue
        return None

    def ask_levels(self, tasks: Sequence[str]) -> Path | None:
        """Ask questions of some tasks at all levels, also those whose options the run fixes."""
        items: list[Item] = []
        options = prompt_options(self.config, **self.prompt_limits)
        for task in tasks:
            for complexity in FIXED_COMPLEXITIES:
                try:
                    rows = ReasoningGymDataset([task], seed=self.config.seed, **options | {"complexity": complexity})
                    items += [rows.item(number) for number in range(limits.LEVEL_QUESTIONS)]
                except ConfigError:  # its prompts are too long at this level
                    break
        if not items:
            return None
        return self._run("levels", items, limits.LEVEL_SAMPLES, self.options.sampling.max_tokens)

    def _run(
        self, part: str, items: Sequence[Item], samples: int, max_tokens: int, *, is_counted: bool = False
    ) -> Path:
        """Ask questions, and return the folder of their dump.

        Raises:
            StoppedError: by a signal. RGEnvError: no response, or the questions could not be asked to the end.
        """
        prompts = self._rows.prompts

        def make(number: int) -> Question:
            return Question(items[number], prompts.messages(items[number].task, items[number].entry["question"]))

        options = replace(self.options, sampling=replace(self.options.sampling, max_tokens=max_tokens))
        config = replace(self.config, dump_dir=str(self.folder / part), experiment_class=None)
        # Whatever the run keeps, all texts are needed here.
        config = replace(config, dump_rollouts=True, dump_failed_rollouts=True, dump_other_rollouts=True)
        facts = {"split": "train", "seed": config.seed, "tasks": config.tasks, "preflight": part}
        job = Job("collect", Questions(facts, len(items), make), samples, config, options)
        finished = run_job(job, resume=False)
        if finished.signum is not None:
            raise StoppedError(finished)
        if finished.error or not finished.answers.responses:
            raise finished.error or RGEnvError(f"no response: {finished.totals.last_failure or finished.end}")
        if is_counted:
            self.responses += finished.totals.responses
            self.tokens += finished.totals.completion_tokens
        return job.folder

    def try_scorers(self) -> dict[str, str]:
        """Return the tasks whose scorer is wrong about known answers, each with a sentence about one.

        That is if most right answers are not solved, or all wrong ones are: some questions have several right answers.
        """
        wrong: dict[str, str] = {}
        for task in self._wanted:
            known = []
            for item in self._items(task, 0, limits.TRIED_ANSWERS):
                if own := reference_answer(item.entry):
                    known.append((item, own))
            others = [
                (item, other) for (item, own), (_, other) in pairwise(known) if canonical(own) != canonical(other)
            ]
            unsolved = [(item, own) for item, own in known if not self._is_solved(item, own)]
            solved = [(item, other) for item, other in others if self._is_solved(item, other)]
            if 2 * len(unsolved) > len(known):
                wrong[task] = f"{unsolved[0][0].id}: its own answer {unsolved[0][1]!r:.60} is not solved"
            elif 1 < len(others) == len(solved):
                wrong[task] = f"{solved[0][0].id}: the answer to another question, {solved[0][1]!r:.60}, is solved"
        return wrong

    def _is_solved(self, item: Item, answer: str) -> bool:
        scored = shared_scorer(self.config.scorer).score_answer(item.entry, answer, item.config)
        return scored.score >= self.config.solved_at


@dataclass(frozen=True)
class LocalModel:
    """Responds with a policy of this process.

    A prompt is rendered and a response is sampled and decoded as in a run on the CPU. A prompt that does not fit is a
    failure of its request.

    Attributes:
        client: a `rg_env.skyrl.cpu.client.CPUInferenceClient`.
        template_options: of `apply_chat_template`.
        request: further sampling parameters, with vLLM's names.
    """

    client: Any
    tokenizer: Any
    template_options: Mapping[str, Any]
    sampling: Sampling
    request: Mapping[str, Any]
    url: str = "the CPU's sampler"

    async def respond(self, messages: Sequence[Mapping[str, str]]) -> Reply:
        """Sample one response."""
        prompt = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False, **self.template_options
        )
        sampling = self.sampling
        params = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature, "top_p": sampling.top_p}
        try:
            output = await self.client.generate(
                {"prompt_token_ids": [prompt], "sampling_params": {**params, **self.request}}
            )
        except Exception as error:  # as of a server: the request failed
            return Reply(failure=describe(error))
        length = len(output["response_ids"][0])
        return Reply(output["responses"][0], output["stop_reasons"][0], len(prompt), length)
