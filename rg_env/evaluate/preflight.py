"""What `rg-env preflight` asks a model: the first training questions of each task, with the settings of the run.

Invariant: questions, prompts, sampling, scores and rewards are those of the run; every response is in a dump. Each part
of the questions is a run of its own in the folder.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.dataset import FIXED_COMPLEXITIES, ReasoningGymDataset, prompt_options
from rg_env.errors import ConfigError, RGEnvError
from rg_env.evaluate.endpoint import RequestLimits, Sampling
from rg_env.evaluate.run import EndpointOptions, Job, run_job
from rg_env.evaluate.server import program_for, start_server
from rg_env.evaluate.suites import Question, Questions
from rg_env.preflight_limits import (
    LEVEL_QUESTIONS,
    LEVEL_SAMPLES,
    LONGER,
    MODEL_SECONDS,
    MOST_QUESTIONS,
    QUESTIONS,
    TRIED_ANSWERS,
)
from rg_env.scoring import shared_scorer
from rg_env.scoring.formatting import canonical
from rg_env.scoring.scorer import reference_answer
from rg_env.tasks import Item

_AT_ONCE = 128
"""Requests at the same time: a batch of the CPU's sampler, and enough to fill an engine."""
_MOST_ROWS = 1_000_000
"""Rows in which the questions of a task are looked for, if its weight is small."""


@dataclass
class Preflight:
    """Asks the questions of one run.

    Attributes:
        config: the settings of the run.
        limits: of its prompts, as in `prompt_options`.
        samples: responses to each question, as in the run.
        folder: gets a folder for each part of the questions.
        batch: questions of a step of the run.
        asked: folder, responses, tokens and seconds of the parts that were asked with the settings of the run.
    """

    config: RGDumpConfig
    limits: Mapping[str, Any]
    options: EndpointOptions
    samples: int
    folder: Path
    batch: int
    asked: list[Path] = field(default_factory=list)
    responses: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._rows = ReasoningGymDataset.train_of(self.config, self.config.size, **self.limits)
        wanted: dict[str, list[int]] = {task.name: [] for task in self._rows.mix.tasks}
        for number in range(_MOST_ROWS):
            numbers = wanted[self._rows.task_of_run(number).name]
            if len(numbers) < MOST_QUESTIONS:
                numbers.append(number)
            elif all(len(numbers) == MOST_QUESTIONS for numbers in wanted.values()):
                break
        self._numbers = wanted

    @property
    def tasks(self) -> list[str]:
        return list(self._numbers)

    def ask(self) -> None:
        """Ask the least number of questions, and as many more as fit into the time."""
        self._ask_with_settings("dumps", 0, QUESTIONS)
        # Fewer more would not narrow the intervals.
        more = int((MODEL_SECONDS - self.seconds) / max(self.seconds / QUESTIONS, 1e-3))
        if more >= QUESTIONS:
            self._ask_with_settings("more", QUESTIONS, min(QUESTIONS + more, MOST_QUESTIONS))

    def _ask_with_settings(self, part: str, first: int, end: int) -> None:
        numbers = [number for of_task in self._numbers.values() for number in of_task[first:end]]
        began = time.monotonic()
        self.asked.append(self._run(part, [self._rows.item_of_run(number) for number in numbers]))
        self.seconds += time.monotonic() - began

    def extrapolated(self) -> tuple[float, float]:
        """Return the seconds that the responses of a step take at this pace, and the tokens that an hour makes."""
        seconds = max(self.seconds, 1e-3)
        return seconds / max(self.responses, 1) * self.batch * self.samples, self.tokens / seconds * 3600

    def ask_longer(self, tasks: Sequence[str]) -> Path | None:
        """Ask the questions of some tasks again, with the longest responses that the model has room for."""
        numbers = [number for task in tasks for number in self._numbers[task][:QUESTIONS]]
        items = [self._rows.item_of_run(number) for number in numbers]
        limit = self.options.sampling.max_tokens
        for factor in LONGER:
            try:
                return self._run(f"length-x{factor}", items, max_tokens=factor * limit)
            except RGEnvError:  # the server refuses so many tokens
                continue
        return None

    def ask_levels(self, tasks: Sequence[str]) -> Path | None:
        """Ask questions of some tasks at all levels, also those whose options the run fixes."""
        items: list[Item] = []
        options = prompt_options(self.config, **self.limits)
        for task in tasks:
            for complexity in FIXED_COMPLEXITIES:
                try:
                    rows = ReasoningGymDataset([task], seed=self.config.seed, **options | {"complexity": complexity})
                    items += [rows.item(number) for number in range(LEVEL_QUESTIONS)]
                except ConfigError:  # its prompts are too long at this level
                    break
        return self._run("levels", items, samples=LEVEL_SAMPLES) if items else None

    def _run(self, part: str, items: Sequence[Item], *, max_tokens: int = 0, samples: int = 0) -> Path:
        """Ask questions, and return the folder of their dump.

        Raises:
            RGEnvError: no response, or the questions could not be asked to the end.
        """
        prompts = self._rows.prompts

        def make(number: int) -> Question:
            return Question(items[number], prompts.messages(items[number].task, items[number].entry["question"]))

        options = self.options
        if max_tokens:
            options = replace(options, sampling=replace(options.sampling, max_tokens=max_tokens))
        config = replace(self.config, dump_dir=str(self.folder / part), experiment_class=None)
        config = replace(config, dump_rollouts=True, dump_failed_rollouts=True, dump_other_rollouts=True)
        facts = {"split": "train", "seed": config.seed, "tasks": config.tasks, "preflight": part}
        job = Job("collect", Questions(facts, len(items), make), samples or self.samples, config, options)
        finished = run_job(job, resume=False)
        if finished.signum is not None or finished.error or not finished.answers.responses:
            raise finished.error or RGEnvError(f"no response: {finished.totals.last_failure or finished.end}")
        if not max_tokens and not samples:
            self.responses += finished.totals.responses
            self.tokens += finished.totals.completion_tokens
        return job.folder

    def try_scorers(self) -> dict[str, str]:
        """Return the tasks whose scorer is wrong about known answers, each with a sentence about one."""
        wrong: dict[str, str] = {}
        for task, numbers in self._numbers.items():
            items = [self._rows.item_of_run(number) for number in numbers[:TRIED_ANSWERS]]
            if sentence := self._try_scorer(items):
                wrong[task] = sentence
        return wrong

    def _try_scorer(self, items: Sequence[Item]) -> str:
        """Return a sentence if most right answers of some items are not solved, or all wrong ones are; else empty."""
        by_kind: dict[bool, list[str]] = defaultdict(list)
        tried: dict[bool, int] = defaultdict(int)
        answers = {canonical(own): own for item in items if (own := reference_answer(item.entry))}
        for item in items:
            own = reference_answer(item.entry)
            others = [answer for key, answer in answers.items() if key != canonical(own)]
            for answer, is_right in ((own, True), (others[0] if others else "", False)):
                if not answer or not own:
                    continue
                tried[is_right] += 1
                scored = shared_scorer(self.config.scorer).score_answer(item.entry, answer, item.config)
                if (scored.score >= self.config.solved_at) != is_right:
                    whose = "its own answer" if is_right else "the answer to another question"
                    by_kind[is_right].append(f"{item.id}: {whose} {answer!r:.60} scores {scored.score:g}")
        if 2 * len(by_kind[True]) > tried[True]:
            return by_kind[True][0]
        # One may be right by chance: some questions have several right answers.
        return by_kind[False][0] if 1 < tried[False] == len(by_kind[False]) else ""


