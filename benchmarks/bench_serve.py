"""Right answers over HTTP: `rg-env serve` with its guard and isolated processes, and a plain FastAPI server that calls
`score_answer` itself, which an answer can hang, crash or manipulate. 16 clients, each with one request after another.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import reasoning_gym

from benchmarks.comparison import Comparison, Goal, Measure, timed

CLIENTS = 16
ITEMS = 40
PLAIN = """
import asyncio, socket, reasoning_gym, uvicorn
from fastapi import FastAPI

app = FastAPI()

@app.post("/score")
def score(body: dict):
    entry, answer = body["entry"], body["answer"]
    score_answer = reasoning_gym.get_score_answer_fn(entry["metadata"]["source_dataset"])
    return [score_answer(form, entry) for form in (answer, f"<answer>{answer}</answer>")]

listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listener])
"""
RIVAL = "a plain FastAPI server that calls `score_answer`"


@contextmanager
def started(*arguments: str) -> Iterator[str]:
    """The address of a server, while it runs."""
    server = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    assert server.stdout
    try:
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address, "the server did not start"
        yield address[0]
    finally:
        server.terminate()
        server.wait()


def bodies(task: str) -> list[dict[str, Any]]:
    """Requests for right answers, as both servers take them."""
    dataset = reasoning_gym.create_dataset(task, seed=1, size=ITEMS)
    return [json.loads(json.dumps({"entry": entry, "answer": str(entry["answer"])})) for entry in dataset]


def asked(url: str, requests: list[dict[str, Any]], count: int) -> Measure:
    """The cost of an answer, when so many are asked for."""

    async def client_of(numbers: Iterator[int]) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=120) as client:
            for number in numbers:
                reply = await client.post("/score", json=requests[number % len(requests)])
                reply.raise_for_status()

    async def ask() -> None:
        numbers = iter(range(count))
        await asyncio.gather(*(client_of(numbers) for _ in range(CLIENTS)))

    return timed(lambda: asyncio.run(ask()), "ms", count)


def comparisons(folder: Path, quick: bool) -> Iterator[Comparison]:
    """Pairs of servers, for a task that takes no time and for one that does."""
    with started("-m", "rg_env", "serve", "--port", "0") as ours, started("-c", PLAIN) as plain:
        for task, count, goal in (("chain_sum", 1000, Goal(ratio=2.0)), ("intermediate_integration", 60, Goal())):
            requests = bodies(task)
            for url in (ours, plain):
                asked(url, list(itertools.islice(requests, 2)), CLIENTS)()  # processes and imports
            number = count // 4 if quick else count
            mine, theirs = (asked(url, requests, number) for url in (ours, plain))
            yield Comparison(f"{task}, an answer", "ms", mine, theirs, RIVAL, goal=goal)
