"""OpenEnv over HTTP; its own client is tried in `test_clients.py`."""

from __future__ import annotations

import errno
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from rg_env.scoring import Scorer
from rg_env.serve import episodes
from rg_env.serve.desk import Desk
from rg_env.serve.http_app import make_app
from tests.serve.test_episodes import TRAIN, run, scorer

__all__ = ["scorer"]


def test_an_episode_has_one_answer_and_is_known_by_its_id(scorer: Scorer) -> None:
    async def test(client: httpx.AsyncClient) -> None:
        item = TRAIN.item(3)
        for action, reward in (
            ({"answer": item.entry["answer"]}, 1.0),
            ({"response": f"It is \\boxed{{{item.entry['answer']}}}."}, 1.0),
            ({"response": f"\\boxed{{-1}}, no: \\boxed{{{item.entry['answer']}}}."}, 1.0),  # the last one
            ({"answer": "certainly wrong"}, 0.0),
        ):
            start = (await client.post("/reset", json={"index": 3})).json()
            assert start["observation"]["question"] == item.entry["question"]
            assert (start["reward"], start["done"]) == (None, False)
            episode = start["metadata"]
            end = (await client.post("/step", json={**episode, "action": action})).json()
            assert (end["reward"], end["done"], end["observation"]["status"]) == (reward, True, "ok")
            again = await client.post("/step", json={**episode, "action": {"answer": item.entry["answer"]}})
            assert again.status_code == 409
            state = (await client.get("/state", params=episode)).json()
            assert state == {**episode, "step_count": 1, "item": item.id}

    run(scorer, test)


@pytest.mark.parametrize(
    ("path", "body", "status", "why"),
    [
        ("/reset", {"index": 50}, 422, "index must be at least 0 and below 50"),
        ("/reset", {"index": 1, "episode_id": "mine"}, 422, "leave episode_id out"),
        ("/reset", {"item": "gcd"}, 422, "'gcd' is not an item id"),
        ("/step", {"action": {"answer": "1"}}, 422, "body.episode_id: Field required"),
        ("/step", {"action": {"answer": "1"}, "episode_id": "guessed"}, 410, "never started"),
        ("/step", {"action": {"anwser": "1"}, "episode_id": "x"}, 422, "body.action.anwser: Extra inputs"),
    ],
)
def test_what_is_wrong_is_one_line(scorer: Scorer, path: str, body: Any, status: int, why: str) -> None:
    async def test(client: httpx.AsyncClient) -> None:
        reply = await client.post(path, json=body)
        assert (reply.status_code, list(reply.json())) == (status, ["error"])
        assert why in reply.json()["error"]

    run(scorer, test)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"bytes": b'{"type": "state"}'}, "EXECUTION_ERROR"),  # before an episode
        ({"text": None, "bytes": b"\xff\xfe"}, "INVALID_JSON"),
        ({"text": "{", "bytes": None}, "INVALID_JSON"),
        ({"text": ""}, "INVALID_JSON"),
    ],
)
def test_every_frame_of_a_websocket_has_a_reply_of_one_line(scorer: Scorer, frame: Any, code: str) -> None:
    """Also a binary one, of which Starlette's `receive_text` makes a KeyError."""
    with TestClient(make_app(Desk(scorer))) as client, client.websocket_connect("ws://127.0.0.1/ws") as socket:
        socket.send({"type": "websocket.receive", **frame})
        reply = socket.receive_json()
        assert (reply["type"], reply["data"]["code"]) == ("error", code)
        assert "\n" not in reply["data"]["message"]
        socket.send_json({"type": "close"})


def test_a_moment_without_descriptors_closes_no_split(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def test(client: httpx.AsyncClient) -> None:
        with monkeypatch.context() as moment:
            moment.setattr(episodes, "ReasoningGymDataset", fail)
            failed = await client.post("/reset", json={"index": 3})
        assert (failed.status_code, "Too many open files" in failed.json()["error"]) == (503, True)
        assert (await client.post("/reset", json={"index": 3})).status_code == 200

    run(scorer, test)
