"""Canaries in SkyRL's loops: a broken verifier is found within two steps, and a sound run stays what it was."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import replace

import msgspec
import pytest
from loguru import logger
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator

from rg_env.base.errors import RGEnvError
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import open_run
from rg_env.rollouts.symptoms import CANARIES, CANARY_FAILURES, RIGHT_UNSOLVED, WRONG_SOLVED
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.scoring.scorer import Scorer
from rg_env.scoring.types import AnswerScore, Status
from rg_env.skyrl import canaries
from rg_env.skyrl.canaries import Canaries
from rg_env.skyrl.generator import RGDumpGenerator
from rg_env.skyrl.steps import StepTracking
from rg_env.tasks import Split
from rg_env.tasks.question_file import parse_file
from rg_env.tasks.question_rows import read_rows
from rg_env.tasks.questions import entry_of
from tests.skyrl import scripted_training
from tests.skyrl.generating import right, run, script_for
from tests.skyrl.scripted_training import BATCH, FULLY_ASYNC, SAMPLES, TASK, Script, Told, build, train

RG = "environment__skyrl_gym__rg_dump__"
SAMPLING = "trainer__algorithm__dynamic_sampling__"
RESPONSES = BATCH * SAMPLES
LOOPS = {
    "plain": {},
    "files of rows": {},
    "filter": {f"{SAMPLING}type": "filter", f"{RG}size": 8 * BATCH},
    "fully async": FULLY_ASYNC,
}
score = Scorer._score
OK = AnswerScore(1.0, 1.0, 1.0, Status.OK)


def warnings_of() -> list[str]:
    """What is logged from now on. To be called when the trainer is built, because SkyRL removes all sinks before."""
    lines: list[str] = []
    logger.add(lines.append, level="WARNING", format="{message}")
    return lines


def metrics_of(trainer) -> list[dict[str, float]]:
    """Trains to the end. Returns what the tracker got of each step."""
    logged = []
    trainer.tracker.log = lambda data, **_: logged.append(dict(data))
    trainer.reports = Told()
    train(trainer)
    return [step for step in logged if CANARIES in step]


@pytest.mark.parametrize("loop", LOOPS)
def test_every_loop_has_a_canary_for_each_response_of_a_small_step(tmp_path, loop):
    more = {f"{RG}size": 4 * BATCH, **LOOPS[loop]}
    if loop == "files of rows":
        ReasoningGymDataset(TASK, size=4 * BATCH, seed=42).to_parquet(tmp_path / "rows.parquet")
        more["data__train_data"] = f"[{tmp_path}/rows.parquet]"
    trainer = build(tmp_path, **more)
    warnings = warnings_of()
    steps = metrics_of(trainer)
    generated = len(list(open_run(tmp_path / "dumps").ledger())) * SAMPLES
    assert steps
    assert [step[CANARY_FAILURES] for step in steps] == [0.0] * len(steps)
    total = trainer.generator.canaries._total
    assert total.scored == sum(step[CANARIES] for step in steps)
    # Rollouts that no step was trained on may be left at the end.
    left = trainer.generator.canaries._step.scored
    assert total.scored + left == generated
    right, wrong = trainer.generator.canaries._sent[::-1]
    assert abs(right - wrong) <= 1
    last = [facts for facts in trainer.reports.sent if "symptoms" in facts][-1]
    assert last["canaries"] == f"{total.scored} answers of known score, all as they should be"
    assert not [line for line in warnings if "canar" in line]


@pytest.mark.parametrize(("responses", "expected"), [(64, 32), (40, 32), (1000, 32)])
def test_a_large_step_has_sixteen_right_and_sixteen_wrong_ones(responses, expected):
    rows = ReasoningGymDataset(TASK, size=responses)
    some = Canaries(RGDumpConfig())
    some._responses_per_step = responses
    sent = []
    for index in range(responses):
        item = rows.item(index)
        sent.append(some._next(item, "<think>so</think><answer>8</answer>"))
    made = [canary for canary in sent if canary is not None]
    assert len(made) == expected
    assert sum(canary.is_right for canary in made) == expected // 2
    for canary in made:
        assert canary.text == f"<think>so</think><answer>{canary.answer}</answer>"
        assert (canary.answer == canary.item.entry["answer"]) == canary.is_right


def test_a_response_without_the_format_becomes_the_thought_of_a_canary():
    config = RGDumpConfig()
    text = canaries._with_answer("first <answer>then</think> more", "7", config)
    assert text == "<think>first then more</think><answer>7</answer>"
    prefilled = replace(config, prefilled_think=True)
    assert canaries._with_answer("no end", "7", prefilled) == "no end</think><answer>7</answer>"
    assert canaries._with_answer("no end", "<answer>", config) is None


def test_no_wrong_canary_of_a_file_is_right_in_another_notation(tmp_path):
    rows = [
        {"question": "3/6?", "answer": "0.5", "kind": "number"},
        {"question": "Half?", "answer": ["1/2", "50%"], "kind": "exact"},
        {"question": "Which?\nA) cat\nB) dog", "answer": "dog", "kind": "choice"},
        {"question": "Whose?\nA) dog's\nB) cat's", "answer": "B", "kind": "choice"},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = parse_file("mine", {"path": str(path), "scorer": "{kind}"})
    items = {}
    for row in read_rows("mine", file, Split.TRAIN).rows:
        items[row.number] = replace(ReasoningGymDataset(TASK, size=1).item(0), entry=entry_of("mine", file, row))
    some = Canaries(RGDumpConfig())

    def other(number, *answers):
        some._answers.clear()
        for answer in answers:
            some._remember(items[number].task, answer)
        return some._other_answer(items[number])

    assert other(1, "0.25", "1/2", "0.5", "50%") == "0.25"
    assert other(2, "50%", "0.5") is None
    assert other(3, "A", "B", "dog") == "A"
    assert other(4, "A", "dog's", "B", "cat's") == "A"


def test_skyrls_own_generate_has_none():
    """`make gpu-check` compares with it."""

    class Alone(RGDumpGenerator):
        async def generate(self, batch, disable_tqdm=False):
            self.canaries = Canaries(self.config)
            self.canaries._responses_per_step = SAMPLES
            output = await SkyRLGymGenerator.generate(self, batch, disable_tqdm)
            assert self.canaries._sent == [0, 0]
            return output

    rows = ReasoningGymDataset(TASK, size=2)
    output, _ = run(rows, script_for(rows, right("{}")), samples=SAMPLES, generator_class=Alone)
    assert len(output["rewards"]) == 2 * SAMPLES


async def pay_all(self, entry, answer, config):
    return OK


async def pay_nothing(self, entry, answer, config):
    return replace(await score(self, entry, answer, config), score=0.0)


def shifted():
    """Every answer gets the score of the one before it."""
    kept = [AnswerScore(0.0, 0.0, 0.0, Status.OK)]

    async def shift(self, entry, answer, config):
        kept.append(await score(self, entry, answer, config))
        return kept.pop(0)

    return shift


def a_fifth():
    """Every fifth answer scores nothing."""
    count = [0]

    async def lose(self, entry, answer, config):
        count[0] += 1
        return await (pay_nothing if count[0] % 5 == 0 else score)(self, entry, answer, config)

    return lose


FAULTS = {
    "pays all": (lambda: pay_all, WRONG_SOLVED),
    "pays nothing": (lambda: pay_nothing, RIGHT_UNSOLVED),
    "shifted": (shifted, RIGHT_UNSOLVED),
    "loses a fifth": (a_fifth, RIGHT_UNSOLVED),
}


def break_at(monkeypatch, step, make):
    """Break the verifier from a step on, after the trial of the tasks."""
    train_step = scripted_training.SyncTrainer.train_critic_and_policy

    def then_break(self, data):
        status = train_step(self, data)
        if self.global_step == step - 1:
            monkeypatch.setattr(Scorer, "_score", make())
        return status

    monkeypatch.setattr(scripted_training.SyncTrainer, "train_critic_and_policy", then_break)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_verifier_that_breaks_is_found_within_two_steps(tmp_path, monkeypatch, fault):
    make, counted = FAULTS[fault]
    break_at(monkeypatch, 2, make)
    trainer = build(tmp_path, **{f"{RG}size": 3 * BATCH})
    warnings = warnings_of()
    steps = metrics_of(trainer)
    assert steps[0][CANARY_FAILURES] == 0
    assert steps[1][counted] + steps[2][counted] > 0
    assert any(line.startswith("canary: chain_sum") for line in warnings)
    last = [facts for facts in trainer.reports.sent if "symptoms" in facts][-1]
    assert str(last["symptoms"][0]).startswith("canaries: the verifier is wrong about ")
    assert last["canaries"] == ""


def test_the_record_has_the_counts_of_each_step(tmp_path, monkeypatch):
    break_at(monkeypatch, 2, lambda: pay_all)
    trainer = build(tmp_path)
    trainer.tracker = StepTracking(trainer.tracker, trainer.generator.writer)
    train(trainer)
    dump = open_run(tmp_path / "dumps")
    steps = [dict(zip(record.name, record.value, strict=True)) for record in dump.steps()]
    assert [(step[CANARIES], step[WRONG_SOLVED]) for step in steps] == [(RESPONSES, 0), (RESPONSES, RESPONSES / 2)]


@pytest.mark.parametrize("stops", [True, False])
def test_a_run_ends_after_twenty_steps_if_the_setting_says_so(tmp_path, monkeypatch, stops):
    break_at(monkeypatch, 2, lambda: pay_all)
    trainer = build(tmp_path, **{f"{RG}size": 22 * BATCH, f"{RG}stop_on_canaries": stops})
    if stops:
        with pytest.raises(RGEnvError, match=r"wrong about 48% of the known answers of the last 20 steps"):
            train(trainer)
        assert len(trainer.given) == 20
    else:
        train(trainer)
        assert len(trainer.given) == 22


def test_a_task_whose_own_answer_fails_is_said_and_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(Scorer, "_score", pay_nothing)
    trainer = build(tmp_path / "warned")
    warnings = warnings_of()
    assert metrics_of(trainer) == []
    (line,) = warnings
    assert ": its own answer " in line
    assert line.endswith("so canaries leave chain_sum out\n")
    with pytest.raises(RGEnvError, match="stop_on_canaries: no task of this run scores"):
        train(build(tmp_path / "stopped", **{f"{RG}stop_on_canaries": True}))


def test_a_run_whose_scorer_fails_for_every_task_ends_before_the_first_step(tmp_path, monkeypatch):
    async def fail(self, entry, answer, config):
        return AnswerScore.without_score(Status.ERROR, "no scorer for chain_sum: nothing is installed")

    monkeypatch.setattr(Scorer, "_score", fail)
    trainer = build(tmp_path)
    with pytest.raises(RGEnvError, match=r"the scorer fails for every task of this run: .*nothing is installed"):
        train(trainer)
    assert not trainer.given


def test_a_scorer_without_a_core_is_no_failure(tmp_path, monkeypatch):
    async def starve(self, entry, answer, config):
        return AnswerScore.without_score(Status.TIMEOUT, "no core", excused=True)

    break_at(monkeypatch, 2, lambda: starve)
    trainer = build(tmp_path)
    warnings = warnings_of()
    (first,) = metrics_of(trainer)
    assert first[CANARY_FAILURES] == 0
    assert not [line for line in warnings if "canary" in line]


class Pure(Script):
    """Its responses do not depend on the order in which they are asked for."""

    def __call__(self, prompt, sample):
        return re.sub(
            "[0-9]+</think>", f"{zlib.crc32(prompt.encode())} {sample}</think>", super().__call__(prompt, sample)
        )


def test_groups_rewards_and_seeds_are_those_of_a_run_without_canaries(tmp_path, monkeypatch):
    def records(folder):
        trainer = build(folder, **{f"{RG}size": 3 * BATCH})
        train(trainer)
        groups = {}
        for group in open_run(folder / "dumps").groups():
            timeless = dict.fromkeys(("started_at", "ended_at", "generation_seconds", "scoring_seconds"))
            groups[group.group_id] = msgspec.structs.replace(group, **timeless)
        return groups, trainer.given, trainer.advantages, trainer.generator.canaries._total.scored

    monkeypatch.setattr(scripted_training, "Script", Pure)
    *with_canaries, scored = records(tmp_path / "with")
    monkeypatch.setattr(Canaries, "_next", lambda *_: None)
    *without, none = records(tmp_path / "without")
    for one, other in zip(with_canaries, without, strict=True):
        assert one == other
    assert (scored, none) == (3 * RESPONSES, 0)
