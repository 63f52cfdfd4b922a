"""Every way in which a server can fail ends as a reply, a reply with a reason, or one error for the whole run."""

import asyncio

import pytest

from rg_env.base.errors import ConfigError
from rg_env.evaluate.endpoint import Endpoint, EndpointError, Reply, RequestLimits, Sampling, base_url
from tests.evaluate.server import CUT, HANG, Answer, completion, error, serving

KEY = "sk-secret-0123456789"
MESSAGES = [{"role": "user", "content": "1+1?"}]
RIGHT = completion("<think>x</think><answer>2</answer>")


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def ask(server, times=1, timeout=30.0, retries=2):
    async def run():
        limits = RequestLimits(timeout=timeout, retries=retries)
        async with Endpoint(server.url, "m", Sampling(max_tokens=9), limits) as endpoint:
            return [await endpoint.respond(MESSAGES) for _ in range(times)]

    return asyncio.run(run())


def test_a_response_and_its_request():
    with serving(lambda number, body: RIGHT) as server:
        (response,) = ask(server)
    assert response == Reply("<think>x</think><answer>2</answer>", "stop", 11, 7)
    assert server.requests == [
        {"model": "m", "messages": MESSAGES, "temperature": 1.0, "top_p": 1.0, "max_tokens": 9},
    ]
    assert server.keys == {f"Bearer {KEY}"}


def test_passing_trouble_is_tried_again():
    in_body = Answer(200, {"error": {"message": "the provider is busy", "code": 429}})
    for trouble in (error(429, "slow down"), error(503, "later"), in_body, Answer(CUT)):
        with serving(lambda number, body, trouble=trouble: trouble if number < 2 else RIGHT) as server:
            (response,) = ask(server)
        assert (response.failure, len(server.requests)) == (None, 3)


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (error(429, "slow down"), "429: slow down"),
        (error(500, f"oops with {KEY}"), "500: oops with ***"),
        (error(400, "the prompt is too long"), "400: the prompt is too long"),
        (Answer(CUT), "Connection error"),
        (Answer(200, {"choices": [], "object": "chat.completion"}), "no choices"),
        (Answer(200, {}), "no choices"),
        (Answer(200, {"error": {"message": f"no credits for {KEY}", "code": 402}}), "402: no credits for ***"),
        (Answer(200, {"error": "overloaded"}), "overloaded"),
        (Answer(200, {"choices": [{"message": {"content": "<answer>2"}, "error": {"message": "cut"}}]}), "cut"),
        (Answer(200, b"<html>", {"content-type": "text/html"}), "the reply is not JSON: '<html>'"),
        (Answer(200, b"<html>"), "the reply is not JSON: '<html>'; API addresses usually end in /v1"),
        (Answer(200, b'{"choices": [', {}), "the reply is not JSON"),
        (Answer(200, {"choices": [{"message": None}]}), "a choice without a message"),
    ],
)
def test_lasting_trouble_is_a_failure_with_a_reason(trouble, reason):
    with serving(lambda number, body: trouble) as server:
        (failure,) = ask(server, retries=1)
    assert reason in failure.failure
    assert failure.failure
    assert KEY not in failure.failure
    assert "\n" not in failure.failure


def test_a_server_that_hangs_is_a_timeout():
    with serving(lambda number, body: Answer(HANG)) as server:
        (failure,) = ask(server, timeout=0.2, retries=0)
    assert "timed out" in failure.failure.lower()


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (error(401, f"Incorrect API key provided: {KEY}"), "refuses the key in OPENAI_API_KEY"),
        (error(403, "not allowed"), "refuses the key in OPENAI_API_KEY"),
        (error(404, "The model `m` does not exist"), "does not serve a model named 'm'"),
        (error(429, "You exceeded your current quota", "insufficient_quota"), "quota"),
    ],
)
def test_what_fails_every_request_is_one_error_without_the_key(trouble, message):
    with serving(lambda number, body: trouble) as server, pytest.raises(EndpointError, match=message) as caught:
        ask(server, retries=0)
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_once_the_server_has_responded_a_refusal_is_about_one_prompt(status):
    flagged = error(status, "input was flagged by moderation")
    with serving(lambda number, body: flagged if number == 1 else RIGHT) as server:
        before, refused, after = ask(server, times=3)
    assert (before.failure, after.failure) == (None, None)
    assert refused.failure == f"{status}: input was flagged by moderation"


