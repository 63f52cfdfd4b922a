"""Every figure of ours is that of the record: tracker, terminal and steps file, in every loop that SkyRL has.

The ledger is counted a second time here, in plain Python, and knows nothing of `rg_env.skyrl.tally`.
"""

import math
import re
from collections import Counter, defaultdict

import pytest
from skyrl.train.utils.tracking import Tracking
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rg_env.dump import open_run
from rg_env.rollouts import judge
from rg_env.scoring.types import AnswerScore, Status, Verdict, Violation
from rg_env.skyrl.steps import StepTracking
from tests.skyrl import scripted_training
from tests.skyrl.scripted_training import BATCH, FULLY_ASYNC, TASK, Script, Told, build, train

RG = "environment__skyrl_gym__rg_dump__"
SOLVED_AT = 0.99
LOOPS = {
    "plain": {},
    "step-wise": {"generator__step_wise_trajectories": True, "generator__merge_stepwise_output": True},
    "filter": {"trainer__algorithm__dynamic_sampling__type": "filter", f"{RG}size": 5 * BATCH},
    "replace": {
        "trainer__algorithm__dynamic_sampling__type": "replace",
        "trainer__algorithm__dynamic_sampling__min_replace_ratio": 0.1,
    },
    "fully async": FULLY_ASYNC,
    "fully async, full batches": {
        **FULLY_ASYNC,
        "trainer__fully_async__sample_full_batch": True,
        "trainer__algorithm__zero_variance_filter": True,
        f"{RG}size": 5 * BATCH,
    },
}
EVALUATED = 5
"""Items of each of two tasks, which batches of 4 do not divide."""


class MixedScript(Script):
    """Some responses are wrong, or violate the format in one of three ways."""

    def __call__(self, prompt, sample):
        text = super().__call__(prompt, sample)
        number = int(re.search(r"\d+", text)[0])
        if number % 7 == 3:
            return text.replace("<think>", "")
        if number % 11 == 5:
            return f"{text}<answer>2</answer>"
        return text


def mean(values):
    return math.fsum(values) / len(values)


def shares(rollouts, prefix, *, with_zeros):
    """Means over the responses of a task, or of all."""
    values = {
        "base_score": mean([rollout.base_score for rollout in rollouts]),
        "solved": mean([rollout.base_score >= SOLVED_AT for rollout in rollouts]),
        "well_formed": mean([not rollout.violation for rollout in rollouts]),
    }
    rare = {"normalized": mean([rollout.normalized for rollout in rollouts])}
    rare |= {f"violation_{name}": mean([r.violation == name for r in rollouts]) for name in Violation}
    trained_on = [name for name in Status if name not in ("ok", "no_response", "unscored")]
    rare |= {f"status_{name}": mean([r.status == name for r in rollouts]) for name in trained_on}
    values |= {name: value for name, value in rare.items() if value or with_zeros}
    return {f"{prefix}/mean_{name}": value for name, value in values.items()}


def is_phantom(group):
    unmasked = [rollout for rollout in group.rollouts if not rollout.masked]
    unsolved = all(rollout.base_score < SOLVED_AT for rollout in unmasked)
    return unsolved and len({rollout.reward for rollout in unmasked}) > 1


def recount(groups, texts):
    """The metrics of some groups of the ledger, by name; `texts` has the responses of each group."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    responses = [rollout for rollout in rollouts if rollout.status != "no_response"]
    result = {
        "rg_dump/mean_no_signal": mean([group.no_signal for group in groups]),
        "rg_dump/mean_score": mean([rollout.score for rollout in responses]),
        "rg_dump/mean_penalty_factor": mean([rollout.penalty_factor for rollout in responses]),
        "rg_dump/mean_response_tokens": mean([rollout.response_tokens for rollout in responses]),
        "rg_dump/mean_masked": mean([rollout.masked for rollout in rollouts]),
        "rg_dump/mean_no_response": mean([rollout.status == "no_response" for rollout in rollouts]),
    }
    said = Counter(text for group in groups for text in texts[group.group_id])
    result["rg_dump/mean_same_response"] = max(said.values()) / said.total()
    if groups[0].phase == "train":
        result["rg_dump/mean_phantom"] = mean([is_phantom(group) for group in groups])
    for outcome in ("all_correct", "mixed", "all_failed"):
        result[f"rg_dump/mean_{outcome}"] = mean([group.outcome == outcome for group in groups])
    result |= shares(responses, "environment/rg_dump", with_zeros=True)
    of_tasks = defaultdict(list)
    for group in groups:
        of_tasks[group.task] += [rollout for rollout in group.rollouts if rollout.status != "no_response"]
    for task, of_task in of_tasks.items():
        if of_task:
            result |= shares(of_task, f"environment/rg_dump/{task}", with_zeros=False)
    return result


def shown(metrics, prefix):
    """Our metrics among those of a step: of the training (no prefix) or of an evaluation."""
    name = re.compile(rf"{prefix}(environment\w*/rg_dump|rg_dump\w*)/(?!max_groups_not_on_disk|canaries|mean_canary)")
    return {key.removeprefix(prefix): value for key, value in metrics.items() if name.match(key)}


@pytest.fixture(params=LOOPS)
def done(request, tmp_path, monkeypatch):
    """A short run in a loop of SkyRL's, with what its tracker, steps file and terminal got."""
    set_rewards = judge.set_rewards

    def disturbed(rollouts, *args, **settings):
        for rollout in rollouts:
            number = int(re.search(r"\d+", rollout.text)[0])
            if number % 13 == 1:
                rollout.verdict = Verdict.no_response("503")
            elif number % 9 == 4:
                excused = AnswerScore(None, None, 0.0, Status.TIMEOUT, excused=number % 2 == 0)
                rollout.verdict = Verdict(rollout.verdict.parsed, excused)
        set_rewards(rollouts, *args, **settings)

    monkeypatch.setattr(judge, "set_rewards", disturbed)
    monkeypatch.setattr(scripted_training, "Script", MixedScript)
    monkeypatch.setattr(scripted_training, "TASK", {**TASK, "spell_backward": {"weight": 1}})
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path / "tensorboard"))
    settings = {
        f"{RG}format_bonus": 0.25,
        "trainer__epochs": 2,
        "trainer__eval_interval": 2,
        "trainer__eval_before_train": True,
        "trainer__eval_batch_size": 4,
        "generator__eval_n_samples_per_prompt": 2,
        "generator__eval_sampling_params__temperature": 1.0,
        "generator__eval_sampling_params__max_generate_length": 100,
    }
    trainer = build(tmp_path, eval_size=EVALUATED, **(settings | LOOPS[request.param]))
    tracker = Tracking("p", "r", backend="tensorboard", config=trainer.cfg)
    trainer.tracker = StepTracking(tracker, trainer.generator.writer)
    trainer.reports = Told()
    train(trainer)
    return request.param, trainer, tmp_path


