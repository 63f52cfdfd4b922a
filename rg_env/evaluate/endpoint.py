"""An OpenAI-compatible server as the source of responses.

Invariant: a request ends as a `Reply`, which says why if it failed; `EndpointError` is raised only for what would fail
every request (a refused key, an unknown model, a quota that is used up). Once the server has responded, a refusal is
about one prompt, such as one that a moderation flags. The API key is read from `OPENAI_API_KEY` and appears in no
message, even if the server repeats it.

Two kinds of servers return the think block in another way:

- Servers that parse the reasoning and return it apart (`reasoning_content`, `reasoning`, or parts of the content): the
  text is the think block and then the content. Tags that the reasoning mentions are not part of the format; they
  become ‹answer›.
- Chat templates that open `<think>` in the prompt: a response that closes a block it never opened is marked as
  `think_opened`, and gets `<think>` in front when it is scored and recorded.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from rg_env.base.errors import RGEnvError, describe, need, one_line
from rg_env.scoring.parse import is_opened

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletion

KEY_VARIABLE = "OPENAI_API_KEY"
_TAG = re.compile(r"<(/?(?:think|answer))>")
_NAMED_WITH = "--model, or in a recipe with generator.inference_engine.served_model_name"
_MODELS_SHOWN = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
"""Seconds between two tries, as in the client: doubled with each."""
_PASSING = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS)
_KEYS_OF_TEXT = ("text", "thinking", "reasoning", "content", "summary", "refusal")
"""Where a part of a message has its text."""
_LONGEST_DETAIL = 300
_SHOWN_OF_A_PAGE = 60
"""Characters of a failure's reason, and of a reply that is not JSON."""


class EndpointError(RGEnvError):
    """The server refuses every request."""


def request_option(default: Any, help: str, **limits: Any) -> Any:
    """Return a field that is an option of every command that sends requests; `limits` are `min` and `max`."""
    return field(default=default, metadata={"help": help, **limits})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How responses are sampled. `max_tokens` is the length of the longest response."""

    temperature: float = request_option(1.0, "Sampling temperature. Default: as configured, or 1.", min=0)
    top_p: float = request_option(1.0, "Nucleus sampling. Default: as configured, or 1.", min=0, max=1)
    max_tokens: int = request_option(4096, "Maximum tokens per response. Default: as configured, or 4096.", min=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """How many requests are sent at once, how often each is tried, and what all may cost.

    Connection errors, timeouts and the statuses 408, 409, 429 and 5xx are tried again.
    """

    concurrency: int | None = request_option(
        None, "Maximum number of parallel requests. Default: 32, for transformers serve 2.", min=1
    )
    timeout: float = request_option(600.0, "Timeout of one attempt at a request, in seconds.", min=0.001)
    retries: int = request_option(5, "Retries of a failed request.", min=0)
    max_tokens_total: int | None = request_option(
        None, "Token budget of each model and attempt, with the prompts: no new group starts once it is used up.", min=1
    )


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a request.

    Attributes:
        text: what the model wrote, its reasoning included.
        stop_reason: the server's `finish_reason`.
        prompt_tokens, completion_tokens: as the server counts them; None if it does not.
        reasoning_apart: the server returned the reasoning apart from the content.
        think_opened: the text closes a think block that the prompt must have opened.
        failure: why the request failed for good, in one line; None if it did not.
    """

    text: str = ""
    stop_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_apart: bool = False
    think_opened: bool = False
    failure: str | None = None


class Responder(Protocol):
    """Responds to prompts; `url` says where."""

    @property
    def url(self) -> str: ...

    async def respond(self, messages: Sequence[Mapping[str, str]]) -> Reply: ...


