"""Why most responses score 0: the commonest fault of an evaluation of a scripted server, and when nothing is said."""

import pytest
from typer.testing import CliRunner

from rg_env.cli import app
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


def test_wrong_answers_and_few_faults_are_no_reason(tmp_path):
    assert evaluate(tmp_path / "few", completion(""), 4) == []
    assert evaluate(tmp_path / "wrong", WRONG, 10) == []
