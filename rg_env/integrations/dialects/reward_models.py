"""Remote reward models, as OpenRLHF and slime call them.

These callers have no word for a response that was not scored: a failure of the machine is a 503, after which both ask
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Discriminator, Tag

from rg_env.choices import ResponseFormat
from rg_env.integrations.desk import Desk, RefusedError, find_item
from rg_env.integrations.reply import Reply
from rg_env.scoring import Status


class RewardRequest(BaseModel):
    """What slime sends."""

    prompt: Any = ""
    response: str
    label: Any


class RewardsRequest(BaseModel):
    """What OpenRLHF sends: each query is the prompt and the response."""

    query: list[str]
    prompts: list[str] = []
    labels: list[Any]


def _caller(body: object) -> str:
    return "openrlhf" if isinstance(body, Mapping) and "query" in body else "slime"


# One of the two, so that a mistake is told for the caller that it is.
AnyRequest = Annotated[
    Annotated[RewardRequest, Tag("slime")] | Annotated[RewardsRequest, Tag("openrlhf")], Discriminator(_caller)
]


def routes(desk: Desk) -> APIRouter:
    """POST /reward."""
    router = APIRouter()

    @router.post("/reward", response_model=None)
    async def reward(request: AnyRequest) -> Reply:
        """A number for slime, `{"rewards": […]}` for OpenRLHF. A label is an item: an entry, a row, or an id."""
        if isinstance(request, RewardRequest):
            (single,) = await _rewards(desk, [request.response], [request.label])
            return Reply(single)
        rewards = await _rewards(desk, _responses(request), request.labels)
        return Reply({"rewards": rewards, "scores": rewards, "extra_logs": {}})

    return router


def _responses(request: RewardsRequest) -> list[str]:
    prompts = request.prompts or [""] * len(request.query)
    if not len(request.query) == len(prompts) == len(request.labels):
        raise RefusedError(422, "`query`, `prompts` and `labels` differ in length")
    return [query.removeprefix(prompt) for query, prompt in zip(request.query, prompts, strict=True)]


async def _rewards(desk: Desk, texts: list[str], labels: list[Any]) -> list[float]:
    items = [await find_item(desk, label) for label in labels]
    results = await desk.score_responses(list(zip(items, texts, strict=True)), format=ResponseFormat.LENIENT)
    for result in results:
        scored = result.scored
        if scored.excused:
            # An item that cannot be scored stays so. After a failure of the machine, another try may help.
            status = 422 if scored.status is Status.ERROR else 503
            raise RefusedError(status, f"{scored.status}: {scored.detail}")
    return [result.scored.score for result in results]