def test_a_key_that_is_not_set_is_not_called_refused(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    wants = r"wants a key: set OPENAI_API_KEY \(401: no key"
    with serving(lambda number, body: error(401, "no key")) as server, pytest.raises(EndpointError, match=wants):
        ask(server)


def test_reasoning_that_comes_apart_is_the_think_block_and_an_opened_one_is_noticed():
    script = [
        completion("<answer>2</answer>", reasoning_content="I put it in <answer> tags."),
        completion("<think>so</think><answer>2</answer>", reasoning="hm"),
        completion("", reasoning_content="too long", finish="length"),
        completion(None, reasoning_content=None, tokens=None),
        completion("so</think><answer>2</answer>"),
    ]
    with serving(lambda number, body: script[number]) as server:
        apart, continued, cut, nothing, opened = ask(server, times=5)
    assert apart.text == "<think>I put it in ‹answer› tags.</think><answer>2</answer>"
    assert continued.text == "<think>hm\nso</think><answer>2</answer>"
    assert (cut.text, cut.stop_reason) == ("<think>too long", "length")
    assert [reply.reasoning_apart for reply in (apart, continued, cut, nothing)] == [True, True, True, False]
    assert (nothing.text, nothing.completion_tokens) == ("", None)
    assert [reply.think_opened for reply in (apart, continued, opened)] == [False, False, True]


@pytest.mark.parametrize(
    ("content", "message", "text"),
    [
        ([{"type": "text", "text": "<think>so</think>"}, {"type": "text", "text": "<answer>2</answer>"}], {}, None),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}, "<answer>2</answer>"], {}, None),
        ([{"type": "reasoning", "text": "so"}, {"type": "output_text", "text": "<answer>2</answer>"}], {}, None),
        ("<answer>2</answer>", {"reasoning_content": [{"type": "text", "text": "so"}]}, None),
        ("<answer>2</answer>", {"reasoning": {"text": "so"}}, None),
        ([], {}, ""),
        ([None, 5, {"type": "image"}, [[[[["deep"]]]]]], {}, ""),
    ],
)
def test_content_in_parts_is_joined_and_a_part_of_reasoning_is_reasoning(content, message, text):
    with serving(lambda number, body: completion(content, **message)) as server:
        (reply,) = ask(server)
    assert reply.text == ("<think>so</think><answer>2</answer>" if text is None else text)
    assert reply.failure is None


def test_a_model_that_wants_the_newer_name_of_the_limit_gets_it():
    def script(number, body):
        newer = "max_completion_tokens" in body
        return RIGHT if newer else error(400, "use 'max_completion_tokens' instead of 'max_tokens'")

    with serving(script) as server:
        assert all(reply.failure is None for reply in ask(server, times=2))
    assert [("max_tokens" in body) for body in server.requests] == [True, False, False]


def test_what_is_no_address_and_a_key_in_one_are_refused():
    for url in ("127.0.0.1:8000", "ftp://host", "http://", "http://host:port", ""):
        with pytest.raises(ConfigError, match="must be an address"):
            base_url(url)
    with pytest.raises(ConfigError, match="put the key in OPENAI_API_KEY") as caught:
        base_url(f"https://user:{KEY}@host/v1")
    assert KEY not in str(caught.value)


def test_nobody_listening_is_found_out_at_once():
    async def check(url):
        async with Endpoint(url, "m", Sampling(), RequestLimits(timeout=5, retries=0)) as endpoint:
            await endpoint.check()

    with serving(lambda number, body: RIGHT) as server:
        asyncio.run(check(server.url))  # without a list of models
    with pytest.raises(EndpointError, match="no server answers"):
        asyncio.run(check(server.url))
