"""`rg-env preflight` names planted faults of model, format, scorer and task with the setting that fixes them. The model
is a scripted server, and once nano."""

import json
import os
import re
import shlex
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rg_env.analysis.preflight import TaskReport, add_length, add_levels
from rg_env.base.errors import ConfigError, RGEnvError
from rg_env.cli import app, preflight_command
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import open_run
from rg_env.evaluate.preflight import StoppedError
from rg_env.evaluate.server import Program
from rg_env.rollouts import preflight_limits
from rg_env.skyrl.cpu import nano_path
from rg_env.skyrl.train_config import load_run
from tests.analysis.samples import write_texts
from tests.dump.records import group, rollout, unanswered
from tests.evaluate.server import completion, serving

LIMIT = 64
LENGTH = "generator.sampling_params.max_generate_length"


@pytest.fixture(autouse=True)
def few_questions(monkeypatch):
    monkeypatch.setattr("rg_env.rollouts.preflight_limits.MOST_QUESTIONS", preflight_limits.QUESTIONS)
    monkeypatch.setattr("rg_env.rollouts.preflight_limits.MODEL_SECONDS", 0.0)


def right(question):
    """The answer to a question of chain_sum."""
    terms = re.findall(r"[+-]?\s*\d+", question.rpartition(":")[2])
    return sum(int(term.replace(" ", "")) for term in terms)


def script(write, solves=lambda question, number: number % 2 == 0):
    """A model that writes its answer so, and is right about some."""

    def respond(number, body):
        question = body["messages"][-1]["content"]
        answer = right(question)
        if not solves(question, number):
            answer += 1
        reply = write(answer)
        return reply if not isinstance(reply, str) else completion(reply, tokens=20)

    return respond


def run_preflight(folder, url, *settings):
    recipe = [
        *("trainer.policy.model.path=nano", "device=cpu", "trainer.train_batch_size=4"),
        *("trainer.policy_mini_batch_size=4", "generator.n_samples_per_prompt=8", f"{LENGTH}={LIMIT}"),
        *("tasks=[chain_sum]", f"dump_dir={folder}/run/dumps", f"trainer.ckpt_path={folder}/run/checkpoints"),
        *(f"trainer.export_path={folder}/run/exports", f"trainer.log_path={folder}/run/logs"),
    ]
    recipe = [setting for setting in recipe if setting.partition("=")[0] not in {s.partition("=")[0] for s in settings}]
    return CliRunner().invoke(app, ["preflight", *recipe, *settings, "--endpoint", url, "--json"])


@pytest.fixture
def preflight(tmp_path):
    """Runs the command against a scripted model; returns its JSON."""

    def run(script, *settings):
        with serving(script) as server:
            done = run_preflight(tmp_path, server.url, *settings)
        assert done.exit_code in (0, 1), (done.output, done.exception)
        facts = json.loads(done.stdout)
        assert done.exit_code == int(facts["alarm"])
        return facts

    return run


def tagged(answer):
    return f"<think>x</think><answer>{answer}</answer>"


def test_a_model_that_learns_is_no_alarm(preflight):
    facts = preflight(script(tagged))
    (task,) = facts["tasks"]
    assert (facts["alarm"], facts["settings"], task["remarks"]) == (False, [], [])
    assert (task["questions"], task["responses"]) == (8, 64)
    assert task["format"][0] == 1
    assert task["solved"][0] == pytest.approx(0.5)
    assert task["signal"][0] == 1
    dump = open_run(f"{facts['dumps'][0]}")
    assert sum(len(group.rollouts) for group in dump.groups()) == 64


@pytest.mark.parametrize(
    ("write", "settings", "named"),
    [
        (r"It is \boxed{{{}}}.", [], ["format=lenient", "worked_examples="]),
        ("So 1 + 1 = 2.\n#### {}", [], ["format=lenient", "worked_examples="]),
        ("I add them and get {}", ["system_prompt=null"], ["format=lenient", "system_prompt=think_answer"]),
        ("The answer: **{}**, as 7 shows", [], ["format=lenient", "worked_examples="]),
        ("<answer>{}</answer>", [], ["format=lenient"]),
        ("so</think><answer>{}</answer>", [], ["prefilled_think=true"]),
        ("<THINK>x</THINK><ANSWER>{}</ANSWER>", [], ["format=lenient"]),
        ("<answer>**{}**</answer>", [], ["format=lenient", "scorer.normalize=true"]),
        (
            "<denken>x</denken><antwort>{}</antwort>",
            ["system_prompt=Denke in <denken>, antworte in <antwort>."],
            ["system_prompt=think_answer", "worked_examples="],
        ),
    ],
)
def test_answers_that_stand_elsewhere(preflight, write, settings, named):
    facts = preflight(script(write.format), *settings)
    assert facts["alarm"]
    for setting in named:
        assert any(each.startswith(setting) for each in facts["settings"]), facts
    (task,) = facts["tasks"]
    assert max(task["paid"].values()) == pytest.approx(0.5)


