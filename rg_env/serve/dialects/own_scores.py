"""Our own requests: responses and answers to an item, or calls of the user's function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict

from rg_env.base.choices import ResponseFormat
from rg_env.runner.caller_guarded import Guarded
from rg_env.serve.bodies import Json, RefusedError, Texts, absent, described, texts
from rg_env.serve.desk import Desk, JsonReply, ScoredText, find_item
from rg_env.tasks import list_tasks


class ScoreRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An item, as `entry` or `item`, and `response` (with its tags) or `answer`: a string or a list of strings."""

    entry: Json = absent()
    item: str | None = None
    task: str | None = None
    config: Json = absent()
    response: Texts = absent()
    answer: Texts = absent()
    format: ResponseFormat = ResponseFormat.STRICT
    prefilled_think: bool = False


class CallRequest(BaseModel):
    """With `--scorer`: the arguments of several calls of the function."""

    model_config = ConfigDict(extra="forbid")

    calls: list[list[Any]]


def routes(desk: Desk) -> APIRouter:
    """POST /score, GET /tasks."""
    router = APIRouter()

    @router.get("/tasks", response_model=None)
    async def tasks() -> JsonReply:
        """The tasks of Reasoning Gym."""
        return JsonReply([asdict(task) for task in list_tasks()])

    @router.post("/score", response_model=None, openapi_extra=described(ScoreRequest))
    async def score(request: Request) -> JsonReply:
        """The verdict of each response or answer to an item of Reasoning Gym."""
        asked = await desk.read_body(request, ScoreRequest)
        return JsonReply({"verdicts": [_verdict(result) for result in await _score(desk, asked)]})

    return router


def function_routes(desk: Desk, function: Guarded) -> APIRouter:
    """POST /score, which calls the user's function."""
    router = APIRouter()

    @router.post("/score", response_model=None)
    async def call(request: CallRequest) -> JsonReply:
        """The result of each call."""
        results = await desk.run([partial(function.ascore, *arguments) for arguments in request.calls])
        desk.scored.update(result.status for result in results)
        return JsonReply({"results": [{"value": r.value, "status": r.status, "detail": r.detail} for r in results]})

    return router


async def _score(desk: Desk, request: ScoreRequest) -> Sequence[ScoredText]:
    responses = texts(request.response, desk.most_answers, "response")
    answers = texts(request.answer, desk.most_answers, "answer")
    if (responses is None) == (answers is None):
        raise RefusedError(422, "send either `response`, a text with its tags, or `answer`, the answer alone")
    if request.item is not None and bytes(request.entry) not in (b"", b"null"):
        raise RefusedError(422, "send either `item`, an id, or `entry`")
    item = await find_item(desk, request.entry if request.item is None else request.item, request.task, request.config)
    if answers is not None:
        return await desk.score_answers(item, answers)
    pairs = [(item, text) for text in responses or ()]
    return await desk.score_responses(pairs, format=request.format, prefilled_think=request.prefilled_think)


def _verdict(result: ScoredText) -> dict[str, Any]:
    scored = result.scored
    return {
        "score": scored.score,
        "raw": scored.raw,
        "tagged": scored.tagged,
        "status": scored.status.value,
        "violation": result.violation.value if result.violation else "",
        "answer": result.answer,
        "detail": scored.detail,
        "excused": scored.excused,
    }
