"""Hostile answers get the same score from every dialect of the server as from the scorer in this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from rg_env.attack.attacks import attacks
from rg_env.rows.item_source import item_of_id
from rg_env.scoring import Scorer, Status
from rg_env.tasks import Item
from tests.serve.test_episodes import new_session, respond, run, scorer, submit
from tests.serve.test_serve import nemo_row

__all__ = ["scorer"]

Dialect = Callable[[httpx.AsyncClient, str, str], Awaitable[Any]]
TASKS = ("gcd", "countdown", "simple_equations")
EVERY = 9
"""One of so many attacks is tried; `rg-env attack` tries all, in process."""


async def posted(client: httpx.AsyncClient, path: str, body: Any) -> Any:
    reply = await client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def score_answer(client: httpx.AsyncClient, item_id: str, answer: str) -> Any:
    return (await posted(client, "/score", {"item": item_id, "answer": answer}))["verdicts"][0]["score"]


async def ors_answer(client: httpx.AsyncClient, item_id: str, answer: str) -> Any:
    return (await submit(client, await new_session(client, task_spec={"item": item_id}), answer))["output"]["reward"]


async def openenv_answer(client: httpx.AsyncClient, item_id: str, answer: str) -> Any:
    episode = (await posted(client, "/reset", {"item": item_id}))["metadata"]
    return (await posted(client, "/step", {**episode, "action": {"answer": answer}}))["reward"]


async def score_response(client: httpx.AsyncClient, item_id: str, text: str) -> Any:
    body = {"item": item_id, "response": text, "format": "lenient"}
    return (await posted(client, "/score", body))["verdicts"][0]["score"]


async def nemo_gym(client: httpx.AsyncClient, item_id: str, text: str) -> Any:
    return (await posted(client, "/verify", nemo_row(text, item_id)))["reward"]


async def slime(client: httpx.AsyncClient, item_id: str, text: str) -> Any:
    return await posted(client, "/reward", {"response": text, "label": item_id})


async def openrlhf(client: httpx.AsyncClient, item_id: str, text: str) -> Any:
    return (await posted(client, "/reward", {"query": [text], "labels": [item_id]}))["rewards"][0]


async def ors_response(client: httpx.AsyncClient, item_id: str, text: str) -> Any:
    return (await respond(client, await new_session(client, task_spec={"item": item_id}), text))["output"]["reward"]


async def openenv_response(client: httpx.AsyncClient, item_id: str, text: str) -> Any:
    episode = (await posted(client, "/reset", {"item": item_id}))["metadata"]
    return (await posted(client, "/step", {**episode, "action": {"response": text}}))["reward"]


OF_ANSWERS: tuple[Dialect, ...] = (score_answer, ors_answer, openenv_answer)
OF_RESPONSES: tuple[Dialect, ...] = (score_response, nemo_gym, slime, openrlhf, ors_response, openenv_response)


def texts_for(item: Item) -> list[str]:
    """The right answer, one with other words, and some that solve nothing."""
    hostile = [attack.answer(item.entry["question"]) for attack in attacks(["1"])[::EVERY]]
    # Half of a surrogate pair cannot be sent by this client; test_serve.py sends it.
    sendable = [text for text in hostile if text and text.encode(errors="replace").decode() == text]
    return [str(item.entry["answer"]), "certainly wrong", *sendable]


@pytest.mark.parametrize("task", TASKS)
def test_every_dialect_gives_the_score_of_the_process(scorer: Scorer, task: str) -> None:
    item = item_of_id(f"{task}-train-42-0")
    assert item is not None
    texts = texts_for(item)
    assert len(texts) > 8
    scores: dict[tuple[str, str], float] = {}

    async def test(client: httpx.AsyncClient) -> None:
        for text in texts:
            bare = scorer.score_answer(item.entry, text, item.config)
            # Its time is not the same twice.
            if bare.status is Status.TIMEOUT:
                continue
            response = f"<answer>{text}</answer>"
            verdict = scorer.score_response(item.entry, response, item.config, format="lenient")
            for dialect in OF_ANSWERS:
                scores[dialect.__name__, text] = (await dialect(client, item.id, text)) - bare.score
            # Some dialects take a text without an answer block whole, and then it is another answer.
            if verdict.parsed.answer is not None:
                for dialect in OF_RESPONSES:
                    scores[dialect.__name__, text] = (await dialect(client, item.id, response)) - verdict.scored.score

    run(scorer, test)
    assert scores and not any(scores.values())
