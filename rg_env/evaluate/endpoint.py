"""An OpenAI-compatible server as the source of responses.

Invariant: a request ends as a `Reply`, which says why if it failed; `EndpointError` is raised only for what would fail
every request (a refused key, an unknown model). The API key is read from `OPENAI_API_KEY` and appears in no message,
even if the server repeats it.

Two kinds of servers return the think block in another form:

- Servers that parse the reasoning and return it apart (`reasoning_content` or `reasoning`): the text is the think block
  and then the content. Tags that the reasoning mentions are not part of the format; they become ‹answer›.
- Chat templates that open `<think>` in the prompt: a response that closes a block it never opened is marked as
  `think_opened`, and gets `<think>` in front when it is scored and recorded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rg_env.errors import RGEnvError, describe, need, one_line

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

KEY_VARIABLE = "OPENAI_API_KEY"
_TAG = re.compile(r"<(/?(?:think|answer))>")
_LONGEST_DETAIL = 300


class EndpointError(RGEnvError):
    """The server refuses every request."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How responses are sampled.

    Attributes:
        max_tokens: longest response, in tokens.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 4096


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


class Endpoint:
    """A model on an OpenAI-compatible server. An async context manager.

    Args:
        url: base address, such as `http://127.0.0.1:8000/v1`; `/v1` may be left out.
        model: the server's name for the model.
        timeout: seconds for one try of a request.
        retries: further tries after connection errors, timeouts and the statuses 408, 409, 429 and 5xx.
        is_own: this process started the server, which gets no key and is reached through no proxy.
        request: further fields of every request.

    Raises:
        ConfigError: the address is not one.
    """

    def __init__(
        self,
        url: str,
        model: str,
        sampling: Sampling,
        *,
        timeout: float,
        retries: int,
        is_own: bool = False,
        request: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        self.url = base_url(url)
        self.model = model
        self.sampling = sampling
        self._limit = "max_tokens"
        self._request = dict(request)
        self._client = AsyncOpenAI(
            base_url=self.url,
            api_key=(not is_own and os.environ.get(KEY_VARIABLE)) or "none",  # servers on one's own machine need none
            timeout=timeout,
            max_retries=retries,
            http_client=DefaultAsyncHttpxClient(trust_env=False) if is_own else None,
        )

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def check(self) -> None:
        """Find out at once that no server answers or that the key is refused.

        Raises:
            EndpointError: one of the two. Servers without a list of models pass.
        """
        import openai

        try:
            await self._client.models.list()
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise self._refused(error) from None
        except openai.APIConnectionError as error:
            if type(error.__cause__).__name__ == "ConnectError":
                raise EndpointError(f"no server answers at {self.url} ({_reason(error.__cause__ or error)})") from None
        except (openai.OpenAIError, ValueError, TypeError, AttributeError):
            return

    def _refused(self, error: Exception) -> EndpointError:
        return EndpointError(f"{self.url} refuses the key in {KEY_VARIABLE} ({_reason(error)})")

    async def respond(self, messages: Sequence[Mapping[str, str]]) -> Reply:
        """Sample one response.

        Raises:
            EndpointError: no request can succeed.
        """
        import openai

        try:
            return _reply(await self._create(messages))
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise self._refused(error) from None
        except openai.NotFoundError as error:
            raise EndpointError(f"{self.url} has no model {self.model!r}, or is no API ({_reason(error)})") from None
        except openai.RateLimitError as error:
            if error.code == "insufficient_quota":
                raise EndpointError(f"{self.url}: the quota is used up ({_reason(error)})") from None
            return Reply(failure=_reason(error))
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            return Reply(failure=_reason(error))

    async def _create(self, messages: Sequence[Mapping[str, str]]) -> ChatCompletion:
        import openai

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
    """The address with its path; `/v1` if it has none.

    >>> base_url("http://127.0.0.1:8000/")
    'http://127.0.0.1:8000/v1'

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
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"


def _reply(completion: ChatCompletion | str) -> Reply:
    if isinstance(completion, str):  # what the client makes of a reply that is not JSON
        return Reply(failure="the server's reply is not JSON; the address of an API mostly ends in /v1")
    if not getattr(completion, "choices", None):
        return Reply(failure="the server returned no choices")
    choice, usage = completion.choices[0], completion.usage
    message = choice.message
    text = message.content or message.refusal or ""
    reasoning = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    apart = isinstance(reasoning, str) and bool(reasoning.strip())
    if apart:
        text = with_reasoning(str(reasoning), text)
    return Reply(
        text=text,
        stop_reason=choice.finish_reason,
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        completion_tokens=None if usage is None else usage.completion_tokens,
        reasoning_apart=apart,
        think_opened=not apart and "</think>" in text and "<think>" not in text,
    )


def with_reasoning(reasoning: str, content: str) -> str:
    """The text of a response whose reasoning came apart from its content.

    >>> with_reasoning("2 and 2, in <answer>", "<answer>4</answer>")
    '<think>2 and 2, in ‹answer›</think><answer>4</answer>'

    A think block at the beginning of the content is continued.
    """
    thought = _TAG.sub(r"‹\1›", reasoning)
    if content.lstrip().startswith("<think>"):
        return f"<think>{thought}\n{content.lstrip().removeprefix('<think>')}"
    if not content and not reasoning:
        return ""
    return f"<think>{thought}</think>{content}" if content else f"<think>{thought}"


def _reason(error: BaseException) -> str:
    """An error as one line without the key."""
    status = getattr(error, "status_code", None)
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, Mapping) else None
    text = f"{status}: {message}" if status and message else describe(error)
    key = os.environ.get(KEY_VARIABLE)
    return one_line(text.replace(key, "***") if key else text, _LONGEST_DETAIL)