def test_each_figure_is_a_recount_of_the_ledger(done):
    loop, trainer, folder = done
    run = open_run(folder / "dumps")
    ledger = list(run.ledger())
    by_id = {line.group_id: line for line in ledger}
    texts = {
        group.group_id: [rollout.response for rollout in group.rollouts if rollout.status != "no_response"]
        for group in run.groups()
    }
    trained = defaultdict(list)
    for record in run.trained():
        trained[record.step].append(by_id[record.group_id])
    generated, evaluated = defaultdict(list), defaultdict(list)
    for line in ledger:
        (generated if line.phase == "train" else evaluated)[line.step].append(line)
    of_steps = {step: generated[step] for step in trained} if loop in ("filter", "replace") else trained
    assert len(of_steps) > 1
    assert {step: len(groups) for step, groups in evaluated.items()} == dict.fromkeys(evaluated, 2 * EVALUATED)

    expected = defaultdict(dict)
    for step, groups in of_steps.items():
        expected[step] |= recount(groups, texts)
    for step, groups in evaluated.items():
        expected[step] |= {f"eval/all/{name}": value for name, value in recount(groups, texts).items()}
    for name in ("mean_masked", "mean_phantom"):
        assert any(value for step in expected.values() for key, value in step.items() if key.endswith(name))

    steps = {}
    for record in run.steps():
        metrics = dict(zip(record.name, record.value, strict=True))
        steps[record.step] = shown(metrics, "")
        evaluation = shown(metrics, "eval/all/")
        steps[record.step] |= {f"eval/all/{name}": value for name, value in evaluation.items()}
    assert steps.keys() == expected.keys()
    for step, figures in expected.items():
        assert steps[step].keys() == figures.keys()
        for name, value in figures.items():
            assert steps[step][name] == pytest.approx(value, abs=1e-9), (step, name)

    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    for name in {name for figures in expected.values() for name in figures}:
        got = {event.step: event.value for event in events.Scalars(name)}
        wanted = {step: figures[name] for step, figures in expected.items() if name in figures}
        assert got == pytest.approx(wanted, rel=1e-6, abs=1e-9), name  # TensorBoard keeps 32 bits

    told = {facts["step"]: facts for facts in trainer.reports.sent if "step" in facts}
    assert told.keys() == of_steps.keys()
    for step, groups in of_steps.items():
        responses = [r for group in groups for r in group.rollouts if r.status != "no_response"]
        reward = mean([rollout.reward for rollout in responses])
        assert told[step]["reward"] == pytest.approx(reward, abs=1e-9)
        assert told[step]["solved"] == pytest.approx(expected[step]["environment/rg_dump/mean_solved"], abs=1e-9)
        assert told[step]["format"] == pytest.approx(expected[step]["environment/rg_dump/mean_well_formed"], abs=1e-9)
        assert told[step]["scorer"] == Counter(r.status for group in groups for r in group.rollouts)
        assert sum(told[step]["groups"].values()) == len(groups)
        assert f"solved {expected[step]['environment/rg_dump/mean_solved']:.0%}" in told[step]["line"]
    lines = [facts["evaluation"] for facts in trainer.reports.sent if "evaluation" in facts]
    assert len(lines) == len(evaluated)
    for line, (step, groups) in zip(lines, sorted(evaluated.items()), strict=True):
        figures = recount(groups, texts)
        assert line.startswith(f"after step {step}: ")
        assert f"solved {figures['environment/rg_dump/mean_solved']:.0%} " in line
        assert line.endswith(f"format {figures['environment/rg_dump/mean_well_formed']:.0%}")