class Endpoint:
    """A model on an OpenAI-compatible server. An async context manager.

    Args:
        url: base address, such as `http://127.0.0.1:8000/v1`; `/v1` may be left out.
        model: the server's name for the model.
        limits: `timeout` and `retries` apply here, the others to the caller.
        is_own: this process started the server, which gets no key and is reached through no proxy.
        request: further fields of every request.
        has_responded: the server is known to take key and model, so that a refusal is about one prompt.

    Raises:
        ConfigError: the address is not one.
    """

    def __init__(
        self,
        url: str,
        model: str,
        sampling: Sampling,
        limits: RequestLimits,
        *,
        is_own: bool = False,
        request: Mapping[str, Any] = MappingProxyType({}),
        has_responded: bool = False,
    ) -> None:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        self.url = base_url(url)
        self.model = model
        self.sampling = sampling
        self._limit = "max_tokens"
        self._request = dict(request)
        self._has_responded = has_responded
        self._retries = limits.retries
        key = None if is_own else os.environ.get(KEY_VARIABLE)
        self._client = AsyncOpenAI(
            base_url=self.url,
            api_key=key or "none",  # the client wants one, most local servers do not
            timeout=limits.timeout,
            max_retries=limits.retries,
            http_client=DefaultAsyncHttpxClient(trust_env=False) if is_own else None,
        )

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def check(self) -> None:
        """Find out at once that no server answers or that the key is refused.

        Raises:
            EndpointError: one of the two, or it has other models. Servers without a list of models pass, and so do keys
                that may not see it.
        """
        import openai

        models: list[str] = []
        try:
            models = [model.id async for model in self._client.models.list()]
            # Some servers have names that they do not list: whether this is one, a request of one token tells.
            if models and self.model not in models:
                await self._client.with_options(max_retries=0).chat.completions.create(
                    model=self.model, messages=[{"role": "user", "content": "1"}], max_tokens=1
                )
        except openai.NotFoundError:
            if models:
                names = ", ".join(map(repr, models[:_MODELS_SHOWN]))
                raise EndpointError(
                    f"{self.url} does not serve {self.model!r}, only {names}: name one with {_NAMED_WITH}"
                ) from None
        except openai.AuthenticationError as error:
            raise self._refusal(error) from None
        except openai.APIConnectionError as error:
            # Refused, and not merely slow: a server that takes long may still answer the requests.
            if type(error.__cause__).__name__ == "ConnectError":
                why = _reason(error.__cause__ or error)
                right = "check its host and port, and whether it runs"
                if "WRONG_VERSION_NUMBER" in why:  # the reply to TLS was none
                    right = f"it speaks http: write {self.url.replace('https', 'http', 1)}"
                raise EndpointError(f"no server answers at {self.url} ({why}); {right}") from None
        except (openai.OpenAIError, ValueError, TypeError, AttributeError):
            return

    async def respond(self, messages: Sequence[Mapping[str, str]]) -> Reply:
        """Sample one response.

        Raises:
            EndpointError: no request can succeed.
        """
        import openai

        try:
            reply = await self._ask(messages)
        except (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError) as error:
            if not self._has_responded:
                raise self._refusal(error) from None
            return Reply(failure=_reason(error))
        except openai.RateLimitError as error:
            if error.code == "insufficient_quota":
                raise EndpointError(f"{self.url}: the quota is used up ({_reason(error)})") from None
            return Reply(failure=_reason(error))
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            return Reply(failure=_reason(error))
        if reply.failure is None:
            self._has_responded = True
        return reply

    async def _ask(self, messages: Sequence[Mapping[str, str]]) -> Reply:
        """Return the reply to one request. An error in a reply of the status 200 is tried again, as the client does
        with one that has its own status."""
        retries = 0
        while True:
            completion = await self._create(messages)
            error = _error_of(completion)
            if error is None:
                return _reply(completion)
            if retries == self._retries or not _may_pass(error):
                return Reply(failure=_error_line(error))
            await asyncio.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**retries))
            retries += 1

    def _refusal(self, error: openai.APIStatusError) -> EndpointError:
        """Return why no request can succeed, by the status of the first reply."""
        reason = _reason(error)
        if error.status_code == HTTPStatus.NOT_FOUND:
            what = (
                f"{self.url} does not serve a model named {self.model!r}, or is not an OpenAI-compatible API ({reason})"
            )
            return EndpointError(f"{what}: name its model with {_NAMED_WITH}")
        if not os.environ.get(KEY_VARIABLE):
            return EndpointError(f"{self.url} wants a key: set {KEY_VARIABLE} ({reason})")
        return EndpointError(f"{self.url} refuses the key in {KEY_VARIABLE} ({reason})")

    async def _create(self, messages: Sequence[Mapping[str, str]]) -> ChatCompletion:
        import openai

        # The limit has one of two names. The older one is tried first; a server that wants the newer one says so.
        request: dict[str, Any] = {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            self._limit: self.sampling.max_tokens,
            "extra_body": self._request,
        }
        try:
            completion: ChatCompletion = await self._client.chat.completions.create(**request)
        except openai.BadRequestError as error:
            if "max_completion_tokens" in request or "max_completion_tokens" not in str(error):
                raise
            self._limit = "max_completion_tokens"  # the newer name, which some hosted models insist on
            return await self._create(messages)
        return completion


