"""OpenEnv: `reset`, `step` and `state`, over its WebSocket and over HTTP.

An action is an answer, or a whole response; the first one that can be scored ends the episode. Over the WebSocket an
episode is its connection's. Over HTTP, where OpenEnv has no sessions, it has an id, which `/reset` returns in
`metadata` and `/step` and `/state` take. Written from the client of openenv 0.10.0.

Over the WebSocket, uvicorn needs the package `websockets`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from typing import Any, Literal

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rg_env import __version__
from rg_env.base.errors import RGEnvError, one_line
from rg_env.serve.bodies import RefusedError
from rg_env.serve.desk import CLIENT, JsonReply, explain
from rg_env.serve.episodes import UNANSWERED, AnswerOutcome, Episode, Episodes
from rg_env.serve.fairness import Shares
from rg_env.tasks import Split

_ABOUT = "Reasoning Gym: a question, and a reward for its answer, scored in processes that can be killed"


class ResetRequest(BaseModel):
    """Which question: an item's id, or a row by its number or a seed, else any row."""

    model_config = ConfigDict(extra="forbid")

    seed: int | None = Field(None, ge=0)
    episode_id: str | None = Field(None, max_length=255)
    split: str = Split.TRAIN.value
    index: int | None = None
    item: str | None = None


class Action(BaseModel):
    """`answer`, the answer alone, or `response`, a text that has it in its answer block or box, or is nothing else."""

    model_config = ConfigDict(extra="forbid")

    answer: str | None = None
    response: str | None = None
    metadata: dict[str, Any] = {}


class Observation(BaseModel):
    """The question; after a step, what became of the answer."""

    question: str
    task: str
    status: str = ""
    violation: str = ""
    detail: str = ""


class State(BaseModel):
    """The episode: its id, how many answers it has had, and which question it asks."""

    episode_id: str | None = None
    step_count: int = 0
    item: str = ""


class StepRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    action: Action
    episode_id: str
    timeout_s: float | None = None
    request_id: str | None = None


