"""Open Reward Standard (ORS), which the SDK `openreward` speaks, and with it TRL, SkyRL's example and others.

A task is a row of the train or the eval split; the model answers with the tool `submit`, or ends with a message, which
is scored as a response (the terminal tool `respond`). An answer that the machine could not score has no reward. Written
from the client of openreward 0.1.167.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict

from rg_env import __version__
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.serve.bodies import RefusedError
from rg_env.serve.desk import JsonReply
from rg_env.serve.episodes import AnswerOutcome, Episode, Episodes, OverError, check_index
from rg_env.tasks import Item, Split

NAME = "reasoning_gym"
_PING_SECONDS = 10
"""How often a client that waits for a verdict hears of the server; it gives up after 30 s of silence."""
_HOW = "Give only the final answer, with the tool `submit`. The first answer counts."
_TOOLS = {
    "tools": [
        {
            "name": "submit",
            "description": "Submit the final answer to the question. Only the first answer counts.",
            "input_schema": {
                "type": "object",
                "properties": {"answer": {"type": "string", "description": "The final answer, and nothing else."}},
                "required": ["answer"],
            },
        }
    ],
    "terminal_tool": {
        "name": "respond",
        "arg": "response",
        "description": "Scores a message: its answer block, or else its box, or else all of it.",
    },
    "supports_score_group": False,
    "message_block_types": ["text"],
}
_ARGUMENTS = {"submit": "answer", "respond": "response"}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SplitRequest(_Body):
    split: str


class TaskRequest(_Body):
    split: str
    index: int


class RangeRequest(_Body):
    split: str
    start: int | None = None
    stop: int | None = None


class CreateRequest(_Body):
    """A row by `split` and `index`, or a task as the other requests return it (or `{"item": id}`)."""

    env_name: str | None = None
    task_spec: dict[str, Any] | None = None
    split: str | None = None
    index: int | None = None
    toolset_name: str | None = None


class ToolCallRequest(_Body):
    name: str
    input: dict[str, Any]
    task_id: str | None = None


def _check_name(env_name: str = NAME) -> None:
    if env_name.lower() != NAME:
        raise RefusedError(404, f"the environment is {NAME}, not {env_name[:40]!r}")


def _key(x_session_id: Annotated[str | None, Header()] = None) -> str:
    if not x_session_id:
        raise RefusedError(400, "send the header X-Session-ID, as POST /create_session returns it")
    return x_session_id.strip()


Key = Annotated[str, Depends(_key)]


def routes(episodes: Episodes) -> APIRouter:
    """The environment's routes, each with and without its name in front, and those of sessions."""
    router = APIRouter()
    router.include_router(_session_routes(episodes))
    router.include_router(_task_routes(episodes))
    router.include_router(_episode_routes(episodes))
    for named in (_task_routes(episodes), _episode_routes(episodes)):
        # Not listed, because they are the same requests.
        router.include_router(named, prefix="/{env_name}", dependencies=[Depends(_check_name)], include_in_schema=False)
    return router


def _task_routes(episodes: Episodes) -> APIRouter:
    router = APIRouter()

    @router.get("/tools", response_model=None)
    async def tools() -> JsonReply:
        """ORS: the tools of a session."""
        return JsonReply(_TOOLS)

    @router.get("/splits", response_model=None)
    async def splits() -> JsonReply:
        """ORS: the splits."""
        kinds = {Split.TRAIN: "train", Split.EVAL: "validation"}
        return JsonReply([{"name": split.value, "type": kind} for split, kind in kinds.items()])

    @router.post("/num_tasks", response_model=None)
    async def num_tasks(request: SplitRequest) -> JsonReply:
        """ORS: how many tasks a split has."""
        return JsonReply({"num_tasks": len(await episodes.rows(request.split))})

    @router.post("/tasks", response_model=None)
    async def tasks(request: SplitRequest) -> JsonReply:
        """ORS: all tasks of a split."""
        rows = await episodes.rows(request.split)
        return JsonReply({"tasks": _specs(rows, range(len(rows)), request.split), "env_name": NAME})

    @router.post("/task_range", response_model=None)
    async def task_range(request: RangeRequest) -> JsonReply:
        """ORS: the tasks from start to before stop, counted as Python does."""
        rows = await episodes.rows(request.split)
        chosen = range(*slice(request.start, request.stop).indices(len(rows)))
        return JsonReply({"tasks": _specs(rows, chosen, request.split), "env_name": NAME})

    @router.post("/task", response_model=None)
    async def task(request: TaskRequest) -> JsonReply:
        """ORS: one task."""
        rows = await episodes.rows(request.split)
        check_index(rows, request.index)
        (spec,) = _specs(rows, range(request.index, request.index + 1), request.split)
        return JsonReply({"task": spec, "env_name": NAME})

    return router


def _specs(rows: ReasoningGymDataset, chosen: range, split: str) -> list[dict[str, Any]]:
    """Tasks by their numbers. No question is made for them, so a list of thousands costs nothing."""
    return [{"split": split, "index": number, "task": rows.task_of_run(number).name} for number in chosen]


