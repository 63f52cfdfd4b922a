"""Remote reward models, as OpenRLHF and slime call them.

These callers have no word for a response that was not scored: a failure of the machine is a 503, after which both ask
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request

from rg_env.base.choices import ResponseFormat
from rg_env.scoring import Status
from rg_env.serve.bodies import Json, RefusedError, Texts, absent, decode, described, texts
from rg_env.serve.desk import Desk, JsonReply, find_item


class RewardRequest(msgspec.Struct):
    """What slime sends, or what OpenRLHF sends, where each query is the prompt and the response."""

    response: str | None = None
    label: Json = absent()
    query: Texts = absent()
    prompts: Texts = absent()
    labels: Json = absent()


def routes(desk: Desk) -> APIRouter:
    """POST /reward."""
    router = APIRouter()

    @router.post("/reward", response_model=None, openapi_extra=described(RewardRequest))
    async def reward(request: Request) -> JsonReply:
        """A number for slime, `{"rewards": […]}` for OpenRLHF. A label is an item: an entry, a row, or an id."""
        asked = await desk.read_body(request, RewardRequest)
        queries = texts(asked.query, desk.most_answers, "query")
        if queries is not None:
            responses = _responses(queries, texts(asked.prompts, desk.most_answers, "prompts") or [])
            rewards = await _rewards(desk, responses, _labels(asked.labels, len(responses)))
            return JsonReply({"rewards": rewards, "scores": rewards, "extra_logs": {}})
        if asked.response is not None:
            (single,) = await _rewards(desk, [asked.response], [asked.label])
            return JsonReply(single)
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


def _labels(written: msgspec.Raw, number: int) -> Sequence[msgspec.Raw]:
    """The labels, if it is this number of them."""
    try:
        # By their number, so that a longer list does not count as a list here.
        kind: Any = tuple[(msgspec.Raw,) * number]  # type: ignore[misc]
        return decode(written, kind, "labels")
    except RefusedError as error:
        raise RefusedError(422, f"send one label for each of the {number} responses: {error}") from None


async def _rewards(desk: Desk, responses: list[str], labels: Sequence[msgspec.Raw]) -> list[float]:
    items = [await find_item(desk, label) for label in labels]
    results = await desk.score_responses(list(zip(items, responses, strict=True)), format=ResponseFormat.LENIENT)
    for result in results:
        scored = result.scored
        if scored.excused:
            # An item that cannot be scored stays so. After a failure of the machine, another try may help.
            status = 422 if scored.status is Status.ERROR else 503
            raise RefusedError(status, f"{scored.status}: {scored.detail}")
    return [result.scored.score for result in results]