def base_url(url: str) -> str:
    """Return the address with its path, without that of a request; `/v1` if it has none.

    >>> base_url("http://127.0.0.1:8000/"), base_url("http://127.0.0.1:8000/api/v1/chat/completions")
    ('http://127.0.0.1:8000/v1', 'http://127.0.0.1:8000/api/v1')

    Raises:
        ConfigError: it is not an address, or contains a password.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or True)
    except ValueError:
        valid = False
    need(valid, "endpoint", url, "must be an address such as http://127.0.0.1:8000/v1")
    if parts.username or parts.password or parts.query:
        need(False, "endpoint", f"{parts.scheme}://{parts.hostname}", f"put the key in {KEY_VARIABLE}, not in the URL")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


def _error_of(completion: ChatCompletion | str) -> Mapping[str, Any] | None:
    """Return the error that a reply of the status 200 consists of; None if it is one with an answer."""
    error = getattr(completion, "error", None)
    choices = getattr(completion, "choices", None)
    # Some gateways put it into the choice.
    if not error and choices:
        error = getattr(choices[0], "error", None)
    if isinstance(error, str) and error:
        return {"message": error}
    if isinstance(error, Mapping) and error:
        return error
    return None


def _may_pass(error: Mapping[str, Any]) -> bool:
    """Return whether another try may succeed: unless the error has the status of a mistake in the request."""
    code = error.get("code")
    if not isinstance(code, int):
        return True
    return code in _PASSING or code >= HTTPStatus.INTERNAL_SERVER_ERROR


def _error_line(error: Mapping[str, Any]) -> str:
    message = error.get("message") or json.dumps(dict(error), default=str)
    code = error.get("code")
    text = f"{code}: {message}" if code else str(message)
    return one_line(_without_key(text), _LONGEST_DETAIL)


def _split_parts(content: object) -> tuple[str, str]:
    """Return the text and the reasoning of a message's content, which is a text or a list of parts."""
    parts = content if isinstance(content, list) else [content]
    texts, thoughts = [], []
    for part in parts:
        kind = str(part.get("type")) if isinstance(part, Mapping) else "text"
        if kind.startswith(("think", "reason")):
            thoughts.append(_text_of(part))
        else:
            texts.append(_text_of(part))
    return "".join(texts), "".join(thoughts)


def _text_of(value: object, depth: int = 3) -> str:
    """Return the text of a part, which may be in a list of parts itself."""
    if isinstance(value, str):
        return value
    if depth == 0:
        return ""
    if isinstance(value, list):
        return "".join(_text_of(part, depth - 1) for part in value)
    if isinstance(value, Mapping):
        for key in _KEYS_OF_TEXT:
            if value.get(key):
                return _text_of(value[key], depth - 1)
    return ""


def _reply(completion: ChatCompletion | str) -> Reply:
    if isinstance(completion, str):  # what the client makes of a reply of another type than JSON
        return Reply(failure=_not_json(completion))
    if not getattr(completion, "choices", None):
        return Reply(failure="the server returned no choices")
    choice, usage = completion.choices[0], completion.usage
    message: Any = choice.message
    if message is None:
        return Reply(failure="the server returned a choice without a message")
    text, thought = _split_parts(message.content)
    text = text or _text_of(message.refusal)
    reasoning = _text_of(getattr(message, "reasoning_content", None)) or _text_of(getattr(message, "reasoning", None))
    reasoning = reasoning or thought
    apart = bool(reasoning.strip())
    if apart:
        text = with_reasoning(reasoning, text)
    think_opened = not apart and is_opened(text)
    reply = Reply(text, choice.finish_reason, reasoning_apart=apart, think_opened=think_opened)
    if usage is None:
        return reply
    return replace(reply, prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)


def with_reasoning(reasoning: str, content: str) -> str:
    """Return the text of a response whose reasoning came apart from its content.

    >>> with_reasoning("2 and 2, in <answer>", "<answer>4</answer>")
    '<think>2 and 2, in ‹answer›</think><answer>4</answer>'

    A think block at the beginning of the content is continued.
    """
    thought = _TAG.sub(r"‹\1›", reasoning)
    if content.lstrip().startswith("<think>"):
        return f"<think>{thought}\n{content.lstrip().removeprefix('<think>')}"
    if not content and not reasoning:
        return ""
    if content:
        return f"<think>{thought}</think>{content}"
    return f"<think>{thought}"


def _not_json(text: str) -> str:
    """Describe a reply that is something else, such as the page of a proxy."""
    return f"the reply is not JSON: {one_line(text, _SHOWN_OF_A_PAGE)!r}; API addresses usually end in /v1"


def _reason(error: BaseException) -> str:
    """Return an error as one line without the key."""
    status = getattr(error, "status_code", None)
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, Mapping) else None
    if isinstance(error, json.JSONDecodeError):
        text = _not_json(error.doc)
    elif status and message:
        text = f"{status}: {message}"
    else:
        text = describe(error)
    return one_line(_without_key(text), _LONGEST_DETAIL)


def _without_key(text: str) -> str:
    if key := os.environ.get(KEY_VARIABLE):
        return text.replace(key, "***")
    return text