def routes(episodes: Episodes) -> APIRouter:
    """GET /metadata, /schema and /state, POST /reset, /step and /mcp, and the WebSocket /ws."""
    router = APIRouter()
    sockets = Shares()
    share = max(1, episodes.most // 2)

    @router.get("/metadata", response_model=None)
    async def metadata() -> JsonReply:
        """OpenEnv: what this environment is."""
        return JsonReply({"name": "reasoning_gym", "description": _ABOUT, "version": __version__})

    @router.get("/schema", response_model=None)
    async def schema() -> JsonReply:
        """OpenEnv: the types of actions, observations and states."""
        kinds: dict[str, type[BaseModel]] = {"action": Action, "observation": Observation, "state": State}
        return JsonReply({name: kind.model_json_schema() for name, kind in kinds.items()})

    @router.post("/mcp", response_model=None)
    async def mcp(body: dict[str, Any]) -> JsonReply:
        """OpenEnv: there are no tools of MCP."""
        error = {"code": -32601, "message": "this environment has no tools; use reset and step"}
        return JsonReply({"jsonrpc": "2.0", "error": error, "id": body.get("id")})

    @router.post("/reset", response_model=None)
    async def reset(request: ResetRequest) -> JsonReply:
        """OpenEnv: begins an episode, whose id is in `metadata`."""
        if request.episode_id is not None:
            raise RefusedError(422, "leave episode_id out: over HTTP the server makes it, so that nobody guesses it")
        key = episodes.new_key()
        episode = await _begin(episodes, key, request)
        return JsonReply(_observed(episode) | {"metadata": {"episode_id": key}})

    @router.post("/step", response_model=None)
    async def step(request: StepRequest) -> JsonReply:
        """OpenEnv: scores the answer of an episode."""
        episode = episodes.find(request.episode_id)
        outcome = await _answer(episodes, episode, request.action)
        return JsonReply(_observed(episode, outcome))

    @router.get("/state", response_model=None)
    async def state(episode_id: str) -> JsonReply:
        """OpenEnv: the state of an episode."""
        return JsonReply(_state(episode_id, episodes.find(episode_id)))

    @router.websocket("/ws")
    async def connect(socket: WebSocket) -> None:
        client = CLIENT.get()
        if sockets[client] >= share or sockets.total() >= episodes.most:
            await socket.close(1013)  # try again later
            return
        sockets[client] += 1
        try:
            await socket.accept()
            await converse(socket)
        finally:
            sockets.give_back(client)

    async def converse(socket: WebSocket) -> None:
        connection = _Connection(episodes, episodes.new_key())
        try:
            while True:
                # A connection on which nothing comes ends like an idle episode.
                message = await asyncio.wait_for(socket.receive(), episodes.idle_seconds)
                if message["type"] == "websocket.disconnect":
                    break
                # A frame is a text or binary, and lacks the other, or has None for it.
                reply = await connection.reply(message.get("text") or message.get("bytes") or "")
                if reply is None:
                    break
                await socket.send_text(json.dumps(reply))
        except (WebSocketDisconnect, TimeoutError):
            pass
        finally:
            episodes.end(connection.key)

    return router


async def _begin(episodes: Episodes, key: str, request: ResetRequest) -> Episode:
    """A new episode under this key, in place of one that it may have."""
    if request.item is not None:
        item = await episodes.item_of_id(request.item)
    else:
        rows = len(await episodes.rows(request.split))
        if request.index is not None:
            index = request.index
        elif request.seed is not None:
            index = request.seed % rows
        else:
            index = secrets.randbelow(rows)
        item = await episodes.item_of_row(request.split, index)
    # Only now: a reset to a question that does not exist leaves the running episode alone.
    episodes.end(key)
    return episodes.start(key, item)


async def _answer(episodes: Episodes, episode: Episode, action: Action) -> AnswerOutcome:
    """Return the verdict of an action. Raises RefusedError."""
    if (action.answer is None) == (action.response is None):
        raise RefusedError(422, "an action has either `answer`, the answer alone, or `response`, a text with it")
    text = action.response if action.answer is None else action.answer
    assert text is not None
    scoring = episodes.submit(episode, text, is_response=action.answer is None)
    # Shielded: the verdict stands, even if its client leaves before it is there.
    return await asyncio.shield(scoring)


def _observed(episode: Episode, outcome: AnswerOutcome = UNANSWERED) -> dict[str, Any]:
    """Return what OpenEnv's client reads from a reset or a step."""
    observation = Observation(question=episode.item.entry["question"], task=episode.item.task, **outcome.about())
    return {"observation": observation.model_dump(), "reward": outcome.reward, "done": outcome.done}


def _state(episode_id: str | None, episode: Episode) -> dict[str, Any]:
    return State(episode_id=episode_id, step_count=episode.answers, item=episode.item.id).model_dump()


Code = Literal["INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR", "EXECUTION_ERROR", "CAPACITY_REACHED"]
_CODES: dict[int, Code] = {422: "VALIDATION_ERROR", 503: "CAPACITY_REACHED"}
"""OpenEnv's name for a refusal, by its status in HTTP."""


class _Connection:
    """A WebSocket, which has one episode at a time."""

    def __init__(self, episodes: Episodes, key: str) -> None:
        self._episodes, self.key = episodes, key
        self._label: str | None = None

    async def reply(self, text: str | bytes) -> dict[str, Any] | None:
        """The reply to a message; None to the last one."""
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            return _error("INVALID_JSON", f"the message is not valid JSON: {error}")
        if not isinstance(message, Mapping):
            return _error("INVALID_JSON", "the message must be a JSON object with type and data")
        data = message.get("data") or {}
        try:
            match message.get("type"):
                case "reset":
                    request = _parse(ResetRequest, data)
                    episode = await _begin(self._episodes, self.key, request)
                    # Only a label here, where the episode is the connection's.
                    self._label = request.episode_id or secrets.token_hex(8)
                    return {"type": "observation", "data": _observed(episode)}
                case "step":
                    action = _parse(Action, data)
                    episode = self._episodes.find(self.key)
                    outcome = await _answer(self._episodes, episode, action)
                    return {"type": "observation", "data": _observed(episode, outcome)}
                case "state":
                    return {"type": "state", "data": _state(self._label, self._episodes.find(self.key))}
                case "close":
                    return None
                case _:
                    return _error("UNKNOWN_TYPE", "type must be reset, step, state or close")
        except RefusedError as refused:
            return _error(_CODES.get(refused.status, "EXECUTION_ERROR"), str(refused))
        except (RGEnvError, OSError, MemoryError, RecursionError) as error:
            return _error("EXECUTION_ERROR", str(error))


def _parse[M: BaseModel](model: type[M], data: object) -> M:
    """Return what a message has. Raises RefusedError: it is not what is needed."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # As in HTTP, where FastAPI puts the name of the body in front.
        mistakes = [{**mistake, "loc": ("data", *mistake["loc"])} for mistake in error.errors()]
        raise RefusedError(422, explain(mistakes)) from None


def _error(code: Code, why: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": one_line(why)[:1000], "code": code}}