def test_the_command_that_is_printed_can_be_pasted(tmp_path, monkeypatch):
    """It has quotes where YAML and the shell need them, and asks the same model."""
    monkeypatch.chdir(tmp_path)
    recipe = Path("run.yaml")
    recipe.write_text(
        "trainer.policy.model.path: nano\nenvironment.skyrl_gym.rg_dump: {device: cpu, tasks: [chain_sum]}\n"
        f"generator.n_samples_per_prompt: 8\n{LENGTH}: {LIMIT}\n"
    )
    sizes = ["trainer.train_batch_size=4", "trainer.policy_mini_batch_size=4"]
    with serving(script(r"It is \boxed{{{}}}.".format)) as server:
        words = ["preflight", "run.yaml", *sizes, "--endpoint", server.url]
        first = CliRunner().invoke(app, words)
        (command,) = re.findall(r"^change, and ask again: rg-env (preflight .*)$", first.stdout, re.M)
        pasted = shlex.split(command)
        assert set(words) <= set(pasted)
        again = CliRunner().invoke(app, pasted)
    assert (first.exit_code, again.exit_code) == (1, 1), again.output
    assert any("worked_examples" in word for word in pasted)


@pytest.mark.parametrize(
    ("write", "settings", "said", "named"),
    [
        (lambda answer: "I do not know", [], "0% well-formed, most others no_think", []),
    ],
)
def test_rewards_that_do_not_differ_have_a_reason(preflight, write, settings, said, named):
    facts = preflight(script(write, solves=lambda question, number: True), *settings)
    assert facts["alarm"]
    assert any(said in alarm for alarm in facts["tasks"][0]["alarms"]), facts
    for setting in named:
        assert any(each.endswith(setting) for each in facts["settings"]), facts


def test_a_format_that_is_right_in_part_is_said_and_no_alarm(preflight):
    facts = preflight(lambda number, body: script(tagged if number % 3 else "<answer>{}</answer>".format)(number, body))
    assert not facts["alarm"]
    assert facts["settings"] == ["format=lenient"]
    assert "training teaches the format, too" in facts["tasks"][0]["remarks"][0]


def test_too_short_a_limit_is_named_with_one_that_is_long_enough(preflight):
    needed = 150

    def write(number, body):
        if body["max_tokens"] < needed:
            return completion("<think>I add", finish="length", tokens=body["max_tokens"])
        return completion(tagged(right(body["messages"][-1]["content"]) + number % 2), tokens=needed)

    facts = preflight(write)
    assert facts["alarm"]
    assert facts["settings"] == [f"{LENGTH}=160"]
    assert facts["tasks"][0]["paid"][f"{LENGTH}=160"] == pytest.approx(0.5)


def test_a_signal_during_longer_responses_stops_it(tmp_path):
    """It is no refusal of their length, after which shorter ones would be tried."""
    asked = []

    def write(number, body):
        if body["max_tokens"] > LIMIT:
            asked.append(body["max_tokens"])
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)  # the process has noticed before the reply comes
        return completion("<think>I add", finish="length", tokens=body["max_tokens"])

    with serving(write) as server:
        done = run_preflight(tmp_path, server.url)
    assert isinstance(done.exception, StoppedError) and done.exception.exit_code == 130
    assert len(set(asked)) == 1


def test_a_model_that_never_stops_is_said_to_be_one(preflight):
    facts = preflight(lambda number, body: completion("<think>so", finish="length", tokens=body["max_tokens"]))
    assert facts["alarm"]
    assert not any(setting.startswith(LENGTH) for setting in facts["settings"])
    assert "does not come to an end" in " ".join(facts["tasks"][0]["alarms"])


@pytest.mark.parametrize(("task", "write"), [("chain_sum", "**{}**"), ("lcm", "{:,}")])
def test_notation_that_the_scorer_does_not_read(preflight, task, write):
    def respond(number, body):
        question = body["messages"][-1]["content"]
        numbers = [int(n) for n in re.findall(r"\d+", question.rpartition(":")[2])]
        answer = right(question) if task == "chain_sum" else __import__("math").lcm(*numbers)
        return completion(tagged(write.format(answer)))

    options = {"chain_sum": "{}", "lcm": "{min_value: 1000, max_value: 9000}"}
    facts = preflight(respond, f"tasks={{{task}: {{config: {options[task]}}}}}")
    assert facts["alarm"]
    assert "scorer.normalize=true" in facts["settings"]
    assert "literally correct" in facts["tasks"][0]["alarms"][0]


