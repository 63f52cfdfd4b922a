"""Why most responses score 0: the commonest fault of an evaluation of a scripted server, and when nothing is said."""

import pytest
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, DumpWriter, write_manifest
from rg_env.rollouts.faults import explain_dead_reward, explain_zeros
from rg_env.scoring.types import Violation
from tests.dump.records import RUN_ID, group, manifest, rollout, violating
from tests.evaluate.server import completion, serving

WRONG = completion("<think>x</think><answer>nothing</answer>")


def evaluate(folder, faulty, share, *more):
    """The remarks of an evaluation of ten responses, of which so many are faulty."""
    with serving(lambda number, body: faulty if number < share else WRONG) as server:
        reach = ("--endpoint", server.url, "--model", "m", "--concurrency", "1", "--out", str(folder))
        command = ["eval", *reach, "--tasks", "gcd", "num_eval_samples_per_task=10", *more]
        done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    return [line for line in done.stderr.splitlines() if "responses " in line and "to see some" in line]


@pytest.mark.parametrize(
    ("faulty", "words"),
    [
        (completion(None), "6 of 10 responses are empty; a reasoning model may need a larger --max-tokens"),
        (completion("<think>so", finish="length"), "6 of 10 responses were cut off at the maximum length"),
        (completion("It is 7."), "6 of 10 responses have no <answer>…</answer>; the model ignores the tags"),
        (completion("<answer>7</answer>"), "6 of 10 responses violate the format: no_think (the first tag"),
        (completion("<think>x</think><answer>" + "7" * 9000 + "</answer>"), "violate the format: answer_too_long"),
    ],
)
def test_the_commonest_fault_is_named_with_what_mends_it(faulty, words, tmp_path):
    (line,) = evaluate(tmp_path / "dump", faulty, 6)
    assert words in line
    assert line.endswith(f"to see some: rg-env dumps show {tmp_path / 'dump'}")


def test_an_empty_response_is_shown_as_such(tmp_path):
    evaluate(tmp_path, completion(None), 1)
    shown = CliRunner().invoke(app, ["dumps", "show", str(tmp_path)]).stdout
    assert shown.count("empty response") == 1


def test_without_texts_the_violation_is_named(tmp_path):
    (line,) = evaluate(tmp_path, completion("<answer>7</answer>"), 6, "dump_eval_rollouts=false")
    assert "format=lenient needs no think block" in line


def test_texts_of_the_few_that_are_fine_hide_no_fault(tmp_path):
    config = RGDumpConfig(dump_failed_rollouts=False)
    with DumpWriter(tmp_path / "my runs", RUN_ID, 1, config) as writer:
        write_manifest(tmp_path / "my runs", RUN_ID, Attempt.read(manifest()))
        writer.write_blocking([group(0, [1.0, 1.0], call=0), *(group(n, [violating(), violating(1)]) for n in (1, 2))])
    line = explain_zeros(tmp_path / "my runs", RUN_ID)
    assert line.startswith("4 of 6 responses violate the format: no_answer (")
    assert line.endswith(f"rg-env dumps show '{tmp_path / 'my runs'}'")


def test_wrong_answers_and_few_faults_are_no_reason(tmp_path):
    assert evaluate(tmp_path / "few", completion(""), 4) == []
    assert evaluate(tmp_path / "wrong", WRONG, 10) == []


DEAD = [
    ([rollout(0.0, 0, violation=Violation.NO_THINK), violating(1)], "well-formed", "format=lenient"),
    ([violating(0), violating(1)], "well-formed, and most violate the format: no_answer", "`rg-env preflight` finds"),
    ([rollout(0.0, 0, truncated=True), rollout(1.0, 1, truncated=True)], "cut off", "max_generate_length"),
    ([rollout(0.0, 0), rollout(0.0, 1)], "the rewards differ in 0.0% of the groups", "too hard"),
    ([rollout(1.0, 0), rollout(1.0, 1)], "the rewards differ in 0.0% of the groups", "too easy"),
]


def dump_of(folder, rollouts, steps=3):
    with DumpWriter(folder, RUN_ID, 1) as writer:
        write_manifest(folder, RUN_ID, Attempt.read(manifest() | {"kind": "train"}))
        groups = [group(step, rollouts, step=step, call=step) for step in range(1, steps + 1)]
        writer.write_blocking(groups)
    return folder


@pytest.mark.parametrize(("rollouts", "what", "remedy"), DEAD)
def test_why_a_reward_is_dead(tmp_path, rollouts, what, remedy):
    line = explain_dead_reward(dump_of(tmp_path, rollouts), RUN_ID, 20)
    assert line.startswith("the reward is dead: in the first 20 steps, ")
    assert what in line
    assert remedy in line
    assert "\n" not in line and "; ;" not in line


def test_a_reward_with_signals_and_later_steps_are_not_dead(tmp_path):
    assert explain_dead_reward(dump_of(tmp_path / "alive", [1.0, 0.0]), RUN_ID, 20) == ""
    assert explain_dead_reward(dump_of(tmp_path / "later", [0.0, 0.0]), RUN_ID, 0) == ""


def test_of_a_training_the_setting_is_named_and_not_an_option(tmp_path):
    cut = rollout(0.0, 0, truncated=True, violation=Violation.UNCLOSED_THINK)
    line = explain_zeros(dump_of(tmp_path, [cut, cut]), RUN_ID)
    assert "a larger generator.sampling_params.max_generate_length usually fixes it" in line
    assert "--max-tokens" not in line
