"""ORS over HTTP: a question is answered once, and sessions are bounded, expire, and are nobody else's.

The SDK and TRL's adapter are tried in `test_clients.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from rg_env import ReasoningGymDataset
from rg_env.scoring import AnswerScore, Scorer, Status
from rg_env.serve.desk import Desk
from rg_env.serve.dialects import ors
from rg_env.serve.episodes import Episodes
from rg_env.serve.http_app import make_app
from rg_env.tasks import TaskMix

MIX = "gcd,chain_sum"
TRAIN = ReasoningGymDataset(MIX, 50, 42, "train")


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(workers=1) as made:
        yield made


@asynccontextmanager
async def asking(scorer: Any, **limits: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server in this process."""
    desk = Desk(scorer, tasks=TaskMix.parse(MIX), rows=50)
    app = make_app(desk, Episodes(desk, **limits))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
        yield client


def events_of(reply: httpx.Response) -> dict[str, str]:
    """The events of a stream, by name."""
    assert reply.status_code == 200, reply.text
    events = {}
    for part in reply.text.split("\n\n"):
        if part.startswith("event: "):
            name, _, data = part.partition("\n")
            events[name.removeprefix("event: ")] = data.removeprefix("data: ")
    return events


async def new_session(client: httpx.AsyncClient, **task: Any) -> dict[str, str]:
    """The header of a session with a task."""
    key = events_of(await client.post("/create_session", json={}))["task_id"]
    headers = {"X-Session-ID": key}
    (await client.post("/create", json=task, headers=headers)).raise_for_status()
    return headers


async def submit(client: httpx.AsyncClient, headers: dict[str, str], answer: Any, **more: Any) -> Any:
    return await call(client, headers, {"name": "submit", "input": {"answer": answer}, **more})


async def respond(client: httpx.AsyncClient, headers: dict[str, str], response: str) -> Any:
    return await call(client, headers, {"name": "respond", "input": {"response": response}})


async def call(client: httpx.AsyncClient, headers: dict[str, str], body: Any) -> Any:
    """The result of a tool."""
    return json.loads(events_of(await client.post("/call", json=body, headers=headers))["end"])


def run(scorer: Any, test: Callable[[httpx.AsyncClient], Awaitable[None]], **limits: Any) -> None:
    async def ask() -> None:
        async with asking(scorer, **limits) as client:
            await test(client)

    asyncio.run(ask())


def test_tasks_are_the_rows_of_both_splits(scorer: Scorer) -> None:
    async def test(client: httpx.AsyncClient) -> None:
        assert (await client.get("/list_environments")).json() == [ors.NAME]
        splits = (await client.get(f"/{ors.NAME}/splits")).json()
        assert splits == [{"name": "train", "type": "train"}, {"name": "eval", "type": "validation"}]
        tasks = (await client.post("/tasks", json={"split": "train"})).json()["tasks"]
        names = [TRAIN.item(index).task for index in range(50)]
        assert [(task["index"], task["task"]) for task in tasks] == list(enumerate(names))
        last = (await client.post("/Reasoning_Gym/task_range", json={"split": "eval", "start": -2})).json()
        assert [task["index"] for task in last["tasks"]] == [48, 49]
        for split, dataset in (("train", TRAIN), ("eval", ReasoningGymDataset(MIX, 50, 123, "eval"))):
            headers = await new_session(client, split=split, index=7)
            question = dataset.item(7).entry["question"]
            (block,) = (await client.get("/prompt", headers=headers)).json()
            assert block["text"].startswith(question)
            (message,) = (await client.get("/messages", headers=headers)).json()
            assert message["blocks"] == [block]

    run(scorer, test)


def test_the_first_answer_counts_and_no_other(scorer: Scorer) -> None:
    async def test(client: httpx.AsyncClient) -> None:
        item = TRAIN.item(3)
        right = item.entry["answer"]
        for answer, reward in ((right, 1.0), ("certainly wrong", 0.0)):
            headers = await new_session(client, task_spec={"split": "train", "index": 3})
            refused = await submit(client, headers, [right])
            assert (refused["ok"], refused["reason"]) == (False, "input_validation")
            # A model that calls the tool many times at once has one answer, too.
            results = await asyncio.gather(*(submit(client, headers, answer) for _ in range(5)))
            scored = [result["output"] for result in results if result["ok"]]
            assert [(output["reward"], output["finished"]) for output in scored] == [(reward, True)]
            late = await submit(client, headers, right)
            assert (late["ok"], late["reason"]) == (False, "episode_finished")
        headers = await new_session(client, task_spec={"item": item.id})
        result = await respond(client, headers, f"So <answer>{right}</answer>")
        assert result["output"]["reward"] == 1.0

    run(scorer, test)