def options_of(cfg: Any, url: str, *, is_own: bool, model: str | None = None, opening: Any = None) -> EndpointOptions:
    """Return how to ask the model of a run, as the run samples in training."""
    params, path = cfg.generator.sampling_params, cfg.trainer.policy.model.path
    request = dict(params.additional_kwargs or {})
    if cfg.generator.chat_template_kwargs:
        request["chat_template_kwargs"] = dict(cfg.generator.chat_template_kwargs)
    # Only what changes something: not every server takes these two.
    for name, neutral in (("top_k", -1), ("min_p", 0.0)):
        if getattr(params, name) != neutral:
            request[name] = getattr(params, name)
    sampling = Sampling(temperature=params.temperature, top_p=params.top_p, max_tokens=params.max_generate_length)
    limits = RequestLimits(concurrency=_AT_ONCE if is_own else None)
    return EndpointOptions(
        url, model or path, Path(path).name, sampling, limits, request=request, opening=opening, is_own=is_own
    )


@contextmanager
def one_engine(cfg: Any) -> Iterator[str]:
    """Serve the policy with one engine of the recipe until the block ends. Yields its address.

    Raises:
        ServerError: it cannot be started.
    """
    engine, program = cfg.generator.inference_engine, program_for(cfg.trainer.policy.model.path)
    options: list[str] = []
    if program.name == "vLLM":
        from transformers import AutoConfig

        room = cfg.trainer.max_prompt_length + cfg.generator.sampling_params.max_generate_length * LONGER[0]
        model = AutoConfig.from_pretrained(cfg.trainer.policy.model.path, trust_remote_code=True).get_text_config()
        room = min(room, getattr(model, "max_position_embeddings", room))
        options += ["--tensor-parallel-size", str(engine.tensor_parallel_size)]
        options += ["--gpu-memory-utilization", str(engine.gpu_memory_utilization), "--max-model-len", str(room)]
    # The server needs an event loop only while it starts and stops; each part of the questions has one of its own.
    with asyncio.Runner() as runner:
        context = start_server(program, options)
        server = runner.run(context.__aenter__())
        try:
            yield server.url
        finally:
            runner.run(context.__aexit__(None, None, None))
