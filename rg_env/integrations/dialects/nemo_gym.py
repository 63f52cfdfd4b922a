r"""NeMo Gym's resources server: rows of its Reasoning Gym data, verified.

An answer block counts, as in the lenient format. Without one, it is NeMo Gym's rule (0.7.0,
`resources_servers/reasoning_gym/app.py`): the first `\boxed{…}`, up to its first closing brace, or else the whole text.
So `\boxed{\frac{1}{2}}` is wrong, as it is there; the other dialects take the last box, to the brace that closes it.
The sample is masked where the score says nothing about the answer (`AnswerScore.excused`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from rg_env.integrations.desk import Desk, RefusedError, Reply, find_item
from rg_env.scoring import Status

_BOXED = re.compile(r"\\boxed\{([^}]+)\}")


def first_boxed(text: str) -> str | None:
    """Return what NeMo Gym finds in a text: the first box, up to the first closing brace."""
    boxed = _BOXED.search(text)
    return boxed[1] if boxed else None


class VerifiedRow(BaseModel):
    """What the summary needs of a row that `/verify` has returned. One that NeMo Gym could not get has no reward."""

    reward: float | None = None
    mask_sample: bool = False


class SummaryRequest(BaseModel):
    verify_responses: list[VerifiedRow]


def routes(desk: Desk) -> APIRouter:
    """POST /verify, /aggregate_metrics, /seed_session and /close_session, GET /reverify_mode."""
    router = APIRouter()

    @router.post("/verify", response_model=None)
    async def verify_row(body: dict[str, Any]) -> Reply:
        """A row of NeMo Gym's data, with its reward."""
        return Reply(await verify(desk, body))

    @router.post("/aggregate_metrics", response_model=None)
    async def aggregate_metrics(request: SummaryRequest) -> Reply:
        """The mean reward of verified rows, without masked ones; NeMo Gym asks for it after the last rollout."""
        metrics = _summary(request.verify_responses)
        return Reply({"agent_metrics": metrics, "key_metrics": metrics, "group_level_metrics": []})

    @router.post("/seed_session", response_model=None)
    @router.post("/close_session", response_model=None)
    async def session(body: dict[str, Any]) -> Reply:
        """For NeMo Gym's agents; there is no state."""
        return Reply({name: body[name] for name in ("resources_session_id",) if name in body})

    @router.get("/reverify_mode", response_model=None)
    async def reverify_mode() -> Reply:
        """That a row may be verified again."""
        return Reply("stateless")

    return router


async def verify(desk: Desk, body: dict[str, Any]) -> dict[str, Any]:
    """A row of NeMo Gym's data with a response of OpenAI's Responses API → the same, with the reward."""
    if not isinstance(body.get("response"), dict) or not isinstance(body.get("metadata"), dict):
        raise RefusedError(422, "a row needs `question`, `answer`, `metadata` and `response`, as in NeMo Gym's data")
    item = await find_item(desk, {name: body.get(name) for name in ("question", "answer", "metadata")})
    text = _text_of(body["response"])
    result = await desk.score_free_text(item, text, first_boxed)
    scored = result.scored
    # A rejected answer has a score: it is wrong. With any other status but ok, no scorer gave one.
    failed = scored.status not in (Status.OK, Status.REJECTED)
    return {
        **body,
        "reward": scored.score,
        "score": scored.score,
        "task_name": item.entry["metadata"]["source_dataset"],
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


def _text_of(response: Mapping[str, Any]) -> str:
    """The assistant's messages in one text, without its reasoning and its calls of tools."""
    output = response.get("output")
    texts: list[Any] = []
    for message in output if isinstance(output, list) else []:
        if isinstance(message, Mapping) and message.get("type", "message") == "message":
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            texts += [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "".join(text for text in texts if isinstance(text, str))
