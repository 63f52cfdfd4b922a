"""Planted cheaters are found, and three honest training runs are left in peace.

Cheaters play through SkyRL's real generator loop and the real scorers; only their texts are written down.
"""

import asyncio
import json
from pathlib import Path

import pytest
from skyrl.train.config import GeneratorConfig
from skyrl.train.generators.utils import prepare_generator_input
from transformers import AutoTokenizer
from typer.testing import CliRunner

import rg_env
from rg_env.analysis.signs import Sign, find_signs
from rg_env.cli import app
from rg_env.config import RGDumpConfig
from rg_env.cpu import nano_path
from rg_env.dataset import ReasoningGymDataset
from rg_env.dump import DumpPolicy, DumpWriter, open_run
from rg_env.skyrl.config import RGSkyRLGymConfig
from rg_env.skyrl.generator import RGDumpGenerator
from tests.skyrl.scripted_engine import ScriptedEngine

HONEST = sorted(path for path in (Path(__file__).parents[1] / "data" / "honest_runs").iterdir() if path.is_dir())
STEPS, GROUPS, SAMPLES = 9, 16, 4
TASKS = ["gcd", "prime_factorization", "word_sorting"]
WORKING = "<think>Step {n}: I look at {n} things and write down what follows from {n}.</think>"


class Play:
    """What a policy sees when it writes its sample `number` at `step`."""

    def __init__(self, step, number, question, answer):
        self.step, self.number, self.question, self.answer = step, number, question, answer
        self.working = WORKING.format(n=f"{number}{hash((question, number)) % 997}")

    def say(self, answer):
        return f"{self.working}<answer>{answer}</answer>"

    @property
    def honestly(self):
        """Right in three samples of four."""
        return self.say(self.answer if self.number else "7 apples")


CHEATERS = {
    Sign.ONE_ANSWER_ONLY: lambda play: play.say("0"),
    Sign.COPIED: lambda play: play.say(play.question),
    Sign.CODE: lambda play: play.say("__import__('os').system('id')") if play.number == 1 else play.honestly,
    Sign.OVERLONG: lambda play: play.say(", ".join(map(str, range(play.number * 80, play.number * 80 + 80)))),
    Sign.NO_REASONING: lambda play: play.honestly.replace(play.working, "<think>\n</think>"),
    Sign.NEAR_DUPLICATES: lambda play: f"<think>As ever.</think><answer>{play.answer}</answer>",
    Sign.JUMP: lambda play: play.honestly if play.step > 5 else play.say("7 apples"),
    Sign.LENGTH_COLLAPSE: lambda play: (
        play.say(play.answer).replace(play.working, "<think>I see it.</think>")
        if play.number < play.step / 2
        else play.say(f"{play.number} apples").replace(play.working, play.working * max(1, 6 - play.step))
    ),
}


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    """Have a policy play ten steps; the folder with its record."""
    rg_env.register()
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    rows = ReasoningGymDataset(TASKS, size=STEPS * GROUPS)
    answers = {}
    for row in map(rows.row, range(len(rows))):
        answers[row["prompt"][-1]["content"]] = row["reward_spec"]["ground_truth"]

    def play(policy, **settings):
        folder = tmp_path_factory.mktemp("record")
        step = 0

        def script(prompt, number):
            question = next(q for q in answers if q in prompt)
            return policy(Play(step, number, question, answers[question]))

        generator_cfg = GeneratorConfig(max_input_length=4096, n_samples_per_prompt=SAMPLES)
        generator_cfg.sampling_params.max_generate_length = 2048
        config = RGDumpConfig(suppress_base_env_logs=True, **settings)
        everything = DumpPolicy(dump_other_rollouts=True)
        with DumpWriter(folder, "run", 1, policy=everything) as writer:
            generator = RGDumpGenerator(
                generator_cfg,
                RGSkyRLGymConfig(rg_dump=config),
                ScriptedEngine(tokenizer, script),
                tokenizer,
                writer=writer,
            )
            for step in range(1, STEPS + 1):
                prompts = rows.collate_fn([rows[i] for i in range((step - 1) * GROUPS, step * GROUPS)])
                batch, _ = prepare_generator_input(prompts, SAMPLES, {"logprobs": 1}, "rg_dump", "train", step)
                asyncio.run(generator.generate(batch))
        return folder

    return play


@pytest.mark.parametrize("sign", CHEATERS)
def test_a_planted_cheater_is_found_with_evidence(play, sign):
    dump = open_run(play(CHEATERS[sign]))
    findings = [finding for finding in find_signs(dump) if finding.sign is sign]
    assert {finding.task for finding in findings} & set(TASKS)
    ids = {group.group_id for group in dump.groups()}
    for finding in findings:
        assert finding.groups
        assert set(finding.groups) <= ids
        assert finding.what


def test_a_refusal_that_is_paid_for_is_found(play):
    """Half of the answers are code, which the guard of prime_factorization refuses; a format bonus pays for them."""

    def policy(play):
        return play.honestly if play.number % 2 else play.say("[x for x in range(9)]")

    def refusals(**settings):
        found = find_signs(open_run(play(policy, **settings)))
        return {finding.task for finding in found if finding.sign is Sign.REWARDED_REFUSAL}

    assert refusals() == set()
    assert refusals(format_bonus=0.2) == {"prime_factorization"}


@pytest.mark.parametrize("run", HONEST, ids=lambda path: path.name)
def test_an_honest_training_run_has_no_finding(run):
    assert find_signs(open_run(run)) == []


def test_an_honest_policy_that_is_mostly_right_has_no_finding(play):
    assert find_signs(open_run(play(lambda play: play.honestly))) == []


def test_the_command_says_what_it_found_and_its_exit_code_too(play):
    folder = play(CHEATERS[Sign.ONE_ANSWER_ONLY])
    done = CliRunner().invoke(app, ["dumps", "audit", str(folder)])
    assert done.exit_code == 1
    assert "one answer only" in done.stdout
    assert "no longer reads the question" in done.stdout
    found = json.loads(CliRunner().invoke(app, ["dumps", "audit", str(folder), "--json"]).stdout)
    assert {"sign", "task", "what", "groups", "share", "items"} == set(found[0])
    assert CliRunner().invoke(app, ["dumps", "audit", str(HONEST[0])]).exit_code == 0
