"""Phantom groups and collapse: what made them is named, live and from a dump."""

import pytest

from rg_env.analysis.signs import find_signs
from rg_env.configuration.config import LengthPenaltyConfig, RGDumpConfig
from rg_env.dump import Attempt, DumpWriter, StepRecord, open_run, write_manifest
from rg_env.rollouts.symptoms import EQUAL, FORMAT, LENGTH, collapse, phantom_cause, read_symptoms
from tests.dump.records import RUN_ID, group, rollout, violating

KIMI = RGDumpConfig(length_penalty=LengthPenaltyConfig(kind="kimi"))
WRONG = rollout(0.0)


@pytest.mark.parametrize(
    ("rollouts", "config", "cause"),
    [
        ([WRONG, rollout(1.0)], RGDumpConfig(), ""),
        ([WRONG, WRONG], RGDumpConfig(), ""),
        ([WRONG, rollout(0.0, reward=-0.5)], KIMI, "length_penalty.kind=kimi"),
        ([rollout(0.0, reward=0.2), violating(1)], RGDumpConfig(format_bonus=0.2), "format_bonus=0.2"),
        ([WRONG, rollout(0.3)], RGDumpConfig(), "scorer.partial_credit=calibrated"),
        ([WRONG, rollout(0.3)], RGDumpConfig(solved_at=0.3), ""),
        ([rollout(0.0, custom_reward=2.0, reward=2.0), WRONG], RGDumpConfig(reward="my.judge"), "reward=my.judge"),
        (
            [rollout(0.3), rollout(0.3, reward=0.0, stop_reason="length")],
            RGDumpConfig(),
            "generator.zero_reward_on_non_stop=true",
        ),
        ([WRONG, WRONG, rollout(0.0, reward=-0.5, masked=True)], KIMI, ""),
    ],
)
def test_the_setting_that_made_a_gradient_is_named(rollouts, config, cause):
    assert phantom_cause(group(0, rollouts), config) == cause


def test_another_environment_has_no_phantoms():
    assert phantom_cause(group(0, [WRONG, rollout(0.3)], environment="gsm8k"), RGDumpConfig()) == ""


def steps(name, *values):
    return {number: {name: value} for number, value in enumerate(values, 1)}


@pytest.mark.parametrize(
    ("metrics", "total", "line"),
    [
        (steps(EQUAL, 0.1, 0.9, 1.0), 0, "collapse: at step 2, 90% of the responses are equal"),
        (steps(LENGTH, 100, 90, 50, 21, 20), 0, "collapse: at step 5, the length of responses fell from 100 to 20"),
        (steps(FORMAT, 1.0, 0.9, 0.1), 8, "collapse: at step 3, the format rate fell from 0.95 to 0.1"),
        (steps(FORMAT, 1.0, 0.9, 0.1), 12, ""),
        (steps(FORMAT, 0.0, 0.5, None), 0, ""),
        (steps(LENGTH, 100, 21, 500), 0, ""),
        ({}, 0, ""),
    ],
)
def test_a_collapse_is_the_first_step_that_shows_it(metrics, total, line):
    assert str(collapse(metrics, total) or "") == line


@pytest.mark.parametrize(("planned", "is_found"), [(40, False), (8, True), (None, True)])
def test_a_dump_compares_with_the_quarter_of_the_planned_steps_as_training_does(tmp_path, planned, is_found):
    """Ten steps: in a run of 40 all of them are what later steps will be compared with."""
    lengths = [100.0, 90.0, 80.0, 70.0, 60.0, 50.0, *4 * [15.0]]
    manifest = {"attempt": 1, "settings": RGDumpConfig().as_nested()}
    write_manifest(tmp_path, RUN_ID, Attempt.read(manifest if planned is None else manifest | {"total_steps": planned}))
    numbers = [StepRecord(RUN_ID, 1, step, list(of), list(of.values())) for step, of in steps(LENGTH, *lengths).items()]
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        writer.write_blocking([group(0, [1.0, 0.0])])
        writer.submit(numbers)
    symptom = collapse(steps(LENGTH, *lengths), planned or 0)
    assert bool(symptom) == is_found
    assert list(read_symptoms(open_run(tmp_path))) == [str(symptom)] * is_found
    found = [sign.step for sign in find_signs(open_run(tmp_path)).signs if sign.sign == "collapse"]
    assert found == [7] * is_found


PHANTOM = "phantoms: 1 of 3 groups have no solved response but"
CAUSE = "(scorer.partial_credit=calibrated)"


@pytest.mark.parametrize(
    ("trained_on", "line"),
    [
        (True, f"{PHANTOM} still a gradient {CAUSE}"),
        (False, f"{PHANTOM} different rewards {CAUSE}; train_unsolved=false left them out"),
    ],
)
def test_a_dump_says_the_same(tmp_path, trained_on, line):
    settings = RGDumpConfig(train_unsolved=trained_on).as_nested()
    write_manifest(tmp_path, RUN_ID, Attempt(attempt=1, settings=settings))
    groups = [group(0, [WRONG, rollout(0.3)]), group(1, [1.0, 0.0]), group(2, [0.0, 0.0])]
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        writer.write_blocking(groups)
        for step, metrics in steps(EQUAL, 0.5, 0.95).items():
            writer.submit([StepRecord(RUN_ID, 1, step, list(metrics), list(metrics.values()))])
    assert list(read_symptoms(open_run(tmp_path))) == [
        line,
        "collapse: at step 2, 95% of the responses are equal",
    ]
    without_the_solved = open_run(tmp_path).where(["base_score < 0.99"])
    assert not [line for line in read_symptoms(without_the_solved) if line.startswith("phantoms")]
