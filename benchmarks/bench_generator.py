"""A `generate()` call for 64 prompts with 16 samples each around a stub engine that answers at once, or after 0.25 to
0.75 s: `RGDumpGenerator` with everything on (scoring in the pool, text and ledger of every group written, metrics;
debug logging off), and SkyRL's generator on the same rows and responses. Wall time per trajectory; the responses have
1,000 characters.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import reasoning_gym
import skyrl_gym
from reasoning_gym.utils import extract_answer
from skyrl.train.config import GeneratorConfig
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.generators.utils import prepare_generator_input
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
from transformers import AutoTokenizer

import rg_env
from benchmarks.comparison import Comparison, Goal, Measure, timed
from rg_env import ReasoningGymDataset
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import DumpWriter
from rg_env.scoring import shared_scorer
from rg_env.skyrl.cpu import nano_path
from rg_env.skyrl.generator import RGDumpGenerator
from rg_env.skyrl.train_config import RGSkyRLGymConfig

PROMPTS, SAMPLES = 64, 16
TASKS = ["chain_sum", "gcd", "basic_arithmetic", "spell_backward", "letter_counting", "mini_sudoku", "base_conversion"]
"""Whose scorers take microseconds: the subject is the path of a response, not the tasks' scorers (see `scorer`)."""
IN_PROCESS = "benchmark_in_process"
THOUGHTS = "<think>" + "I add the digits.\n" * 54 + "</think>\n<answer>{}</answer>"


NOTES = (
    "SkyRL takes a thread for three calls of an environment (`max_env_workers`, 32 by default). Ours need none: `step` "
    "waits in SkyRL's event loop for the score, which comes from the scorers' own thread; the other two only return.",
)
LATENCY = 0.5


class InProcessEnv(BaseTextEnv):
    """What a user writes without rg_env: `extract_answer` and `score_answer` in the trainer's process."""

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        assert extras is not None
        self.entry = json.loads(extras["extra_info"]["entry"])

    def step(self, action: str) -> BaseTextEnvStepOutput:
        dataset = _dataset(self.entry["metadata"]["source_dataset"])
        reward = dataset.score_answer(extract_answer(action), self.entry)
        return BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata={})


@cache
def _dataset(task: str) -> Any:
    return reasoning_gym.create_dataset(task, size=1)


class StubEngine:
    """Right in the first half of a group's samples, wrong in the others."""

    weight_version = 1
    model_name = "stub"

    latency = 0.0
    """Mean seconds before an answer; between half and one and a half times that over the samples of a prompt."""

    def __init__(self, tokenizer: Any, answers: dict[str, str]) -> None:
        self._answers = answers
        self._ready = {text: self._response(tokenizer, text) for text in {*answers.values(), "wrong"}}

    @staticmethod
    def _response(tokenizer: Any, answer: str) -> tuple[str, list[int]]:
        text = THOUGHTS.format(answer)
        return text, [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]

    async def generate(self, input_batch: Any, model: str | None = None) -> dict[str, Any]:
        uid, _, number = input_batch["session_ids"][0].rpartition("_")
        await asyncio.sleep(self.latency * (0.5 + int(number) / SAMPLES))
        text, ids = self._ready[self._answers[uid] if int(number) < SAMPLES // 2 else "wrong"]
        return {
            "responses": [text],
            "response_ids": [list(ids)],
            "stop_reasons": ["stop"],
            "response_logprobs": [[-0.5] * len(ids)],
        }

    async def finish_session(self, session_id: str) -> None:
        pass


def comparisons(folder: Path, quick: bool) -> Iterator[Comparison]:
    rg_env.register()
    skyrl_gym.register(id=IN_PROCESS, entry_point=InProcessEnv)
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    rows = ReasoningGymDataset(tasks=TASKS, size=PROMPTS, seed=1)
    prompts = rows.collate_fn([rows[number] for number in range(PROMPTS)])
    answers = {row["uid"]: str(row["env_extras"]["reward_spec"]["ground_truth"]) for row in prompts}
    engine = StubEngine(tokenizer, answers)
    names = itertools.count()

    def ours(threads: int) -> Measure:
        config = RGDumpConfig()
        gym = RGSkyRLGymConfig(rg_dump=config, max_env_workers=threads)

        def measure() -> float:
            with DumpWriter(folder, f"run{next(names)}", 1) as writer:
                generator = RGDumpGenerator(_settings(), gym, engine, tokenizer, writer=writer)
                return _call(generator, prompts, "rg_dump")

        return measure

    def stock(env_class: str, threads: int) -> Measure:
        def measure() -> float:
            gym = RGSkyRLGymConfig(max_env_workers=threads)
            return _call(SkyRLGymGenerator(_settings(), gym, engine, tokenizer), prompts, env_class)

        return measure

    ours(32)()  # starts the scorers and makes them ready
    for threads, env_class, latency, what, goal in (
        (32, "gsm8k", 0.0, "32 threads; SkyRL with its `gsm8k` environment", Goal(ratio=1.5)),
        (32, IN_PROCESS, 0.0, "32 threads; SkyRL with `extract_answer` and `score_answer`", Goal(ratio=1.5)),
        (0, "gsm8k", 0.0, "no threads; SkyRL with its `gsm8k` environment", Goal()),
        (32, "gsm8k", LATENCY, f"32 threads, {LATENCY:g} s of mean latency; SkyRL with `gsm8k`", Goal(ratio=1.1)),
    ):
        engine.latency = latency
        yield Comparison(what, "µs", ours(threads), stock(env_class, threads), "SkyRL's generator", goal=goal)
    shared_scorer(RGDumpConfig().scorer).close()


def _settings() -> GeneratorConfig:
    return GeneratorConfig(max_input_length=512, n_samples_per_prompt=SAMPLES)


def _call(generator: SkyRLGymGenerator, prompts: Any, env_class: str) -> float:
    batch, _ = prepare_generator_input(prompts, SAMPLES, {"logprobs": 1}, env_class, "train", 1)
    batch["env_classes"] = [env_class] * len(batch["env_classes"])
    work: Callable[[], object] = partial(asyncio.run, generator.generate(batch, disable_tqdm=True))
    gc.collect()
    return timed(work, "µs", PROMPTS * SAMPLES)()
