"""Our own requests: responses and answers to an item, or calls of the user's function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from rg_env.choices import ResponseFormat
from rg_env.integrations.desk import Desk, RefusedError, Reply, ScoredText, find_item
from rg_env.runner.caller_guarded import Guarded
from rg_env.tasks import list_tasks


class ScoreRequest(BaseModel):
    """An item, as `entry` or `item`, and `response` (with its tags) or `answer`: a string or a list of strings."""

    model_config = ConfigDict(extra="forbid")

    entry: dict[str, Any] | str | None = None
    item: str | None = None
    task: str | None = None
    config: dict[str, Any] | None = None
    response: str | list[str] | None = None
    answer: str | list[str] | None = None
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
    async def tasks() -> Reply:
        """The tasks of Reasoning Gym."""
        return Reply([asdict(task) for task in list_tasks()])

    @router.post("/score", response_model=None)
    async def score(request: ScoreRequest) -> Reply:
        """The verdict of each response or answer to an item of Reasoning Gym."""
        return Reply({"verdicts": [_verdict(result) for result in await _score(desk, request)]})

    return router


def function_routes(desk: Desk, function: Guarded) -> APIRouter:
    """POST /score, which calls the user's function."""
    router = APIRouter()

    @router.post("/score", response_model=None)
    async def call(request: CallRequest) -> Reply:
        """The result of each call."""
        results = await desk.run([partial(function.ascore, *arguments) for arguments in request.calls])
        desk.scored.update(result.status for result in results)
        return Reply({"results": [{"value": r.value, "status": r.status, "detail": r.detail} for r in results]})

    return router


async def _score(desk: Desk, request: ScoreRequest) -> Sequence[ScoredText]:
    if (request.response is None) == (request.answer is None):
        raise RefusedError(422, "send either `response`, a text with its tags, or `answer`, the answer alone")
    item = await find_item(desk, request.entry if request.item is None else request.item, request.task, request.config)
    if request.answer is not None:
        return await desk.score_answers(item, _as_list(request.answer))
    pairs = [(item, text) for text in _as_list(request.response)]
    return await desk.score_responses(pairs, format=request.format, prefilled_think=request.prefilled_think)


def _as_list(texts: str | list[str] | None) -> list[str]:
    return [texts] if isinstance(texts, str) else texts or []


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
