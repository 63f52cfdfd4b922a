"""`rg-env serve`: the scorers of this machine for programs elsewhere, over HTTP.

Invariant: a request gets the verdict of its answer or an error, never a score of 0 that the answer did not earn. A body
that cannot be read, an unknown task and a full queue are 4xx or 503 with one line, `{"error": …}`. Nothing in a request
hangs, crashes or changes the server, as nowhere in `rg_env.scoring`.

Three kinds of callers share the scorers: ours (`/score`), NeMo Gym (`/verify`), and remote reward models as OpenRLHF
and slime call them (`/reward`). Not covered: encryption, and the arguments of a function of the user's (`--scorer`),
which has its processes and deadlines, but no guard.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from rg_env.choices import ResponseFormat
from rg_env.dataset import item_of_id
from rg_env.errors import ConfigError, RGEnvError, one_line
from rg_env.scoring import AnswerScore, Scorer, Status, Violation
from rg_env.scoring.functions import Guarded
from rg_env.tasks import Item, decode_entry, list_tasks
from rg_env.tasks.registry import check_name, check_options

RETRY_SECONDS = 2
_LONGEST_ID, _MOST_MADE = 200, 4096
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_LENIENT = {"format": ResponseFormat.LENIENT}
_NO_ITEM = "name the item: an entry of Reasoning Gym, or an id such as chain_sum-train-42-0"


class RefusedError(Exception):
    """A request that gets no score: the HTTP status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class RequestedItem:
    """The entry that a request is about, and the options of its task."""

    entry: Mapping[str, Any]
    config: Mapping[str, Any] | None = None


@dataclass
class Desk:
    """Hands answers to the scorers, and counts.

    Attributes:
        function: what is served in place of Reasoning Gym's scorers, if anything.
        token: what clients send as `Authorization: Bearer TOKEN`; empty: everybody may ask.
        most_waiting: answers that may be scored, or wait for it, at the same time.
        most_bytes: of a request.
        scored: answers by status.
    """

    scorer: Scorer
    function: Guarded | None = None
    token: str = ""
    most_waiting: int = 4096
    most_bytes: int = 16 << 20
    waiting: int = 0
    scored: Counter[str] = field(default_factory=Counter)

    async def wait_for[T](self, count: int, results: Iterable[Awaitable[T]]) -> list[T]:
        """The results of `count` answers, which start now, or a refusal of all of them if too many wait."""
        if self.waiting + count > self.most_waiting:
            raise RefusedError(503, f"more than {self.most_waiting} answers would be waiting; try again")
        self.waiting += count
        try:
            return await asyncio.gather(*results)
        finally:
            self.waiting -= count

    async def score_responses(
        self, pairs: list[tuple[RequestedItem, str]], **how: Any
    ) -> list[tuple[AnswerScore, str | None, Violation | None]]:
        """The score, the answer and the violation of each response."""
        score = self.scorer.score_response_async
        verdicts = await self.wait_for(len(pairs), (score(i.entry, text, i.config, **how) for i, text in pairs))
        self.scored.update(verdict.scored.status.value for verdict in verdicts)
        return [(verdict.scored, verdict.parsed.answer, verdict.parsed.violation) for verdict in verdicts]

    async def score_answers(self, item: RequestedItem, answers: list[str]) -> list[AnswerScore]:
        score = self.scorer.score_answer_async
        scores = await self.wait_for(len(answers), (score(item.entry, answer, item.config) for answer in answers))
        self.scored.update(scored.status.value for scored in scores)
        return scores


# -- items


_made: dict[str, RequestedItem] = {}
"""Items by their ids."""


