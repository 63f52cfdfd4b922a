r"""NeMo Gym's resources server: rows of its Reasoning Gym data, verified.

An answer block counts, as in the lenient format. Without one, it is NeMo Gym's rule (0.7.0,
`resources_servers/reasoning_gym/app.py`): the first `\boxed{…}`, up to its first closing brace, or else the whole text.
So `\boxed{\frac{1}{2}}` is wrong, as it is there; the other dialects take the last box, to the brace that closes it.
The sample is masked where the score says nothing about the answer (`AnswerScore.excused`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from rg_env.scoring import Status
from rg_env.scoring.scorer import task_of
from rg_env.serve.bodies import Json, RefusedError, absent, described
from rg_env.serve.desk import Desk, JsonReply, find_item

_BOXED = re.compile(r"\\boxed\{([^}]+)\}")


def first_boxed(text: str) -> str | None:
    """Return what NeMo Gym finds in a text: the first box, up to the first closing brace."""
    boxed = _BOXED.search(text)
    return boxed[1] if boxed else None


class _Part(msgspec.Struct):
    text: str | None = None


class _Message(msgspec.Struct):
    type: str = "message"
    content: str | list[_Part] | None = None


class _Response(msgspec.Struct):
    """Of OpenAI's Responses API."""

    output: list[_Message] = []


class Row(msgspec.Struct):
    """A row of NeMo Gym's data, with a response."""

    question: Json = absent()
    answer: Json = absent()
    metadata: Json = absent()
    response: _Response | None = None


class VerifiedRow(msgspec.Struct):
    """What the summary needs of a row that `/verify` has returned. One that NeMo Gym could not get has no reward."""

    reward: float | None = None
    mask_sample: bool = False


class SummaryRequest(msgspec.Struct):
    verify_responses: list[VerifiedRow]


def routes(desk: Desk) -> APIRouter:
    """POST /verify, /aggregate_metrics, /seed_session and /close_session, GET /reverify_mode."""
    router = APIRouter()

    @router.post("/verify", response_model=None, openapi_extra=described(Row))
    async def verify_row(request: Request) -> Response:
        """A row of NeMo Gym's data, with its reward."""
        verified = JsonReply(await verify(desk, await desk.read_body(request, Row)))
        # Behind the row as it was sent: of two values of a key, the last one counts.
        row = (await request.body()).rstrip().removesuffix(b"}")
        return Response(row + b"," + bytes(verified.body)[1:], media_type="application/json")

    @router.post("/aggregate_metrics", response_model=None, openapi_extra=described(SummaryRequest))
    async def aggregate_metrics(request: Request) -> JsonReply:
        """The mean reward of verified rows, without masked ones; NeMo Gym asks for it after the last rollout."""
        asked = await desk.read_body(request, SummaryRequest)
        metrics = _summary(asked.verify_responses)
        return JsonReply({"agent_metrics": metrics, "key_metrics": metrics, "group_level_metrics": []})

    @router.post("/seed_session", response_model=None)
    @router.post("/close_session", response_model=None)
    async def session(body: dict[str, Any]) -> JsonReply:
        """For NeMo Gym's agents; there is no state."""
        return JsonReply({name: body[name] for name in ("resources_session_id",) if name in body})

    @router.get("/reverify_mode", response_model=None)
    async def reverify_mode() -> JsonReply:
        """That a row may be verified again."""
        return JsonReply("stateless")

    return router


async def verify(desk: Desk, row: Row) -> dict[str, Any]:
    """Return what a row of NeMo Gym's data has more when it is verified: the reward."""
    if row.response is None or not bytes(row.metadata).startswith(b"{"):
        raise RefusedError(422, "a row needs `question`, `answer`, `metadata` and `response`, as in NeMo Gym's data")
    names = ("question", "answer", "metadata")
    entry = msgspec.json.encode({name: getattr(row, name) for name in names if bytes(getattr(row, name))})
    item = await find_item(desk, msgspec.Raw(entry))
    text = _text_of(row.response)
    result = await desk.score_free_text(item, text, first_boxed)
    scored = result.scored
    # A rejected answer has a score: it is wrong. With any other status but ok, no scorer gave one.
    failed = scored.status not in (Status.OK, Status.REJECTED)
    return {
        "reward": scored.score,
        "score": scored.score,
        "task_name": task_of(item.entry),
        "extracted_answer": result.answer,
        "mask_sample": scored.excused,
        "failure_kind": "verifier_error" if failed else None,
        "failure_reason": f"{scored.status}: {scored.detail}" if failed else None,
    }


def _summary(rows: Sequence[VerifiedRow]) -> dict[str, float]:
    rewards = [row.reward for row in rows if row.reward is not None and not row.mask_sample]
    metrics: dict[str, float] = {"num_rollouts": len(rows), "num_masked": len(rows) - len(rewards)}
    if rewards:
        metrics["mean/reward"] = fmean(rewards)
    return metrics


def _text_of(response: _Response) -> str:
    """The assistant's messages in one text, without its reasoning and its calls of tools."""
    said: list[str | None] = []
    for message in response.output:
        if message.type != "message":
            continue
        if isinstance(message.content, list):
            said += [part.text for part in message.content]
        else:
            said.append(message.content)
    return "".join(filter(None, said))