@pytest.mark.parametrize(("c", "words"), [(0.0, "too hard"), (1.0, "too easy")])
def test_a_level_that_is_neither_too_hard_nor_too_easy(preflight, c, words):
    def solves(question, number):
        terms = len(re.findall(r"\d+", question))
        if words == "too hard":
            return terms <= 2 and number % 2 == 0
        return terms <= 5 or number % 2 == 0

    settings = "complexity=1.0" if words == "too hard" else "complexity=0.0"
    facts = preflight(script(tagged, solves), settings)
    assert facts["alarm"], facts
    assert facts["tasks"][0]["alarms"][0].startswith(words)
    assert facts["settings"][0].startswith("complexity="), facts


def test_requests_that_failed_are_no_wrong_responses(tmp_path):
    unknown, config = (0.0, None, None), RGDumpConfig()
    answered = [rollout(1.0, 0, response_tokens=100), unanswered(1), unanswered(2)]
    write_texts(tmp_path / "some", [group(0, answered, complexity=0.5)])
    write_texts(tmp_path / "none", [group(0, [unanswered()])])
    report = TaskReport("chain_sum", 1, 3, unknown, (1.0, None, None), unknown, unknown, 64)
    add_length(report, tmp_path / "some", LIMIT, config)
    add_levels(report, tmp_path / "some", config, {})
    assert (report.paid, report.levels) == ({f"{LENGTH}=112": 1.0}, {0.5: 1.0})
    report.alarms.clear()
    add_length(report, tmp_path / "none", LIMIT, config)
    add_levels(report, tmp_path / "none", config, {})
    assert ["failed: ask again" in alarm for alarm in report.alarms] == [True, True]


def test_a_broken_scorer_is_named_with_its_task(preflight, tmp_path, monkeypatch):
    (tmp_path / "sums.jsonl").write_text(
        "\n".join(json.dumps({"question": f"Add these: {n} + 1", "answer": str(n + 1)}) for n in range(60))
    )
    (tmp_path / "broken_scorer_of_mine.py").write_text("def score(answer, row):\n    return 0.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    file = f"{{path: {tmp_path}/sums.jsonl, scorer: broken_scorer_of_mine.score}}"
    facts = preflight(script(tagged, lambda *_: True), f"tasks={{sums: {{file: {file}}}}}")
    assert facts["alarm"]
    assert "rg-env score sums" in facts["tasks"][0]["alarms"][0]


def test_a_server_that_does_not_answer_is_one_line(tmp_path):
    done = CliRunner().invoke(
        app,
        [
            *("preflight", "trainer.policy.model.path=nano", "device=cpu", "tasks=[chain_sum]"),
            *("trainer.train_batch_size=4", "trainer.policy_mini_batch_size=4", f"dump_dir={tmp_path}/run/dumps"),
            *("--endpoint", "http://127.0.0.1:9"),
        ],
    )
    assert "no server answers" in str(done.exception)


@pytest.mark.parametrize("failure", [RGEnvError, None])
def test_the_log_of_a_server_that_failed_is_kept(tmp_path, monkeypatch, failure):
    command = [sys.executable, "-m", "tests.evaluate.scripted_command", "answers"]
    monkeypatch.setattr("rg_env.evaluate.server.program_for", lambda path: Program("scripted", command, 4))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cfg = load_run(["trainer.policy.model.path=nano", "device=cpu"]).cfg
    cfg.rg_dump.device = "cuda"
    with suppress(RGEnvError), preflight_command._reached(cfg, None, None):
        if failure:
            raise failure
    assert len(list(tmp_path.glob("rg_env-server-*.log"))) == int(failure is not None)


def test_what_is_found_before_anything_is_asked(tmp_path):
    folder = shutil.copytree(nano_path(), tmp_path / "model")
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text().replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"))
    done = CliRunner().invoke(app, ["preflight", f"trainer.policy.model.path={folder}", "device=cpu"])
    assert isinstance(done.exception, ConfigError)
    assert "set prefilled_think=true" in str(done.exception)


def test_nano_is_asked_in_this_process_and_passes(tmp_path):
    recipe = Path(__file__).parents[2] / "configs/quickstart.yaml"
    done = CliRunner().invoke(app, ["preflight", str(recipe), f"dump_dir={tmp_path}/run/dumps"])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "nothing speaks against training" in done.stdout
    assert "leg_counting" in done.stdout
    (folder,) = tmp_path.glob("run-preflight-*")
    groups = list(open_run(folder / "dumps").groups())
    assert len(groups) == 2 * preflight_limits.QUESTIONS
    assert {len(group.rollouts) for group in groups} == {8}