def _session_routes(episodes: Episodes) -> APIRouter:
    router = APIRouter()

    @router.get("/list_environments", response_model=None)
    async def list_environments() -> JsonReply:
        """ORS: the environments, of which there is one."""
        return JsonReply([NAME])

    @router.get("/version", response_model=None)
    async def version() -> JsonReply:
        """ORS: the version of rg_env."""
        return JsonReply({"version": __version__})

    @router.post("/create_session", response_model=None)
    async def create_session() -> StreamingResponse:
        """ORS: an id for a session."""

        async def events() -> AsyncIterator[bytes]:
            yield _event("task_id", episodes.new_key())
            yield _event("end", "")

        return _stream(events())

    @router.post("/create", response_model=None)
    async def create(request: CreateRequest, key: Key) -> JsonReply:
        """ORS: begins the task of a session."""
        episodes.check_key(key)
        item = await _item_of(episodes, request)
        running = episodes.get(key)
        if running is None:
            episodes.start(key, item)
        elif running.item.id != item.id or running.answers:  # else it is the same request again
            raise RefusedError(409, "this session has its task; create another session")
        return JsonReply({"sid": key})

    @router.post("/ping", response_model=None)
    async def ping(key: Key) -> JsonReply:
        """ORS: keeps a session alive."""
        episodes.find(key)
        return JsonReply({"status": "ok"})

    @router.post("/delete", response_model=None)
    @router.post("/delete_session", response_model=None)
    async def delete(key: Key) -> JsonReply:
        """ORS: ends a session. The client may delete one twice, or one that never began."""
        episodes.end(key)
        return JsonReply({"sid": key})

    return router


async def _item_of(episodes: Episodes, request: CreateRequest) -> Item:
    if request.env_name is not None:
        _check_name(request.env_name)
    if request.toolset_name is not None:
        raise RefusedError(422, "there are no toolsets; leave toolset_name out")
    spec = request.task_spec
    if spec is None:
        spec = {"split": request.split, "index": request.index}
    item_id, split, index = spec.get("item"), spec.get("split"), spec.get("index")
    if isinstance(item_id, str):
        return await episodes.item_of_id(item_id)
    if not isinstance(split, str) or not isinstance(index, int):
        raise RefusedError(422, "send split and index, or task_spec with both, or with item, the id of an item")
    return await episodes.item_of_row(split, index)


def _episode_routes(episodes: Episodes) -> APIRouter:
    router = APIRouter()

    @router.get("/task_tools", response_model=None)
    async def task_tools(key: Key) -> JsonReply:
        """ORS: the tools of a session."""
        episodes.find(key)
        return JsonReply(_TOOLS)

    @router.get("/prompt", response_model=None)
    async def prompt(key: Key) -> JsonReply:
        """ORS: the question of a session."""
        return JsonReply(_prompt(episodes.find(key)))

    @router.get("/messages", response_model=None)
    async def messages(key: Key) -> JsonReply:
        """ORS: the question of a session, as messages."""
        return JsonReply([{"role": "user", "blocks": _prompt(episodes.find(key)), "detail": None}])

    @router.post("/call", response_model=None)
    async def call(request: ToolCallRequest, key: Key) -> StreamingResponse:
        """ORS: calls a tool, and streams its result."""
        episode = episodes.find(key)
        # A client that lost the connection asks again, by the name of its answer. Nothing is scored twice.
        if request.task_id is not None:
            if request.task_id != episode.task_id:
                return _stream(_single("error", "unknown task_id"))
            return _stream(_result(episode))
        argument = _ARGUMENTS.get(request.name)
        if argument is None:
            return _stream(_failed("not_found", f"{request.name[:40]!r} is not a tool: use submit or respond"))
        text = request.input.get(argument)
        if isinstance(text, (int, float)) and not isinstance(text, bool):  # models write numbers without quotes
            text = json.dumps(text)
        if not isinstance(text, str) or len(request.input) > 1:
            return _stream(_failed("input_validation", f"{request.name} takes {argument}, a string, and nothing else"))
        try:
            episodes.submit(episode, text, is_response=request.name == "respond")
        except OverError as error:
            return _stream(_failed("episode_finished", str(error)))
        return _stream(_result(episode))

    return router


def _prompt(episode: Episode) -> list[dict[str, Any]]:
    return [{"type": "text", "text": f"{episode.item.entry['question']}\n\n{_HOW}", "detail": None}]


async def _result(episode: Episode) -> AsyncIterator[bytes]:
    """The events of an answer: its name at once, so that the client can ask for it again, and its verdict."""
    assert episode.scoring is not None
    scoring = episode.scoring
    yield _event("task_id", episode.task_id)
    while not scoring.done():
        await asyncio.wait({scoring}, timeout=_PING_SECONDS)
        if not scoring.done():
            yield b": scoring\n\n"  # a comment of the event stream, which clients skip
    if scoring.cancelled():
        yield _event("error", "the session was deleted")
        return
    # One event, because the client drops spaces at the beginning of each part.
    yield _event("end", json.dumps({"ok": True, "output": _output(scoring.result())}))


def _output(outcome: AnswerOutcome) -> dict[str, Any]:
    if outcome.reward is None:
        text = "The answer could not be scored. Submit it again."
    elif outcome.violation:
        text = f"The answer is not where it should be ({outcome.violation})."
    else:
        text = "The answer was scored."
    return {
        "blocks": [{"type": "text", "text": text, "detail": None}],
        "metadata": outcome.about(),
        "reward": outcome.reward,
        "finished": outcome.done,
    }


async def _failed(reason: str, why: str) -> AsyncIterator[bytes]:
    """The events of a call that was not made."""
    yield _event("end", json.dumps({"ok": False, "error": why, "reason": reason}))


async def _single(name: str, data: str) -> AsyncIterator[bytes]:
    yield _event(name, data)


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


def _stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    # Proxies would hold the events back until the stream ends.
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
