"""`rg-env collect --endpoint` against a scripted server: what is recorded, what it costs, and every way to stop."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rg_env.base.errors import ConfigError
from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig, ScorerConfig
from rg_env.dump import Attempt, open_run, write_manifest
from rg_env.dump.validate import validate
from rg_env.evaluate.endpoint import RequestLimits, Sampling
from rg_env.evaluate.job import EndpointOptions, Job
from rg_env.evaluate.resumption import claim
from rg_env.evaluate.suites import train_questions
from tests.evaluate.server import HANG, Answer, completion, error, serving, wait_for_groups
from tests.running import program, run_program

KEY = "sk-secret-0123456789"
GROUPS, SAMPLES = 12, 3
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture(scope="module")
def answers():
    """Answer by question."""
    questions = train_questions(RGDumpConfig(tasks=["gcd"]), GROUPS)
    entries = [questions.make(number).item.entry for number in range(GROUPS)]
    return {entry["question"]: entry["answer"] for entry in entries}


@pytest.fixture
def right(answers):
    """Answers every question, every third response wrongly."""

    def script(number, body):
        answer = answers[body["messages"][-1]["content"]] if number % 3 else "nothing"
        return completion(f"<think>hm</think><answer>{answer}</answer>")

    return script


def arguments(server, folder, *more, groups=GROUPS, samples=SAMPLES):
    return [
        *("collect", "--endpoint", server.url, "--model", "m", "--tasks", "gcd", "--groups", str(groups)),
        *("--samples", str(samples), "--out", str(folder), "--retries", "1", "--concurrency", "4", *more),
    ]


def collect(server, folder, *more, **sizes):
    return CliRunner().invoke(app, arguments(server, folder, *more, **sizes))


def started(server, folder, *more):
    command = [sys.executable, "-c", "from rg_env.cli import main; main()", *arguments(server, folder, *more)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def items(folder):
    return Counter(record.item for record in open_run(folder).all_attempts().ledger())


def refused(done):
    """The one line of a refusal."""
    assert type(done.exception).__name__ in ("ConfigError", "DumpError", "EndpointError"), done.output
    assert "\n" not in str(done.exception)
    return str(done.exception)


def test_what_is_recorded(right, tmp_path):
    with serving(right) as server:
        done = collect(server, tmp_path / "dump", "--temperature", "0.5")
    assert done.exit_code == 0, done.output
    assert len(server.requests) == GROUPS * SAMPLES
    assert {body["temperature"] for body in server.requests} == {0.5}
    found = validate(tmp_path / "dump")
    assert found.good, found.kept
    assert not found.remarks
    groups = list(open_run(tmp_path / "dump").groups())
    assert len(groups) == GROUPS == len(items(tmp_path / "dump"))
    for group in groups:
        assert (group.phase, group.step, group.task, len(group.rollouts)) == ("train", None, "gcd", SAMPLES)
        assert group.ended_at >= group.started_at
        assert group.generation_seconds > 0
        assert group.scoring_seconds > 0
        for rollout in group.rollouts:
            assert rollout.base_score == float(rollout.answer == group.expected_answer)
            assert rollout.response_tokens == 7
            assert rollout.penalty_factor == 1
    kinds = {name.split("_")[3] for name in (path.name for path in (tmp_path / "dump").iterdir())}
    assert kinds <= {"rollouts", "FAILED", "ledger", "manifest", "lock"}
    tokens = GROUPS * SAMPLES
    assert f"{tokens * 11:,} tokens of prompts + {tokens * 7:,} of responses" in done.stderr
    for path in (tmp_path / "dump").iterdir():
        assert KEY.encode() not in path.read_bytes(), path
    assert KEY not in done.output


def test_requests_that_fail_are_recorded_and_count_nowhere(answers, tmp_path):
    def script(number, body):
        asked = body["messages"][-1]["content"]
        return error(400, f"no, {KEY}") if asked == next(iter(answers)) or number % 4 == 0 else completion("<answer>")

    with serving(script) as server:
        done = collect(server, tmp_path)
    assert done.exit_code == 1, done.output
    assert validate(tmp_path).good
    ledger = list(open_run(tmp_path).ledger())
    assert len(ledger) == GROUPS - 1, "a group without any answer is not recorded"
    statuses = Counter(rollout.status.value for record in ledger for rollout in record.rollouts)
    assert statuses["no_response"] + statuses["ok"] == (GROUPS - 1) * SAMPLES
    assert f"{statuses['no_response'] + SAMPLES} requests failed" in done.stderr
    assert "400: no, ***" in done.stderr
    partial = sum(any(rollout.status != "ok" for rollout in record.rollouts) for record in ledger)
    assert f"{GROUPS - 1} of {GROUPS} groups in {tmp_path}, {partial} of them without all responses" in done.stderr
    missing = statuses["no_response"] + SAMPLES
    assert f"{missing} of {GROUPS * SAMPLES} responses missing: rerun with --resume" in done.stderr


def test_what_an_outage_swallowed_is_asked_again(right, tmp_path):
    """The server answers three questions, then half of the requests, then all. No group counts twice or is lost."""
    with serving(lambda number, body: right(number, body) if number < 9 else error(503, "down")) as server:
        first = collect(server, tmp_path, "--retries", "0", "--concurrency", "1")
        assert first.exit_code == 1, "a failure, not a wrong setting"
        assert "answered no request of the last 8 groups (503: down)" in first.stderr
        assert f"--resume --out {tmp_path}" in first.stderr
        assert 3 <= len(items(tmp_path)) < GROUPS
        asked = Counter()

        def half(number, body):
            """Of each question, the first request fails."""
            question = body["messages"][-1]["content"]
            asked[question] += 1
            return right(number, body) if asked[question] > 1 else error(500, "half")

        server.script = half
        second = collect(server, tmp_path, "--retries", "0", "--resume")
        assert (second.exit_code, "nothing left to do" in second.stderr) == (1, False)
        recorded = list(open_run(tmp_path).ledger())
        assert len(recorded) == len({record.call for record in recorded}) == GROUPS
        server.script = right
        third = collect(server, tmp_path, "--resume")
    assert third.exit_code == 0, third.output
    ledger = list(open_run(tmp_path).ledger())
    assert sorted(record.call for record in ledger) == list(range(GROUPS))
    assert {rollout.status.value for record in ledger for rollout in record.rollouts} == {"ok"}
    frame = open_run(tmp_path).ledger_frame()
    assert frame.height == GROUPS * SAMPLES, "in frames as in objects"
    assert validate(tmp_path).good


def test_a_server_that_is_not_there_leaves_no_empty_folder_among_the_runs(tmp_path):
    with serving(lambda number, body: error(500, "")) as server:
        pass
    assert "no server answers" in refused(collect(server, tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_what_fails_every_request_is_one_line_without_the_key(tmp_path):
    with serving(lambda number, body: error(401, f"wrong key {KEY}")) as server:
        done = collect(server, tmp_path)
    assert "refuses the key" in refused(done)
    assert KEY not in f"{done.output}{done.stderr}{done.exception}"
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    assert "36 requests: 12 questions × 3, responses of at most 4,096 tokens, 147,456 in all" in line


def plan_of(folder, **settings):
    config = RGDumpConfig(tasks={"gcd": 1}, dump_dir=str(folder), **settings)
    options = EndpointOptions("http://localhost:1", "m", "m", Sampling(), RequestLimits())
    return Job("collect", train_questions(config, 2), 3, config, options).plan


GROUPS_OF_SETTINGS = ("sampling", "config", "config.scorer", "config.length_penalty")


@pytest.mark.parametrize("group", GROUPS_OF_SETTINGS)
def test_a_setting_that_only_one_of_two_programs_has_keeps_no_run_from_being_resumed(tmp_path, group):
    plan = plan_of(tmp_path)
    older, newer = json.loads(json.dumps([plan, plan]))
    part = older
    for name in group.split("."):
        part = part[name]
    del part[next(iter(part))]
    for before, now in ((older, newer), (newer, older)):
        with begun(tmp_path, before) as run_id:
            assert claim(tmp_path, now, resume=True).run_id == run_id


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("config.tasks.lcm", "tasks was {"),
        ("sampling.request.top_k", "top_k was null, is now 7"),
        ("questions.suite", "the questions are others"),
        ("samples", "--samples was 3, is now 7"),
    ],
)
def test_what_the_user_adds_keeps_a_run_from_being_resumed(tmp_path, name, said):
    plan = plan_of(tmp_path)
    changed = part = json.loads(json.dumps(plan))
    *groups, key = name.split(".")
    for group in groups:
        part = part[group]
    part[key] = 7
    with begun(tmp_path, plan), pytest.raises(ConfigError, match=re.escape(said)):
        claim(tmp_path, changed, resume=True)


@pytest.mark.parametrize(
    ("edited", "said"), [("mine.yaml", ": tasks was {'gcd': 1"), ("mine.csv", ": the questions are others")]
)
def test_an_edited_mix_or_file_of_questions_keeps_a_run_from_being_resumed(tmp_path, monkeypatch, edited, said):
    monkeypatch.chdir(tmp_path)
    mix = "{gcd: 1, mine: {file: {path: mine.csv, scorer: exact}}}"
    Path("mine.yaml").write_text(f"environment.skyrl_gym.rg_dump.tasks: {mix}\n")
    Path("mine.csv").write_text("question,answer\nWhich?,1\nWho?,2\nWhere?,3\n")
    with serving(lambda number, body: completion("") if number else error(500, "down")) as server:
        assert collect(server, "dump", "--tasks", "mine.yaml", "--retries", "0").exit_code == 1
        Path(edited).write_text(Path(edited).read_text().replace("1", "9"))
        assert said in refused(collect(server, "dump", "--tasks", "mine.yaml", "--resume"))


def test_what_changes_no_group_is_free(tmp_path):
    """As it is where a training is continued."""
    free = {"groups_per_file": 7, "dump_fsync": True, "debug_logging": True, "scorer": ScorerConfig(workers=1)}
    with begun(tmp_path, plan_of(tmp_path)) as run_id:
        assert claim(tmp_path, plan_of(tmp_path, **free), resume=True).run_id == run_id


@contextlib.contextmanager
def begun(folder, plan):
    """A run with this plan, of which nothing is answered."""
    path = write_manifest(folder, "run", Attempt(plan=plan))
    yield "run"
    path.unlink()


def test_equal_samples_of_a_question_are_said_before_they_are_asked(right, tmp_path):
    said = "3 samples of a question at temperature 0 are the same response 3 times: set --temperature 1, or --samples 1"
    for temperature, samples, is_said in (("0", 3, True), ("0", 1, False), ("0.5", 3, False)):
        with serving(right) as server:
            out = tmp_path / f"{temperature}-{samples}"
            done = collect(server, out, "--temperature", temperature, samples=samples)
        assert (done.exit_code, said in done.stderr) == (0, is_said), done.output


def test_equal_seeds_of_samples_are_said(right, tmp_path):
    said = "2 samples of a question with one seed are the same response 2 times: leave out `seed` of additional_kwargs"
    setting = "generator.sampling_params.additional_kwargs={seed: 7}"
    with serving(right) as server:
        done = collect(server, tmp_path / "out", setting, samples=2)
        assert {body["seed"] for body in server.requests} == {7}
    assert (done.exit_code, said in done.stderr) == (0, True), done.output


def test_of_two_commands_with_one_folder_one_answers_and_the_other_says_why_not(right, tmp_path):
    folder = tmp_path / "dump"

    def slow(number, body):
        time.sleep(0.3)
        return right(number, body)

    with serving(slow) as server:
        both = [started(server, folder) for _ in range(2)]
        ends = [(process.communicate(timeout=280)[1], process.returncode) for process in both]
    (refusal,) = [text for text, code in ends if code == 2]
    (done,) = [text for text, code in ends if code == 0]
    assert (refusal[:8], refusal.count("\n")) == ("rg-env: ", 1), refusal
    assert re.search(r"use another --out|or choose another folder|: choose another folder", refusal), refusal
    assert f"{GROUPS} of {GROUPS} groups in {folder}" in done
    assert len(server.requests) == GROUPS * SAMPLES, "the refused command asks nothing"
    assert set(items(folder).values()) == {1}
    assert validate(folder).good


def test_a_killed_run_is_resumed_without_repeating_a_group(right, tmp_path):
    def slow(number, body):
        time.sleep(0.1)
        return right(number, body)

    with serving(slow) as server:
        process = started(server, tmp_path)
        wait_for_groups(tmp_path, 2)
        process.kill()
        process.communicate()
        (ledger,) = tmp_path.glob("*ledger*.part")
        ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))  # killed before this line
        before = items(tmp_path)
        assert 1 <= len(before) < GROUPS
        assert "has an unfinished run" in refused(collect(server, tmp_path))
        assert ": --temperature was 1.0, is now 0.3" in refused(
            collect(server, tmp_path, "--resume", "--temperature", "0.3")
        )
        assert ": --samples was 3, is now 4" in refused(collect(server, tmp_path, "--resume", samples=4))
        other_seed = refused(collect(server, tmp_path, "--resume", "seed=7"))
        assert ": seed was 42, is now 7; use the same" in other_seed and "config" not in other_seed
        assert items(tmp_path) == before
        done = collect(server, tmp_path, "--resume", "--concurrency", "16", "scorer.workers=1")
        assert done.exit_code == 0, done.output
        asked = len(server.requests)
        again = collect(server, tmp_path, "--resume")
        assert (again.exit_code, len(server.requests)) == (0, asked)
        assert "nothing left to do" in again.stderr
    assert set(items(tmp_path).values()) == {1}
    assert len(items(tmp_path)) == GROUPS
    assert validate(tmp_path).good
    (run,) = open_run(tmp_path).runs
    assert [attempt.attempt for attempt in run.manifest.attempts] == [1, 2]


def test_sigterm_keeps_the_finished_groups_and_drops_the_others(right, tmp_path):
    with serving(lambda number, body: right(number, body) if number < 9 else Answer(HANG)) as server:
        process = started(server, tmp_path)
        wait_for_groups(tmp_path, 2)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 143, errors
        assert "Traceback" not in errors
        assert f"rerun with --resume --out {tmp_path}" in errors
        assert not list(tmp_path.glob("*.part"))
        assert validate(tmp_path).good
        server.script = right
        assert collect(server, tmp_path, "--resume").exit_code == 0
    assert set(items(tmp_path).values()) == {1}
    assert len(items(tmp_path)) == GROUPS


def test_the_budget_of_tokens(right, tmp_path):
    with serving(right) as server:
        done = collect(server, tmp_path, "--max-tokens-total", "100", "--concurrency", "1")
        assert done.exit_code == 1, done.output
        assert "stopped at --max-tokens-total" in done.stderr
        assert len(items(tmp_path)) < GROUPS / 2
        assert collect(server, tmp_path, "--resume", "--max-tokens-total", "100000").exit_code == 0
    assert len(items(tmp_path)) == GROUPS


def test_reasoning_apart_and_opened_think_blocks_are_scored_and_said(answers, tmp_path):
    def script(number, body):
        answer = f"<answer>{answers[body['messages'][-1]['content']]}</answer>"
        if number % 2:
            return completion(answer, reasoning_content="two tags: <answer></answer>")
        return completion(f"hm</think>{answer}")

    with serving(script) as server:
        done = collect(server, tmp_path, samples=2)
    assert f"{GROUPS} responses with the reasoning apart" in done.stderr
    assert (
        f"{GROUPS} responses to a prompt that opened <think>: it was added; train with prefilled_think=true"
        in done.stderr
    )
    texts = [rollout.response for _, rollout in open_run(tmp_path).rollouts()]
    assert all(text.startswith("<think>") for text in texts)
    assert {rollout.base_score for _, rollout in open_run(tmp_path).rollouts()} == {1.0}
    shown = [line.partition("solved ")[2][:4] for line in done.stderr.splitlines() if "solved " in line]
    assert shown and set(shown) == {"1.00"}, "also while it runs"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["scorer.timeuot=3"], "did you mean scorer.timeout"),
        (["solved_at=2"], "solved_at=2: must be"),
        (["complexity=hard"], "complexity='hard': must be random, or a number"),
        (["eval_seed=3"], "eval_seed=3: collect only sends requests, so it would have no effect"),
        (["--groupz", "3"], "no option --groupz; did you mean --groups"),
        (["trainer.eval_batch_size=3"], "trainer.eval_batch_size=3: collect only sends requests"),
        (["--", "--tensor-parallel-size", "4"], "is for a server that --model starts; leave out --endpoint"),
        (["dump_dir"], "or key=value without spaces"),
    ],
)
def test_wrong_settings_are_refused_before_any_request(more, message, right, tmp_path):
    with serving(right) as server:
        assert message in refused(collect(server, tmp_path, *more))
    assert not server.requests


def test_a_run_that_keeps_no_text_says_which_settings_decided(right, tmp_path):
    off = [f"dump_{kind}=false" for kind in ("rollouts", "failed_rollouts", "other_rollouts")]
    with serving(right) as server:
        kept, dropped = collect(server, tmp_path / "a"), collect(server, tmp_path / "b", *off)
    assert "no rollouts saved" not in kept.stderr
    assert "no rollouts saved" in dropped.stderr
    assert "(dump_rollouts=false)" in dropped.stderr


def test_a_full_disk_ends_with_exit_code_3_and_says_how_many_groups_in_the_last_line(right, tmp_path):
    with serving(right) as server:
        done = run_program("small_disk", *arguments(server, tmp_path), check=False)
    assert done.returncode == 3, done.stderr
    missing = GROUPS - len(items(tmp_path))
    assert 0 < missing < GROUPS
    assert f"{missing} groups of this run missing from {tmp_path}" in done.stderr.splitlines()[-1]
    assert "--resume" not in done.stderr
    (run,) = open_run(tmp_path).runs
    assert run.manifest.missing_groups == missing and run.manifest.ended


def test_a_second_signal_ends_a_command_whose_disk_hangs(tmp_path):
    process = subprocess.Popen(program("hanging_disk", tmp_path), cwd=ROOT, stdout=subprocess.PIPE)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    for _ in range(100):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert process.wait(0.5) == 130
            return
    raise AssertionError


def test_a_refusal_of_one_prompt_loses_no_other(right, answers, tmp_path):
    asked = Counter()

    def moderated(number, body):
        """The first question is flagged, after its first request."""
        question = body["messages"][-1]["content"]
        asked[question] += 1
        is_flagged = question == next(iter(answers)) and asked[question] > 1
        return error(403, "flagged by moderation") if is_flagged else right(number, body)

    with serving(moderated) as server:
        first = collect(server, tmp_path, "--concurrency", "1")
        server.script = lambda number, body: error(403, "flagged by moderation")
        second = collect(server, tmp_path, "--resume")
    for done in (first, second):
        assert done.exit_code == 1, done.output
        assert "2 requests failed (status no_response), the last one: 403: flagged by moderation" in done.stderr
        assert f"2 of {GROUPS * SAMPLES} responses missing" in done.stderr


def test_a_quota_that_is_used_up_keeps_what_was_answered(right, tmp_path):
    used_up = error(429, "You exceeded your current quota", "insufficient_quota")
    with serving(lambda number, body: right(number, body) if number < 10 else used_up) as server:
        done = collect(server, tmp_path, "--retries", "0")
    assert done.exit_code == 1, done.output
    assert "the quota is used up" in done.stderr
    assert len(texts_of(tmp_path)) == 10, "groups in progress are recorded"
    assert len(server.requests) < 10 + 2 * 4, "nothing more is asked"


def texts_of(folder):
    """The responses in the dump, by question and repetition."""
    rollouts = open_run(folder).rollouts()
    return {(group.call, one.repetition): one.response for group, one in rollouts if one.status != "no_response"}


def test_resume_sends_no_answered_request_again(answers, tmp_path):
    """Half of the requests to each question fail, whatever the retries. Two resumptions later all are answered once."""
    asked, served = Counter(), Counter()

    def script(number, body):
        question = body["messages"][-1]["content"]
        with lock:
            asked[question] += 1
            if asked[question] % 2 == 0:
                return error(400, "overloaded")
            served[question] += 1
            return completion(
                f"<think>{served[question]}</think><answer>{answers[question]}</answer>", tokens=served[question]
            )

    lock = threading.Lock()
    penalty = ("length_penalty.kind=kimi",)
    with serving(script) as server:
        first = collect(server, tmp_path, *penalty, samples=4)
        earlier = texts_of(tmp_path)
        second = collect(server, tmp_path, *penalty, "--resume", samples=4)
        third = collect(server, tmp_path, *penalty, "--resume", samples=4)
        again = collect(server, tmp_path, *penalty, "--resume", samples=4)
        refusal = refused(collect(server, tmp_path, *penalty, samples=4))
    assert [done.exit_code for done in (first, second, third, again)] == [1, 1, 0, 0], third.output
    assert f"{GROUPS * 2} requests: {GROUPS} questions × 4 less {GROUPS * 2} answered before" in second.stderr
    assert "has the dump of a finished run: choose another folder" in refusal
    assert set(served.values()) == {4}, "no answered request is sent again"
    groups = list(open_run(tmp_path).groups())
    assert sorted(group.call for group in groups) == list(range(GROUPS))
    for group in groups:
        assert [rollout.repetition for rollout in group.rollouts] == [0, 1, 2, 3]
        assert len({rollout.response for rollout in group.rollouts}) == 4
        assert sorted(rollout.response_tokens for rollout in group.rollouts) == [1, 2, 3, 4]
        rewards = sorted(rollout.reward for rollout in group.rollouts)
        assert rewards == pytest.approx([0.5, 0.5 + 1 / 3, 0.5 + 2 / 3, 1.5]), "the penalty is that of the whole group"
        assert group.attempt == 3
    assert earlier.items() <= texts_of(tmp_path).items(), "earlier responses are taken over as they were"
    assert validate(tmp_path).good


def test_a_group_without_its_text_is_asked_whole(right, tmp_path):
    def half(number, body):
        return right(number, body) if number % 2 else error(400, "overloaded")

    with serving(half) as server:
        collect(server, tmp_path, "dump_rollouts=false", "dump_other_rollouts=false", "dump_failed_rollouts=false")
        ledger = open_run(tmp_path).ledger()
        incomplete = [record for record in ledger if any(one.status == "no_response" for one in record.rollouts)]
        server.script = right
        before = len(server.requests)
        done = collect(
            server,
            tmp_path,
            "--resume",
            "dump_rollouts=false",
            "dump_other_rollouts=false",
            "dump_failed_rollouts=false",
        )
    assert done.exit_code == 0, done.output
    assert incomplete
    assert len(server.requests) - before == len(incomplete) * SAMPLES
    assert len(list(open_run(tmp_path).ledger())) == GROUPS