async def find_item(what: object, task: str | None = None, options: object = None) -> RequestedItem:
    """The item of a request: an entry, `extra_info` of one of our rows, the JSON of either, or the id of an item."""
    try:
        if isinstance(what, str) and what in _made:
            return _made[what]
        item = await asyncio.to_thread(item_of_id, what) if isinstance(what, str) and len(what) < _LONGEST_ID else None
        if isinstance(what, str) and item is not None:
            if len(_made) > _MOST_MADE:
                _made.clear()
            return _made.setdefault(what, RequestedItem(item.entry, item.config))
        what = decode_entry(what) if isinstance(what, str) else what
        if not isinstance(what, Mapping):
            raise RefusedError(422, _NO_ITEM)
        if "entry" in what:
            row = Item.from_extra_info(what)
            return RequestedItem(row.entry, row.config)
        metadata = what.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        name = task or metadata.get("source_dataset")
        if not isinstance(name, str):
            raise RefusedError(422, "the entry names no task: send `task`, or keep its metadata.source_dataset")
        check_name(name)
        checked = check_options(name, options) if isinstance(options, Mapping) else None
        return RequestedItem({**what, "metadata": {**metadata, "source_dataset": name}}, checked)
    except (ConfigError, ValueError) as error:
        raise RefusedError(422, str(error)) from None


# -- our own requests


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


async def score(desk: Desk, request: ScoreRequest) -> dict[str, Any]:
    """The verdict of each response or answer."""
    sent = request.answer if request.response is None else request.response
    if sent is None or (request.answer is not None and request.response is not None):
        raise RefusedError(422, "send either `response`, a text with its tags, or `answer`, the answer alone")
    texts = [sent] if isinstance(sent, str) else sent
    item = await find_item(request.entry if request.item is None else request.item, request.task, request.config)
    if request.response is not None:
        how: dict[str, Any] = {"format": request.format, "prefilled_think": request.prefilled_think}
        results = await desk.score_responses([(item, text) for text in texts], **how)
    else:
        scores = await desk.score_answers(item, texts)
        results = [(scored, text, None) for scored, text in zip(scores, texts, strict=True)]
    verdicts = [
        {
            "score": scored.score,
            "raw": scored.raw,
            "tagged": scored.tagged,
            "status": scored.status.value,
            "violation": violation.value if violation else "",
            "answer": answer,
            "detail": scored.detail,
            "excused": scored.excused,
        }
        for scored, answer, violation in results
    ]
    return {"verdicts": verdicts}


async def call(desk: Desk, function: Guarded, request: CallRequest) -> dict[str, Any]:
    """What became of each call of the user's function."""
    results = await desk.wait_for(len(request.calls), (function.ascore(*args) for args in request.calls))
    desk.scored.update(result.status.value for result in results)
    return {"results": [{"value": r.value, "status": r.status.value, "detail": r.detail} for r in results]}


# -- NeMo Gym


async def verify(desk: Desk, body: dict[str, Any]) -> dict[str, Any]:
    r"""A row of NeMo Gym's data with a response of OpenAI's Responses API → the same, with the reward.

    An answer block counts, as in the lenient format; without one, the last `\boxed{}`, or else the whole text, as in
    NeMo Gym's own server. The sample is masked where the score says nothing about the answer (`AnswerScore.excused`).
    """
    if not isinstance(body.get("response"), dict) or not isinstance(body.get("metadata"), dict):
        raise RefusedError(422, "a row needs `question`, `answer`, `metadata` and `response`, as in NeMo Gym's data")
    item = await find_item({name: body.get(name) for name in ("question", "answer", "metadata")})
    text = _text_of(body["response"])
    ((scored, answer, violation),) = await desk.score_responses([(item, text)], **_LENIENT)
    if violation is Violation.NO_ANSWER and text.strip():
        answer = (_BOXED.findall(text) or [text])[-1].strip()
        (scored,) = await desk.score_answers(item, [answer])
    failed = scored.status not in (Status.OK, Status.REJECTED)
    return {
        **body,
        "reward": scored.score,
        "score": scored.score,
        "task_name": item.entry["metadata"]["source_dataset"],
        "extracted_answer": answer,
        "mask_sample": scored.excused,
        "failure_kind": "verifier_error" if failed else None,
        "failure_reason": f"{scored.status}: {scored.detail}" if failed else None,
    }


