"""Remote reward models, as OpenRLHF and slime call them.

These callers have no word for a response that was not scored: a failure of the machine is a 503, after which both ask
again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request

from rg_env.base.choices import ResponseFormat
from rg_env.scoring import Status
from rg_env.scoring.parse import is_opened, tag_spans, with_opening
from rg_env.serve.bodies import Json, RefusedError, Texts, absent, decode, described, texts
from rg_env.serve.desk import Desk, JsonReply, find_item

_SPACES = re.compile(r"\s*")


class RewardRequest(msgspec.Struct):
    """What slime sends, or what OpenRLHF sends, where each query is the prompt and the response."""

    prompt: Json = absent()
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
            prompts = texts(asked.prompts, desk.most_answers, "prompts") or []
            async with desk.reading(memoryview(asked.query).nbytes):
                responses = _responses(queries, prompts)
            rewards = await _rewards(desk, responses, _labels(asked.labels, len(responses)))
            return JsonReply({"rewards": rewards, "scores": rewards, "extra_logs": {}})
        if asked.response is not None:
            # The prompt may be messages, too.
            prompt = decode(asked.prompt, str) if bytes(asked.prompt).startswith(b'"') else ""
            (single,) = await _rewards(desk, [_continued(asked.response, prompt)], [asked.label])
            return JsonReply(single)
        raise RefusedError(
            422, "send response and label, as slime does, or query, prompts and labels, as OpenRLHF does"
        )

    return router


def _responses(queries: list[str], prompts: list[str]) -> list[str]:
    """The queries without their prompts."""
    prompts = prompts or [""] * len(queries)
    if len(prompts) != len(queries):
        raise RefusedError(422, "`query` and `prompts` differ in length")
    return [_continued(_behind(prompt, query), prompt) for query, prompt in zip(queries, prompts, strict=True)]


def _behind(prompt: str, query: str) -> str:
    """Return a query without its prompt, whose tags do not belong to the response.

    Raises:
        RefusedError: the query does not begin with the prompt, and nobody can say where these tags end.
    """
    if query.startswith(prompt):
        return query.removeprefix(prompt)
    # Tokenizers such as Llama 2's decode a prompt with other spaces than it had.
    signs = _without_spaces(prompt)
    if _without_spaces(query).startswith(signs):
        end, left = 0, len(signs)
        while left:
            end = _SPACES.match(query, end).end()  # type: ignore[union-attr]
            part = query[end : end + left]
            end, left = end + len(part), left - len(_without_spaces(part))
        return query[end:]
    if tag_spans(prompt, ResponseFormat.LENIENT):
        raise RefusedError(422, "a query does not begin with its prompt, which has tags: send the whole prompt")
    return query


def _without_spaces(text: str) -> str:
    return "".join(text.split())


def _continued(response: str, prompt: str) -> str:
    """Return a response with the `<think>` with which its prompt ends, as templates of reasoning models do."""
    if prompt.rstrip().endswith("<think>") or is_opened(response):
        return with_opening(response)
    return response


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
