"""`rg-env eval --endpoint`: a suite's questions, scores that count every rollout once, a table and JSON."""

import json
import shlex
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.dump import open_run
from rg_env.dump.validate import validate
from rg_env.evaluate import run
from rg_env.page.side_by_side import settings_of
from tests.evaluate.server import completion, error, serving

SUITE = """
size: 3
seed: 1
system_prompt: Answer in <answer> tags.
format: lenient
tasks: {gcd: {}, chain_sum: {size: 2}}
"""


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(SUITE)
    return path


def evaluate(server, suite, *more):
    command = ["eval", "--endpoint", server.url, "--model", "m", "--suite", str(suite), "--retries", "0", *more]
    return CliRunner().invoke(app, command)


def test_scores_are_counted_over_rollouts(suite, tmp_path):
    """Requests that fail count nowhere; every other rollout counts once."""
    out = tmp_path / "dump"
    requests, one_at_a_time = Counter(), threading.Lock()

    def script(number, body):
        question = body["messages"][-1]["content"]
        with one_at_a_time:
            requests[question] += 1
            fails = question.startswith("Find the Greatest") and requests[question] % 2
        return error(500, "oops") if fails else completion("<ANSWER>7</ANSWER>")

    with serving(script) as server:
        done = evaluate(server, suite, "--samples", "4", "--out", str(out), "--json")
    assert done.exit_code == 1, done.output
    assert {body["messages"][0]["content"] for body in server.requests} == {"Answer in <answer> tags."}
    (run,) = open_run(out).runs
    assert (run.manifest.kind, run.manifest.end) == ("eval", "finished, responses are missing")
    result = json.loads(done.stdout)
    rollouts = [r for record in open_run(out).ledger() for r in record.rollouts]
    counted = [rollout for rollout in rollouts if rollout.status != "no_response"]
    assert len(rollouts) == 5 * 4
    assert result["no_response"] == len(rollouts) - len(counted) > 0
    assert result["total"]["rollouts"] == result["responses"] == len(counted)
    assert result["planned"] == len(rollouts)
    assert result["total"]["mean_base_score"] == pytest.approx(sum(r.base_score for r in counted) / len(counted))
    assert result["total"]["upstream_score"] == pytest.approx(sum(r.raw_score or 0 for r in counted) / len(counted))
    assert {row["name"] for row in result["tasks"]} == {"gcd", "chain_sum"}
    assert {row["name"] for row in result["categories"]} == {"arithmetic"}
    assert result["suite"]["name"] == "mine"
    assert result["total"]["pass_at_2_low"] is not None
    assert result["total"]["pass_at_4"] is None, "most groups lack a response"
    assert validate(out).good
    groups = list(open_run(out).groups())
    assert {group.phase for group in groups} == {"eval"}
    assert len(groups) == 5, "texts are kept"
    formats = {rollout.violation for group in groups for rollout in group.rollouts if group.task == "gcd"}
    assert formats == {""}, "the suite's format is lenient: tags in any case, no think block"


def test_an_evaluation_that_lost_a_response_to_every_question_has_a_table_and_exit_code_1(suite, tmp_path):
    requests = Counter()

    def script(number, body):
        question = body["messages"][-1]["content"]
        requests[question] += 1
        return error(500, "oops") if requests[question] == 1 else completion("<answer>7</answer>")

    with serving(script) as server:
        out = ("--samples", "3", "--out", str(tmp_path / "dump"), "--concurrency", "1")
        done = evaluate(server, suite, *out)
        assert done.exit_code == 1
        again = evaluate(server, suite, *out, "--resume", "--json")
    assert f"5 of 5 groups in {tmp_path / 'dump'}, 5 of them without all responses" in done.stderr
    assert "10 of 15 responses; dump" in done.stdout
    assert any(line.split()[:1] == ["total"] for line in done.stdout.splitlines())
    assert (again.exit_code, json.loads(again.stdout)["responses"]) == (0, 15)


def test_the_table_fits_80_columns_with_the_total_first_and_whole_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rg_env.base.output._PIPE_WIDTH", 80)
    Path("long.yaml").write_text("tasks: {intermediate_integration: {size: 2}, polynomial_multiplication: {size: 2}}")
    with serving(lambda number, body: completion("<answer>1</answer>")) as server:
        done = evaluate(server, "long.yaml", "--samples", "2")
    assert done.exit_code == 0, done.output
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("m-eval-2"), "a folder of its own by default, named after the model"
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert max(map(len, lines)) <= 80
    names = ("total", "algebra", "intermediate_integration", "polynomial_multiplication")
    rows = [line for line in lines if line.split() and line.split()[0] in names]
    assert [row.split()[0] for row in rows] == list(names)
    assert all("[" in row for row in rows)


def test_the_result_of_a_resumed_evaluation_counts_all_attempts(suite, tmp_path):
    right = completion("<think>x</think><answer>7</answer>")
    with serving(lambda number, body: right) as server:
        out = ("--out", str(tmp_path / "dump"), "--concurrency", "1", "--json")
        first = evaluate(server, suite, *out, "--max-tokens-total", "20")
        assert f"--resume --out {tmp_path / 'dump'}" in first.stderr
        second = evaluate(server, suite, *out, "--resume")
    assert 0 < json.loads(first.stdout)["total"]["rollouts"] < 5
    assert json.loads(second.stdout)["total"]["rollouts"] == 5 == len(server.requests)