def _text_of(response: Mapping[str, Any]) -> str:
    """What the assistant said."""
    output = response.get("output")
    texts: list[Any] = []
    for message in output if isinstance(output, list) else []:
        if isinstance(message, Mapping) and message.get("type", "message") == "message":
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            texts += [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "".join(text for text in texts if isinstance(text, str))


# -- remote reward models


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


async def reward(desk: Desk, request: RewardRequest | RewardsRequest) -> Any:
    """A number for slime, `{"rewards": […]}` for OpenRLHF. A label is an item, as `find_item` takes it.

    These callers have no word for a response that was not scored: a failure of the machine is a 503, after which both
    ask again.
    """
    if isinstance(request, RewardRequest):
        return (await _rewards(desk, [request.response], [request.label]))[0]
    queries = request.query
    prompts = request.prompts or [""] * len(queries)
    if not len(queries) == len(prompts) == len(request.labels):
        raise RefusedError(422, "`query`, `prompts` and `labels` differ in length")
    texts = [query.removeprefix(prompt) for query, prompt in zip(queries, prompts, strict=True)]
    rewards = await _rewards(desk, texts, request.labels)
    return {"rewards": rewards, "scores": rewards, "extra_logs": {}}


async def _rewards(desk: Desk, texts: list[str], labels: list[Any]) -> list[float]:
    items = [await find_item(label) for label in labels]
    results = await desk.score_responses(list(zip(items, texts, strict=True)), **_LENIENT)
    for scored, _, _ in results:
        if scored.excused:
            raise RefusedError(422 if scored.status is Status.ERROR else 503, f"{scored.status}: {scored.detail}")
    return [scored.score for scored, _, _ in results]


# -- the application


def make_app(desk: Desk) -> FastAPI:
    """The server over these scorers, which it closes at its end."""

    @asynccontextmanager
    async def close_at_the_end(_: FastAPI) -> AsyncIterator[None]:
        yield
        desk.scorer.close()
        if desk.function:
            desk.function.close()

    app = FastAPI(title="rg_env", lifespan=close_at_the_end)
    app.add_middleware(_Gate, desk=desk)
    app.add_exception_handler(RefusedError, _refuse)
    for of_the_machine in (RGEnvError, OSError):
        app.add_exception_handler(of_the_machine, lambda _, error: _error(503, error))
    app.add_exception_handler(HTTPException, lambda _, error: _error(error.status_code, error.detail))
    app.add_exception_handler(RequestValidationError, _refuse_body)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"workers": desk.scorer.workers, "waiting": desk.waiting, "scored": dict(desk.scored)}

    if desk.function is not None:
        function = desk.function

        @app.post("/score")
        async def call_function(request: CallRequest) -> dict[str, Any]:
            return await call(desk, function, request)

        return app

    @app.get("/tasks")
    async def tasks() -> list[dict[str, Any]]:
        return [asdict(task) for task in list_tasks()]

    @app.post("/score")
    async def score_texts(request: ScoreRequest) -> dict[str, Any]:
        return await score(desk, request)

    @app.post("/verify")
    async def verify_row(body: dict[str, Any]) -> dict[str, Any]:
        return await verify(desk, body)

    @app.post("/reward")
    async def reward_texts(request: RewardRequest | RewardsRequest) -> Any:
        return await reward(desk, request)

    @app.post("/seed_session")
    @app.post("/close_session")
    async def session(body: dict[str, Any]) -> dict[str, Any]:
        return {name: body[name] for name in ("resources_session_id",) if name in body}

    @app.get("/reverify_mode")
    async def reverify_mode() -> str:
        return "stateless"

    return app


def _error(status: int, why: object) -> Response:
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else None
    return JSONResponse({"error": one_line(why)}, status, headers)


def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return _error(error.status, error)


def _refuse_body(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if "json" not in request.headers.get("content-type", ""):
        return _error(422, "send the body as JSON, with the header Content-Type: application/json")
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    return _error(422, f"{where or 'body'}: {first['msg']}")


class _Gate:
    """Refuses requests without the token, and bodies over the limit, before they are read."""

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self._app, self._desk = app, desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            token = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
            length = headers.get(b"content-length", b"")
            if self._desk.token and not hmac.compare_digest(token, self._desk.token.encode()):
                answer = _error(401, "send the header `Authorization: Bearer TOKEN`")
            elif scope["method"] == "POST" and not length.isdigit():
                answer = _error(411, "send the header Content-Length")
            elif length and int(length) > self._desk.most_bytes:
                answer = _error(413, f"a request has at most {self._desk.most_bytes:,} bytes")
        await answer(scope, receive, send)
