"""A file of questions as a task, for those who ask and score without SkyRL: `serve`, `eval`, `collect` and TRL."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from rg_env import ReasoningGymDataset
from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import open_run
from rg_env.dump.validate import validate
from rg_env.scoring import Scorer
from rg_env.serve.desk import Desk
from rg_env.serve.episodes import Episodes
from rg_env.serve.http_app import make_app
from rg_env.tasks import TaskMix
from rg_env.tasks.item import split_of_row
from rg_env.tasks.questions import QuestionStream
from rg_env.trainers.trl import GRPOReward, to_dataset
from tests.evaluate.server import completion, serving
from tests.serve.test_episodes import new_session, submit
from tests.serve.test_serve import serving as serving_scores

CAPITALS = {f"The capital of country {n}?": f"City {n}" for n in range(40)}
OWN_SCORER = "tests.serve.served.is_same_city"


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    """A mix of two files, in YAML; the second is scored by a function of its user."""
    sums = "".join(json.dumps({"question": f"{n} + 1?", "answer": n + 1}) + "\n" for n in range(40))
    (tmp_path / "sums.jsonl").write_text(sums)
    lines = "".join(f"{question},{answer}\n" for question, answer in CAPITALS.items())
    (tmp_path / "capitals.csv").write_text("question,answer\n" + lines)
    return (
        f"{{sums: {{file: {{path: {tmp_path}/sums.jsonl, scorer: number}}}}, "
        f"capitals: {{file: {{path: {tmp_path}/capitals.csv, scorer: '{OWN_SCORER}'}}}}}}"
    )


def right_answer(question: str) -> str:
    """An answer that is written in another way than in the file."""
    if question in CAPITALS:
        return CAPITALS[question].upper()
    return f"{int(question.split()[0]) + 1}.0"


def right_response(number: int, body: dict[str, Any]) -> Any:
    question = body["messages"][-1]["content"]
    return completion(f"<think>hm</think><answer>{right_answer(question)}</answer>")


def test_the_server_scores_rows_by_id_and_in_episodes(tasks: str) -> None:
    rows = ReasoningGymDataset(tasks, size=20)
    items = [rows.item(index) for index in range(20)]
    assert {item.task for item in items} == {"sums", "capitals"}

    async def ask(scorer: Scorer) -> None:
        desk = Desk(scorer, tasks=TaskMix.parse(tasks), rows=20)
        transport = httpx.ASGITransport(make_app(desk, Episodes(desk)))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
            for item in items[:6]:
                answers = [right_answer(item.entry["question"]), "wrong"]
                for named in ({"item": item.id}, {"entry": json.loads(json.dumps(item.entry))}):
                    reply = await client.post("/score", json=named | {"answer": answers})
                    verdicts = reply.json()["verdicts"]
                    assert [(one["score"], one["status"]) for one in verdicts] == [(1.0, "ok"), (0.0, "ok")], verdicts
            headers = await new_session(client, split="train", index=3)
            result = await submit(client, headers, right_answer(items[3].entry["question"]))
            assert result["output"]["reward"] == 1.0, result

    with Scorer(workers=1) as scorer:
        asyncio.run(ask(scorer))


def test_serve_tries_the_answers_before_it_listens_and_gives_no_row_that_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"

    def write(broken: int) -> None:
        answers = ["seven" if number < broken else number for number in range(40)]
        lines = [json.dumps({"question": f"{number}?", "answer": answer}) for number, answer in enumerate(answers)]
        path.write_text("\n".join(lines))

    write(1)
    tasks = f"{{sums: {{file: {{path: {path}, scorer: number}}}}}}"
    stream = QuestionStream("sums", TaskMix.parse(tasks).files["sums"], 0, split_of_row("0?"))
    first, other = stream.at(0), stream.at(1)
    assert first.index == 1
    with serving_scores("--tasks", tasks) as server:
        refused = server.post("/score", json={"item": first.id, "answer": "seven"})
        assert (refused.status_code, "row is left out" in refused.text) == (422, True)
        scored = server.post("/score", json={"item": other.id, "answer": other.entry["answer"]}).json()
        assert scored["verdicts"][0]["score"] == 1.0
    write(10)
    done = CliRunner().invoke(app, ["serve", "--port", "0", "--tasks", tasks])
    assert "10 of 40 rows is not accepted by its own scorer" in str(done.exception)


def test_tasks_tries_the_answers_with_the_settings_of_the_recipe(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"question": f"{n}?", "answer": "ab" * (n + 1)}) + "\n" for n in range(40))
    (tmp_path / "own.jsonl").write_text(lines)
    recipe = tmp_path / "mine.yaml"
    tasks = f"{{own: {{file: {{path: {tmp_path}/own.jsonl}}}}}}"
    recipe.write_text(f"environment.skyrl_gym.rg_dump: {{tasks: {tasks}}}\n")
    assert CliRunner().invoke(app, ["tasks", str(recipe)]).exit_code == 0
    shutil.copy(tmp_path / "own.jsonl", tmp_path / "twice.jsonl")
    with (tmp_path / "own.jsonl").open("a") as file:
        file.write(lines.splitlines()[0])
    # A warning is a line like any other of this program, without time and place in the code.
    said = subprocess.run([sys.executable, "-m", "rg_env", "tasks", str(recipe)], capture_output=True, text=True).stderr
    assert said == f"rg-env: tasks.own.file: {tmp_path}/own.jsonl: 1 of 41 rows repeat the question of an earlier row\n"
    shutil.move(tmp_path / "twice.jsonl", tmp_path / "own.jsonl")
    (tmp_path / "short.yaml").write_text("environment.skyrl_gym.rg_dump.scorer.max_answer_chars: 78\n")
    done = CliRunner().invoke(app, ["tasks", str(recipe), str(tmp_path / "short.yaml"), "--json"])
    assert (done.exit_code, json.loads(done.stdout)[0]["left_out"]) == (1, [40])


@pytest.mark.parametrize("command", ["eval", "collect"])
def test_a_model_server_is_asked_and_scored(command: str, tasks: str, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    size = ["--items", "4"] if command == "eval" else ["--groups", "4"]
    with serving(right_response) as server:
        given = ["--endpoint", server.url, "--model", "m", "--tasks", tasks, "--out", str(dump), "--samples", "2"]
        done = CliRunner().invoke(app, [command, *given, *size])
    assert done.exit_code == 0, done.output
    assert validate(dump).good
    groups = list(open_run(dump).ledger())
    assert len(groups) == 4 and {group.task for group in groups} <= {"sums", "capitals"}
    assert {rollout.base_score for group in groups for rollout in group.rollouts} == {1.0}
    (run,) = open_run(dump).runs
    assert set(run.manifest.question_files) == {"sums", "capitals"}


def test_answers_that_are_no_numbers_are_counted_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "sums.csv").write_text("question,answer\n1 + 1?,2\n")
    tasks = f"{{sums: {{file: {{path: {tmp_path}/none.csv, eval_path: {tmp_path}/sums.csv, scorer: number}}}}}}"
    (tmp_path / "none.csv").write_text("question,answer\n1 + 2?,3\n")
    answers = ("2", "2 or 3", "no idea")
    with serving(lambda number, _: completion(f"<think>hm</think><answer>{answers[number]}</answer>")) as server:
        given = ["--endpoint", server.url, "--model", "m", "--tasks", tasks, "--samples", "3"]
        done = CliRunner().invoke(app, ["eval", *given, "--out", str(tmp_path / "dump")])
    assert "2 answers scored 0 (is not a number)" in done.stderr, done.output
    (group,) = open_run(tmp_path / "dump").groups()
    assert sorted(rollout.detail for rollout in group.rollouts) == ["", "is not a number", "is not a number"]


def test_trl_gets_rewards_for_rows(tasks: str, tmp_path: Path) -> None:
    rows = list(to_dataset(ReasoningGymDataset(tasks, size=4)))
    args: Any = SimpleNamespace(num_generations=2, max_completion_length=50, temperature=1.0, top_p=1.0)
    completions = []
    for row in rows:
        for answer in (right_answer(row["prompt"][-1]["content"]), "wrong"):
            completions.append([{"role": "assistant", "content": f"<think>hm</think><answer>{answer}</answer>"}])
    twice = [row for row in rows for _ in range(2)]
    with GRPOReward(args, RGDumpConfig(tasks=tasks), dump=tmp_path / "dump") as reward:
        rewards = reward(
            prompts=[row["prompt"] for row in twice],
            completions=completions,
            completion_ids=[[1, 2]] * len(twice),
            rg_item=[row["rg_item"] for row in twice],
        )
    assert rewards == [1.0, 0.0] * 4
    assert validate(tmp_path / "dump").good
    (run,) = open_run(tmp_path / "dump").runs
    assert set(run.manifest.question_files) == {"sums", "capitals"}