class _Failing:
    """A scorer whose machine fails once."""

    workers = 1

    def __init__(self, scorer: Scorer) -> None:
        self._scorer, self._failures = scorer, 1

    async def score_answer_async(self, *arguments: Any) -> AnswerScore:
        if self._failures:
            self._failures -= 1
            return AnswerScore(None, None, 0.0, Status.TIMEOUT, "no core", excused=True)
        return await self._scorer.score_answer_async(*arguments)


def test_an_answer_that_the_machine_did_not_score_has_no_reward_and_may_be_sent_again(scorer: Scorer) -> None:
    async def test(client: httpx.AsyncClient) -> None:
        headers = await new_session(client, split="train", index=3)
        first = (await submit(client, headers, "1"))["output"]
        assert (first["reward"], first["finished"], first["metadata"]["status"]) == (None, False, "timeout")
        again = (await submit(client, headers, TRAIN.item(3).entry["answer"]))["output"]
        assert (again["reward"], again["finished"]) == (1.0, True)

    run(_Failing(scorer), test)


def test_a_lost_connection_gets_the_same_verdict_and_no_second_try(scorer: Scorer) -> None:
    async def test(client: httpx.AsyncClient) -> None:
        headers = await new_session(client, split="train", index=3)
        body = {"name": "submit", "input": {"answer": "certainly wrong"}}
        task_id = events_of(await client.post("/call", json=body, headers=headers))["task_id"]
        again = await submit(client, headers, TRAIN.item(3).entry["answer"], task_id=task_id)
        assert again["output"]["reward"] == 0.0
        other = await new_session(client, split="train", index=3)
        reply = await client.post("/call", json={**body, "task_id": task_id}, headers=other)
        assert events_of(reply) == {"error": "unknown task_id"}

    run(scorer, test)


def test_sessions_are_bounded_expire_and_are_nobody_elses(scorer: Scorer) -> None:
    async def test(client: httpx.AsyncClient) -> None:
        body = {"split": "train", "index": 3}
        guessed = await client.post("/create", json=body, headers={"X-Session-ID": "1"})
        assert guessed.status_code == 410
        first, _ = [await new_session(client, **body) for _ in range(2)]
        key = events_of(await client.post("/create_session", json={}))["task_id"]
        full = await client.post("/create", json=body, headers={"X-Session-ID": key})
        assert (full.status_code, full.headers["Retry-After"]) == (503, "2")
        assert (await client.post("/create", json=body, headers=first)).status_code == 200  # the same again
        assert (await client.post("/create", json=body | {"index": 4}, headers=first)).status_code == 409
        (await client.post("/delete", headers=first)).raise_for_status()
        assert (await client.get("/prompt", headers=first)).status_code == 410
        headers = await new_session(client, **body)
        await asyncio.sleep(1.5)
        assert (await client.post("/ping", headers=headers)).status_code == 410
        await new_session(client, **body)

    run(scorer, test, most=4, idle_seconds=1.0)


@pytest.mark.parametrize(
    ("path", "body", "status", "why"),
    [
        ("/tasks", {"split": "test"}, 422, "split must be train or eval, not 'test'"),
        ("/task", {"split": "train", "index": 50}, 422, "index must be at least 0 and below 50, not 50"),
        ("/task", {"split": "train", "index": "x"}, 422, "body.index: Input should be a valid integer"),
        ("/other/tasks", {"split": "train"}, 404, "the environment is reasoning_gym, not 'other'"),
        ("/call", {"name": "submit", "input": {}}, 400, "send the header X-Session-ID"),
        ("/num_tasks", {"spilt": "train"}, 422, "body.split: Field required; body.spilt: Extra inputs"),
    ],
)
def test_what_is_wrong_is_one_line(scorer: Scorer, path: str, body: Any, status: int, why: str) -> None:
    async def test(client: httpx.AsyncClient) -> None:
        reply = await client.post(path, json=body)
        assert (reply.status_code, list(reply.json())) == (status, ["error"])
        assert why in reply.json()["error"]

    run(scorer, test)


@pytest.mark.parametrize("task", [{}, {"split": "train"}, {"index": 1}, {"task_spec": {"item": "x" * 500}}])
def test_a_session_needs_a_task(scorer: Scorer, task: Any) -> None:
    async def test(client: httpx.AsyncClient) -> None:
        key = events_of(await client.post("/create_session", json={}))["task_id"]
        reply = await client.post("/create", json=task, headers={"X-Session-ID": key})
        assert reply.status_code == 422 and len(reply.json()["error"]) < 200

    run(scorer, test)
