"""Run the generator with a scripted engine: rows in, SkyRL's output and the dump out."""

from __future__ import annotations

import asyncio
import functools

from skyrl.train.config import GeneratorConfig
from skyrl.train.generators.utils import prepare_generator_input
from skyrl.train.utils.trainer_utils import validate_generator_output
from transformers import AutoTokenizer

import rg_env
from rg_env.configuration.config import RGDumpConfig
from rg_env.skyrl.cpu import nano_path
from rg_env.skyrl.generator import RGDumpGenerator
from rg_env.skyrl.train_config import RGSkyRLGymConfig
from tests.skyrl.scripted_engine import ScriptedEngine

SAMPLES = 4
TASK = {"chain_sum": {"weight": 1, "config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}}


@functools.cache
def tokenizer():
    """That of `nano`."""
    return AutoTokenizer.from_pretrained(nano_path())


def oracle(rows):
    return {row["prompt"][-1]["content"]: row["reward_spec"]["ground_truth"] for row in map(rows.row, range(len(rows)))}


def right(answer):
    return f"<think>I add.</think>\n<answer>{answer}</answer>"


def script_for(rows, *responses):
    """Sample n of every prompt answers with `responses[n]`, `{}` standing for the right answer."""
    answers = oracle(rows)

    def script(prompt, number):
        answer = next(a for question, a in answers.items() if question in prompt)
        return responses[number % len(responses)].replace("{}", answer)

    return script


def run(
    rows,
    script,
    *,
    config=None,
    writer=None,
    log_folder=None,
    phase="train",
    step=3,
    generator_class=None,
    samples=SAMPLES,
    **settings,
):
    """One `generate()` call on all of `rows`.

    Args:
        settings: of SkyRL's `generator`.

    Returns:
        SkyRL's output, and the uid of each trajectory.
    """
    rg_env.register()
    generator_cfg = GeneratorConfig(**{"max_input_length": 512, "n_samples_per_prompt": samples, **settings})
    generator_cfg.sampling_params.max_generate_length = 100
    gym = RGSkyRLGymConfig(rg_dump=config or RGDumpConfig())
    kwargs = {} if generator_class else {"writer": writer, "log_folder": log_folder}
    generator = (generator_class or RGDumpGenerator)(
        generator_cfg, gym, ScriptedEngine(tokenizer(), script), tokenizer(), **kwargs
    )
    prompts = rows.collate_fn([rows[i] for i in range(len(rows))])
    batch, uids = prepare_generator_input(prompts, samples, {"logprobs": 1}, "rg_dump", phase, step)
    output = asyncio.run(generator.generate(batch))
    validate_generator_output(
        len(batch["prompts"]), output, step_wise=bool(settings.get("step_wise_trajectories", False))
    )
    return output, uids


def total(reward):
    return sum(reward) if isinstance(reward, list) else reward
