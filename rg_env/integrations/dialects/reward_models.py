"""Remote reward models, as OpenRLHF and slime call them.

These callers have no word for a response that was not scored: a failure of the machine is a 503, after which both ask
again.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from rg_env.choices import ResponseFormat
from rg_env.integrations.desk import Desk, RefusedError, Reply, find_item
from rg_env.scoring import Status


class RewardRequest(BaseModel):
    """What slime sends, or what OpenRLHF sends, where each query is the prompt and the response."""

    prompt: Any = ""
    response: str | None = None
    label: Any = None
    query: list[str] | None = None
    prompts: list[str] = []
    labels: list[Any] = []


def routes(desk: Desk) -> APIRouter:
    """POST /reward."""
    router = APIRouter()

    @router.post("/reward", response_model=None)
    async def reward(request: RewardRequest) -> Reply:
        """A number for slime, `{"rewards": […]}` for OpenRLHF. A label is an item: an entry, a row, or an id."""
        if request.query is not None:
            rewards = await _rewards(desk, _responses(request.query, request.prompts), request.labels)
            return Reply({"rewards": rewards, "scores": rewards, "extra_logs": {}})
        if request.response is not None:
            (single,) = await _rewards(desk, [request.response], [request.label])
            return Reply(single)
        raise RefusedError(
            422, "send response and label, as slime does, or query, prompts and labels, as OpenRLHF does"
        )

    return router


def _responses(queries: list[str], prompts: list[str]) -> list[str]:
    """The queries without their prompts."""
    if not prompts:
        return queries
    if len(prompts) != len(queries):
        raise RefusedError(422, "`query` and `prompts` differ in length")
    return [query.removeprefix(prompt) for query, prompt in zip(queries, prompts, strict=True)]


async def _rewards(desk: Desk, texts: list[str], labels: list[Any]) -> list[float]:
    if len(labels) != len(texts):
        raise RefusedError(422, f"{len(texts)} responses have {len(labels)} labels; send one for each")
    items = [await find_item(desk, label) for label in labels]
    results = await desk.score_responses(list(zip(items, texts, strict=True)), format=ResponseFormat.LENIENT)
    for result in results:
        scored = result.scored
        if scored.excused:
            # An item that cannot be scored stays so. After a failure of the machine, another try may help.
            status = 422 if scored.status is Status.ERROR else 503
            raise RefusedError(status, f"{scored.status}: {scored.detail}")
    return [result.scored.score for result in results]