def test_a_suite_is_the_same_whatever_tasks_a_configuration_has(suite, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    tasks = "{gcd: {config: {max_numbers: 3}}}"
    recipe.write_text(f"environment: {{skyrl_gym: {{rg_dump: {{complexity: 0.5, tasks: {tasks}}}}}}}")
    with serving(lambda number, body: completion("<answer>7</answer>")) as server:
        assert evaluate(server, suite, str(recipe), "--out", str(tmp_path / "a")).exit_code == 0
        alike = ("--temperature", "0", "--max-tokens", "1024")
        assert evaluate(server, suite, *alike, "--out", str(tmp_path / "b")).exit_code == 0
    (this,), (other,) = (open_run(tmp_path / name).runs for name in "ab")
    assert this.manifest.task_mix is None and settings_of(this) == settings_of(other)


def test_of_several_models_the_folder_around_them_is_continued(suite, tmp_path, monkeypatch):
    for step in (1, 2):
        model = tmp_path / "exports" / f"global_step_{step}"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
    reach = run._connect
    monkeypatch.setattr("rg_env.evaluate.server.program_for", lambda path: None)
    with serving(lambda number, body: completion("<answer>7</answer>")) as server:

        async def connect(options, *args, **more):
            return await reach(replace(options, url=server.url), *args, **more)

        monkeypatch.setattr(run, "_connect", connect)
        command = ("eval", "--model", str(tmp_path / "exports"), "--suite", str(suite), "--concurrency", "1")
        first = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "my runs"), "--max-tokens-total", "20"])
        advised = first.stderr.partition("--max-tokens-total, which is for each attempt; continue with ")[
            2
        ].splitlines()[0]
        second = CliRunner().invoke(app, [*command, *shlex.split(advised)])
    assert (first.exit_code, second.exit_code, len(server.requests)) == (1, 0, 10), second.output


def test_a_part_of_a_suite_is_spread_over_its_tasks_and_said(suite, tmp_path):
    with serving(lambda number, body: completion("<answer>1</answer>")) as server:
        done = evaluate(server, suite, "--items", "3", "--samples", "2", "--out", str(tmp_path / "dump"))
    assert done.exit_code == 0, done.output
    assert "6 requests: 3 questions × 2" in done.stderr
    assert "3 of 5 questions" in done.stdout
    tasks = Counter(record.task for record in open_run(tmp_path / "dump").ledger())
    assert tasks == {"gcd": 2, "chain_sum": 1}
    (run,) = open_run(tmp_path / "dump").runs
    assert run.manifest.suite["name"] == "mine, 3 of 5 questions"
    assert run.manifest.suite["questions"] == 3


CONFIG = """
generator:
  chat_template_kwargs: {style: {short: true}}
  eval_sampling_params: {temperature: 0.3, additional_kwargs: {presence_penalty: 1.5}}
environment.skyrl_gym.rg_dump: {tasks: [gcd], num_eval_samples_per_task: 1, dump_dir: runs/mine/dumps}
"""
LIBRARY = """
from loguru import logger

def speak():
    logger.warning("the library speaks")
"""
MINE = """
import their_library
from loguru import logger

def reward(group):
    their_library.speak()
    logger.warning("mine speaks")
    return [2.5 for _ in group]
"""


def test_a_configuration_is_honored_as_in_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in {"config.yaml": CONFIG, "their_library.py": LIBRARY, "mine_speaks.py": MINE}.items():
        Path(name).write_text(text)
    with serving(lambda number, body: completion("<think>so</think><answer>1</answer>")) as server:
        command = ("eval", "--endpoint", server.url, "--model", "m", "config.yaml", "reward=mine_speaks.reward")
        both = CliRunner().invoke(app, [*command, "--out", "a"])
        one = CliRunner().invoke(
            app, [*command, "suppress_base_env_logs=true", "debug_logging=true", "--out", "b/dump"]
        )
    assert (both.exit_code, one.exit_code) == (0, 0), both.output + one.output
    for body in server.requests:
        assert (body["temperature"], body["max_tokens"], body["presence_penalty"]) == (0.3, 1024, 1.5)
        assert body["chat_template_kwargs"] == {"style": {"short": True}}
    assert "mine speaks" in both.stderr and "the library speaks" in both.stderr
    assert "mine speaks" in one.stderr and "the library speaks" not in one.stderr
    (log,) = Path("b/dump/logs").glob("rollouts-*.log")
    assert f"rollout log: {log}" in one.stderr
    assert "step None" not in log.read_text()
    assert "<think>so</think><answer>1</answer>" in log.read_text()
    assert "reward 2.5" in log.read_text()
    assert not Path("logs").exists(), "only if it is asked for"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["num_eval_samples_per_task=1"], "num_eval_samples_per_task=1: the suite"),
        (["environment.skyrl_gym.rg_dump.format=strict"], "format='strict': the suite"),
        (["--suite", "fixed", "size=5"], "size=5: eval only sends requests, so it would have no effect"),
        (["--suite", "fixed", "generator.sampling_params.temperature=1"], "temperature=1: eval only sends requests"),
        (["--items", "6"], "--items=6: the suite has 5 questions"),
        (["--tasks", "gcd"], "has its own tasks"),
        (["--suite", "rg_esay"], "did you mean rg_easy"),
        (["--resume"], "--resume needs --out"),
    ],
)
def test_what_cannot_be_honored_is_refused(more, message, suite, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with serving(lambda number, body: completion("")) as server:
        assert message in str(evaluate(server, suite, *more).exception)
    assert not server.requests
