from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from rg_env.base.errors import ConfigError
from rg_env.skyrl.cpu import client as client_module
from rg_env.skyrl.cpu.client import CPUInferenceClient
from rg_env.skyrl.cpu.sampler import Request, Sample


class Method:
    """Stands for a method of an actor handle: `.remote(...)` gives something to await."""

    def __init__(self, answer: Any) -> None:
        self.remote = answer


class Actor:
    """Answers a request with its own prompt, and keeps the batches."""

    def __init__(self) -> None:
        self.batches: list[list[Request]] = []
        self.fail: Exception | None = None
        self.open: asyncio.Event | None = None
        self.sample = Method(self._sample)

    async def _sample(self, requests: list[Request]) -> list[Sample]:
        self.batches.append(requests)
        if self.open is not None:
            await self.open.wait()
        if self.fail is not None:
            raise self.fail
        return [Sample(list(r.prompt), [-0.5] * len(r.prompt), "stop", str(r.prompt[0])) for r in requests]


@pytest.fixture
def actor() -> Actor:
    return Actor()


@pytest.fixture
def client(actor: Actor) -> CPUInferenceClient:
    return CPUInferenceClient(actor, "toy", {"max_tokens": 4, "logprobs": 1})


def ask(client: CPUInferenceClient, *prompts: int, **params: Any) -> Any:
    return client.generate({"prompt_token_ids": [[p, p] for p in prompts], "sampling_params": params or None})


def test_concurrent_calls_become_batches_and_each_gets_its_own(
    client: CPUInferenceClient, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> list[Any]:
        return await asyncio.gather(*(ask(client, n, n + 100) for n in range(20)))

    outputs = asyncio.run(run())
    assert [len(batch) for batch in actor.batches] == [40]
    assert [output["response_ids"] for output in outputs] == [[[n, n], [n + 100] * 2] for n in range(20)]
    assert outputs[3]["responses"] == ["3", "103"] and outputs[3]["stop_reasons"] == ["stop", "stop"]
    assert outputs[3]["response_logprobs"] == [[-0.5, -0.5]] * 2
    monkeypatch.setattr(client_module, "MAX_BATCH", 16)
    assert [output["response_ids"] for output in asyncio.run(run())] == [output["response_ids"] for output in outputs]
    assert [len(batch) for batch in actor.batches] == [40, 16, 16, 8]


def test_an_error_reaches_every_waiter_and_the_next_call_works(client: CPUInferenceClient, actor: Actor) -> None:
    async def run() -> None:
        actor.fail = RuntimeError("the sampler is gone")
        outcomes = await asyncio.gather(*(ask(client, n) for n in range(5)), return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["the sampler is gone"] * 5
        actor.fail = None
        assert (await ask(client, 9))["response_ids"] == [[9, 9]]

    asyncio.run(run())


def test_a_cancelled_call_leaves_the_others_alone(client: CPUInferenceClient, actor: Actor) -> None:
    async def run() -> None:
        early, running, other = (asyncio.create_task(ask(client, n)) for n in (1, 2, 3))
        await asyncio.sleep(0)
        early.cancel()  # still waiting to be sent
        actor.open = asyncio.Event()
        while not actor.batches:
            await asyncio.sleep(0.01)
        running.cancel()  # its batch is with the actor
        await asyncio.sleep(0)
        actor.open.set()
        assert (await other)["response_ids"] == [[3, 3]]
        assert early.cancelled() and running.cancelled()

    asyncio.run(run())
    assert [[r.prompt[0] for r in batch] for batch in actor.batches] == [[2, 3]]


def test_a_refused_parameter_stops_the_call_before_it_is_sent(client: CPUInferenceClient, actor: Actor) -> None:
    with pytest.raises(ConfigError, match="unknown field `repetition_penalty`"):
        asyncio.run(ask(client, 1, repetition_penalty=1.5))
    assert actor.batches == []


def test_the_copy_of_a_policy_worker_has_its_name_and_version(client: CPUInferenceClient) -> None:
    client._actor = "handle"
    client.increment_weight_version()
    copy = pickle.loads(pickle.dumps(client))
    assert (copy.model_name, copy.weight_version) == ("toy", 1)
