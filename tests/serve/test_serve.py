"""`rg-env serve`: real servers, asked by real clients; every request gets its verdict or one line that says why not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psutil
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from rg_env.attack.attacks import attacks
from rg_env.base.errors import RGEnvError
from rg_env.cli import app
from rg_env.rows.item_source import item_of_id
from rg_env.scoring import Scorer, Status, guarded
from rg_env.scoring.guard import REWRITES
from rg_env.serve import item_makers
from rg_env.serve.desk import Desk
from rg_env.serve.http_app import make_app
from tests.serve.served import number_in

GCD = "gcd-train-42-0"


@contextmanager
def serving(*options: str, **environment: str) -> Iterator[SimpleNamespace]:
    """A server of its own, and clients of it."""
    command = [sys.executable, "-m", "rg_env", "serve", "--port", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert server.stdout
    try:
        # Where Reasoning Gym is imported for the first time, Python may warn about its source before.
        lines = []
        address = None
        while address is None:
            lines.append(server.stdout.readline())
            assert lines[-1], "".join(lines)
            address = re.search(r"http://\S+", lines[-1])
        url = re.sub("//(::|0.0.0.0):", "//127.0.0.1:", address[0])
        with httpx.Client(base_url=url, timeout=60) as client:
            yield SimpleNamespace(process=server, url=url, client=client, post=client.post, get=client.get)
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module")
def server() -> Iterator[SimpleNamespace]:
    with serving("--workers", "2") as made:
        yield made


def entry_of(item_id: str) -> dict[str, Any]:
    item = item_of_id(item_id)
    assert item is not None
    return json.loads(json.dumps(item.entry))


def test_responses_and_answers_get_the_verdicts_of_the_scorer(server: SimpleNamespace) -> None:
    right = entry_of(GCD)["answer"]
    texts = [
        f"<think>a</think><answer>{right}</answer>",
        "<think>a</think><answer>-1</answer>",
        f"<answer>{right}</answer>",
    ]
    for item in ({"item": GCD}, {"entry": entry_of(GCD)}, {"entry": json.dumps(entry_of(GCD)), "task": "gcd"}):
        verdicts = server.post("/score", json=item | {"response": texts}).json()["verdicts"]
        assert [(v["score"], v["status"], v["violation"]) for v in verdicts] == [
            (1.0, "ok", ""),
            (0.0, "ok", ""),
            (0.0, "ok", "no_think"),
        ]
    (lenient,) = server.post("/score", json={"item": GCD, "response": texts[2], "format": "lenient"}).json()["verdicts"]
    assert (lenient["score"], lenient["answer"]) == (1.0, right)
    answers = server.post("/score", json={"item": GCD, "answer": [right, "-1"]}).json()["verdicts"]
    assert [verdict["score"] for verdict in answers] == [1.0, 0.0]
    health = server.get("/health").json()
    assert (health["workers"], health["waiting"]) == (2, 0)
    assert health["scored"]["ok"] >= 12
    assert len(server.get("/tasks").json()) == 105


@pytest.mark.parametrize(
    ("path", "body", "status", "why"),
    [
        ("/score", b'{"item": "gcd', 422, "JSON"),
        ("/score", b"[" * 100_000, 422, ""),
        ("/score", b"\xff\xfe", 422, ""),
        ("/score", {"item": GCD}, 422, "send either `response`"),
        ("/score", {"item": GCD, "answer": "1", "response": "1"}, 422, "send either `response`"),
        ("/score", {"item": GCD, "anwser": "1"}, 422, "Object contains unknown field `anwser`"),
        ("/score", {"item": GCD, "x\n" * 9999: "1"}, 422, "Object contains unknown field"),
        ("/score", {"item": GCD, "answer": 5}, 422, "answer: Expected `str | array`, got `int`"),
        ("/score", {"item": GCD, "answer": ["1", 5]}, 422, "answer: Expected `str`, got `int` - at `$[1]`"),
        ("/score", [1], 422, "Expected `object`, got `array`"),
        ("/score", {"answer": "5"}, 422, "name the item"),
        ("/score", {"item": "gdc-train-42-0", "answer": "1"}, 422, "unknown task 'gdc'; did you mean"),
        ("/score", {"item": "gcd", "answer": "1"}, 422, ""),
        ("/score", {"entry": {"question": "?"}, "answer": "1"}, 422, "the entry names no task"),
        ("/score", {"entry": {"question": "?"}, "task": "nope", "answer": "1"}, 422, "unknown task 'nope'"),
        (
            "/score",
            {"item": GCD, "answer": "1", "format": "loose"},
            422,
            "Invalid enum value 'loose' - at `$.format`",
        ),
        ("/score", {"item": GCD, "config": {"max_value": 9}, "answer": "1"}, 422, "leave out task and config"),
        ("/score", {"item": GCD, "task": "lcm", "answer": "1"}, 422, "leave out task and config"),
        ("/score", {"item": GCD, "entry": entry_of(GCD), "answer": "1"}, 422, "send either `item`"),
        ("/score", {"entry": entry_of(GCD), "config": "{}", "answer": "1"}, 422, "config: Expected `object`"),
        ("/verify", {"question": "?"}, 422, "a row needs"),
        ("/reward", {"query": ["x"], "labels": []}, 422, "send one label for each of the 1 responses: labels"),
        ("/reward", {"query": ["x"], "prompts": ["x", "y"], "labels": [GCD]}, 422, "differ in length"),
        ("/reward", {"response": "x"}, 422, "name the item"),
        ("/reward", {"label": GCD}, 422, "send response and label, as slime does"),
        ("/reward", {"query": "x", "labels": []}, 422, "send one label for each of the 1 responses: labels"),
        ("/nowhere", {}, 404, "GET /openapi.json"),
        ("/health", {}, 405, "GET /openapi.json"),
    ],
)
def test_what_cannot_be_scored_is_one_line_and_no_score(
    server: SimpleNamespace, path: str, body: Any, status: int, why: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = server.post(path, content=content, headers={"Content-Type": "application/json"})
    assert (reply.status_code, list(reply.json())) == (status, ["error"])
    assert why in reply.json()["error"] and "\n" not in reply.json()["error"]
    assert len(reply.text) < 300 and reply.headers.get("Allow") == ("GET" if status == 405 else None)


def test_the_server_says_what_it_answers_without_a_network(server: SimpleNamespace) -> None:
    page = server.get("/").text
    assert "/openapi.json" in page and page.count("\n") == 1
    description = server.get("/openapi.json").json()
    assert description["paths"].keys() >= {"/score", "/verify", "/reward", "/health", "/reset", "/create_session"}
    assert {"entry", "item", "answer"} <= description["components"]["schemas"]["ScoreRequest"]["properties"].keys()


def test_a_body_that_is_not_declared_as_json_is_told_the_header(server: SimpleNamespace) -> None:
    reply = server.post("/score", content=json.dumps({"item": GCD, "answer": "1"}).encode())
    assert reply.status_code == 422 and "Content-Type: application/json" in reply.json()["error"]


def asked_raw(server: SimpleNamespace, *headers: str, body: bytes = b"") -> bytes:
    """The status line and the rest of the reply to a request with exactly these headers."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    lines = ["POST /score HTTP/1.1", "Content-Type: application/json", "Connection: close", *headers]
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        with contextlib.suppress(ConnectionError):  # the server may reply before it has read everything
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        reply = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(1 << 16):
                reply += part
    return reply


def in_chunks(body: bytes) -> bytes:
    size = 1 << 16
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def test_a_body_over_the_limit_is_refused_however_it_is_sent(server: SimpleNamespace) -> None:
    assert server.post("/score", content=b" " * (5 << 20)).status_code == 413
    chunked = "Transfer-Encoding: chunked"
    small = in_chunks(json.dumps({"item": GCD, "answer": "1"}).encode())
    assert asked_raw(server, "Host: localhost", chunked, body=small).startswith(b"HTTP/1.1 200")
    for headers in ([chunked], [chunked, "Content-Length: 5"]):
        reply = asked_raw(server, "Host: localhost", *headers, body=in_chunks(b" " * (5 << 20)))
        assert reply.startswith(b"HTTP/1.1 413") and b'{"error":"a request has at most' in reply


def test_texts_and_rows_that_utf_8_cannot_encode_are_answered(server: SimpleNamespace) -> None:
    def post(path: str, body: Any) -> Any:  # httpx encodes its `json` as UTF-8
        headers = {"Content-Type": "application/json"}
        return server.post(path, content=json.dumps(body).encode(), headers=headers).json()

    right = entry_of(GCD)["answer"]
    verdicts = post("/score", {"item": GCD, "answer": ["\ud800", right]})["verdicts"]
    assert [(verdict["score"], verdict["status"]) for verdict in verdicts] == [(0.0, "rejected"), (1.0, "ok")]
    row = nemo_row(right) | {"note": "\ud800", "_sa": 1}  # FastAPI's own encoder leaves `_sa` out
    assert post("/verify", row).items() >= row.items()
    session = {"resources_session_id": "\ud800"}
    assert post("/seed_session", session) == session


@pytest.mark.parametrize("depth", [900, 5000, 100_000])
@pytest.mark.parametrize("path", ["/score", "/verify", "/reward", "/seed_session"])
def test_deep_bodies_are_answered_or_refused_with_one_line(server: SimpleNamespace, path: str, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    bodies = {
        "/score": f'{{"entry": {deep}, "answer": "2"}}',
        "/verify": json.dumps(nemo_row("2"))[:-1] + f', "x": {deep}}}',
        "/reward": f'{{"response": "<answer>2</answer>", "label": {deep}}}',
        "/seed_session": f'{{"resources_session_id": {deep}}}',
    }
    reply = server.post(path, content=bodies[path].encode(), headers={"Content-Type": "application/json"})
    if reply.status_code == 200:
        assert depth == 900 and path in ("/verify", "/seed_session")
        assert reply.json().items() >= json.loads(bodies[path]).items()
    else:
        assert reply.status_code in (400, 422)
        assert re.fullmatch(rb'{"error":"[^\n]+"}', reply.content)


def test_without_a_token_only_names_of_this_machine_are_answered(server: SimpleNamespace) -> None:
    """A page whose name leads to this machine (DNS rebinding) is in a browser, which sends that name."""
    for host in ("localhost", "127.0.0.1:8600", "[::1]:8600", "sessions.localhost"):
        assert asked_raw(server, f"Host: {host}").startswith(b"HTTP/1.1 422")
    for host in ("evil.example", "evil.example:8600", "[evil", "127.0.0.1.evil.example", "localhost.evil.example"):
        assert asked_raw(server, f"Host: {host}").startswith(b"HTTP/1.1 403")


# What nemo-gym 0.7.0's `BaseVerifyResponse` and its Reasoning Gym server declare; the package needs a newer Python.
NEMO_FIELDS = {"reward", "mask_sample", "failure_kind", "failure_reason", "task_name", "score", "extracted_answer"}


def nemo_row(text: str, item_id: str = GCD) -> dict[str, Any]:
    entry = entry_of(item_id)
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {
        "responses_create_params": {"input": [{"role": "user", "content": entry["question"]}]},
        "response": {"id": "r", "object": "response", "output": [{"type": "reasoning", "summary": []}, said]},
        **entry,
    }


def test_rows_of_nemo_gym_come_back_with_their_reward(server: SimpleNamespace) -> None:
    right = entry_of(GCD)["answer"]
    for text, reward in (
        (f"<answer>{right}</answer>", 1.0),
        (f"So <answer>-1</answer>? No.</think><answer>{right}</answer>", 1.0),  # the prompt opened the think block
        (f"So it is \\boxed{{{right}}}.", 1.0),
        (f"\\boxed{{{right}}}, no, \\boxed{{-1}} or \\boxed{{", 1.0),  # the first, as NeMo Gym's server
        (f"\\boxed{{-1}}, no, \\boxed{{{right}}}", 0.0),
        (right, 1.0),
        ("-1", 0.0),
    ):
        row = nemo_row(text)
        before = server.get("/health").json()["scored"].get("ok", 0)
        reply = server.post("/verify", json=row).json()
        assert server.get("/health").json()["scored"]["ok"] == before + 1
        assert reply.items() >= row.items()
        assert reply.keys() - row.keys() == NEMO_FIELDS
        assert (reply["reward"], reply["mask_sample"], reply["failure_kind"]) == (reward, False, None)
    grids = entry_of("rearc-train-42-0")  # whose scorer compares tuples, which JSON does not have
    reply = server.post("/verify", json=nemo_row(grids["answer"], "rearc-train-42-0")).json()
    assert (reply["reward"], reply["failure_kind"]) == (1.0, None)
    corrupt = nemo_row("5") | {"metadata": {"source_dataset": "sudoku"}}
    reply = server.post("/verify", json=corrupt).json()
    assert (reply["reward"], reply["mask_sample"], reply["failure_kind"]) == (0.0, True, "verifier_error")
    assert reply["failure_reason"].startswith("error: ")
    verified = [server.post("/verify", json=nemo_row(text)).json() for text in (right, "-1")]
    summary = server.post("/aggregate_metrics", json={"verify_responses": [*verified, reply]}).json()
    assert summary["key_metrics"] == {"num_rollouts": 3, "num_masked": 1, "mean/reward": 0.5}
    assert server.get("/reverify_mode").json() == "stateless"
    assert server.post("/seed_session", json={}).json() == {}


def test_remote_reward_models(server: SimpleNamespace) -> None:
    entry = entry_of(GCD)
    good, bad = f"<answer>{entry['answer']}</answer>", "<answer>-1</answer>"
    slime = [
        server.post("/reward", json={"prompt": "p", "response": text, "label": GCD}).json() for text in (good, bad)
    ]
    assert slime == [1.0, 0.0]
    labels = [GCD, json.dumps(entry)]
    body = {
        "query": [f"Q {good}", f"<answer>7</answer>{bad}"],
        "prompts": ["Q ", "<answer>7</answer>"],
        "labels": labels,
    }
    assert server.post("/reward", json=body).json()["rewards"] == [1.0, 0.0]
    # A template that opens the think block, and tokenizers that decode a prompt with other spaces, or cut it.
    thought = f"<answer>7</answer>?</think>{good}"
    opened = "<answer>…</answer> <think>\n"
    body = {"prompt": opened, "response": thought, "label": GCD}
    assert server.post("/reward", json=body).json() == 1.0
    body |= {"prompt": [{"role": "user", "content": "?"}], "response": good}
    assert server.post("/reward", json=body).json() == 1.0
    prompts = [opened, f"<s>[INST]{opened}", "<s>[INST] Q"]
    queries = [f"{opened}{thought}", f"<s> [INST]{opened.strip()} {thought}", f"[INST] Q {good}"]
    body = {"query": queries, "prompts": prompts, "labels": [GCD] * 3}
    assert server.post("/reward", json=body).json()["rewards"] == [1.0, 1.0, 1.0]
    reply = server.post("/reward", json={"query": [good], "prompts": [opened], "labels": [GCD]})
    assert reply.status_code == 422 and "does not begin with its prompt" in reply.json()["error"]
    broken = json.dumps({"question": "?", "metadata": {"source_dataset": "sudoku"}})
    reply = server.post("/reward", json={"response": good, "label": broken})
    assert reply.status_code == 422 and reply.json()["error"].startswith("error: ")


def refusal_of(*options: str) -> str:
    """The one line with which a server does not start."""
    done = CliRunner().invoke(app, ["serve", *options])
    assert isinstance(done.exception, RGEnvError), done.output
    assert "\n" not in str(done.exception)
    return str(done.exception)


def test_a_token_is_needed_where_others_may_ask() -> None:
    assert "RG_ENV_TOKEN" in refusal_of("--host", "0.0.0.0")
    host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # all addresses, of both kinds
    with serving("--token", "secret", "--host", host) as server:
        assert server.get("/health").status_code == 401
        assert server.get("/health", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert server.get("/health", headers={"Authorization": "Bearer secret"}).status_code == 200
        taken = server.url.rpartition(":")[2]
        assert "choose another --port" in refusal_of("--port", taken)


def test_health_says_whether_a_function_still_knows_its_examples(tmp_path: Path) -> None:
    prices = tmp_path / "prices"
    prices.write_text("2.5")
    function = guarded(number_in, workers=1, sandbox=False, examples=[((str(prices),), 2.5)])
    with TestClient(make_app(Desk(Scorer(1), function)), base_url="http://127.0.0.1") as client:
        health = client.get("/health").json()
        assert (health["status"], health["examples"]) == ("healthy", {"scored": 1, "failed": []})
        prices.write_text("3")
        health = client.get("/health").json()
    assert health["status"] == "unhealthy"
    (failed,) = health["examples"]["failed"]
    assert failed.endswith("scores 3.0, not 2.5 (ok)")


def test_a_function_of_ones_own_and_the_end_of_the_server() -> None:
    """SIGTERM answers what is being scored, then ends, and leaves no process."""
    with serving("--scorer", "tests.serve.served:sleeper", "--workers", "2") as server:
        family = psutil.Process(server.process.pid)
        first = server.post("/score", json={"calls": [[0.0], ["x"], [0.1]]}).json()["results"]
        assert [(call["value"], call["status"]) for call in first] == [(0.0, "ok"), (None, "error"), (0.1, "ok")]
        replies: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: replies.append(server.post("/score", json={"calls": [[2.0]]})))
        asking.start()
        while server.get("/health").json()["waiting"] == 0:
            time.sleep(0.05)
        children = family.children(recursive=True)
        server.process.send_signal(signal.SIGTERM)
        asking.join(30)
        assert replies[0].json()["results"][0]["value"] == 2.0
        server.client.close()
        assert server.process.wait(30) in (0, -signal.SIGTERM, 143)
        assert psutil.wait_procs(children, timeout=10)[1] == []
        assert server.process.stdout.read().splitlines()[-1] == "stopped; scored 4 answers (1 error, 3 ok)"


AT_MOST_ONE = "a request has at most 1 answers; send several requests"


def test_a_scorer_that_is_not_there_is_named_as_it_was_typed() -> None:
    assert refusal_of("--scorer", "json:nope").startswith("--scorer='json:nope': ")


def test_half_a_body_does_not_keep_the_server() -> None:
    with serving() as server:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port))) as half:
            half.sendall(b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 38\r\n\r\n{")
            server.get("/health")
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) in (0, -signal.SIGTERM, 143)
        assert "Traceback" not in server.process.stdout.read()


def test_nothing_is_left_of_a_server_that_ends_while_it_makes_an_item() -> None:
    with serving() as server:
        server.post("/score", json={"item": GCD, "answer": "1"}).raise_for_status()
        running = psutil.Process(server.process.pid).children(recursive=True)
        makers = [process for process in running if item_makers.__name__ in process.cmdline()]
        assert makers
        for process in makers:
            process.suspend()
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port))) as asking:
            body = json.dumps({"item": "gcd-train-42-1", "answer": "1"}).encode()
            head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            asking.sendall(b"POST /score HTTP/1.1\r\n" + head.encode() + body)
            server.get("/health").raise_for_status()
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(60)
        gone, alive = psutil.wait_procs(running, timeout=30)
        assert not alive and len(gone) == len(running)


def test_a_client_that_leaves_gives_its_places_back() -> None:
    with serving("--scorer", "tests.serve.served:burner", "--timeout", "600", "--workers", "1") as server:
        body = json.dumps({"calls": [["x"]] * 50}).encode()
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port))) as leaving:
            head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            leaving.sendall(b"POST /score HTTP/1.1\r\n" + head.encode() + body)
            while server.get("/health").json()["waiting"] != 50:
                time.sleep(0.05)
        deadline = time.monotonic() + 60  # 50 answers of 600 s each would wait far longer
        while server.get("/health").json()["waiting"] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert server.get("/health").json()["waiting"] == 0


def test_an_answer_that_hangs_is_a_status_and_too_many_waiting_answers_are_a_503() -> None:
    async def ask() -> None:
        with Scorer(workers=1) as scorer:
            desk = Desk(scorer, most_waiting=2)
            transport = httpx.ASGITransport(make_app(desk))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                reply = await client.post("/score", json={"item": GCD, "answer": ["1", "2"]})
                assert (reply.status_code, reply.json()["error"]) == (413, AT_MOST_ONE)
                requests = [client.post("/score", json={"item": GCD, "answer": ["1"]}) for _ in range(3)]
                replies = await asyncio.gather(*requests)
                assert sorted(reply.status_code for reply in replies) == [200, 200, 503]
                assert [reply.headers.get("Retry-After") for reply in replies].count("2") == 1

    asyncio.run(ask())
    with serving("--scorer", "tests.serve.served:burner", "--timeout", "0.3") as server:
        (result,) = server.post("/score", json={"calls": [["x"]]}).json()["results"]
        assert (result["value"], result["status"]) == (None, "timeout")


def test_killed_workers_and_clients_that_go_away_cost_nobody_an_answer() -> None:
    right = entry_of(GCD)["answer"]

    def kill(pid: int) -> None:
        for _ in range(3):
            time.sleep(0.3)
            for process in psutil.Process(pid).children(recursive=True):
                process.kill()

    async def ask(url: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=url, timeout=200) as client:
            many = {"item": GCD, "answer": [right] * 20}
            gone = [asyncio.ensure_future(client.post("/score", json=many)) for _ in range(5)]
            await asyncio.sleep(0.05)
            for request in gone:
                request.cancel()
            answer = {"item": GCD, "answer": right}
            return await asyncio.gather(*(client.post("/score", json=answer) for _ in range(200)))

    with serving("--workers", "2") as server:
        server.post("/score", json={"item": GCD, "answer": right}).raise_for_status()
        killer = threading.Thread(target=kill, args=(server.process.pid,))
        killer.start()
        replies = asyncio.run(ask(server.url))
        killer.join()
        assert server.post("/score", json={"item": GCD, "answer": right}).json()["verdicts"][0]["score"] == 1
    for reply in replies:  # killed twice is `crashed`, and says so: never a wrong answer
        verdict = reply.json()["verdicts"][0]
        assert (verdict["score"], verdict["status"]) in ((1.0, "ok"), (0.0, "crashed"))
    assert sum(reply.json()["verdicts"][0]["score"] for reply in replies) > 150


@pytest.mark.slow
def test_the_attacks_poison_nothing_and_are_all_answered(server: SimpleNamespace) -> None:
    for task in sorted(REWRITES):
        item_id = f"{task}-train-42-0"
        question = entry_of(item_id)["question"]
        texts = [text for attack in attacks(["1"]) if (text := attack.answer(question)) is not None]
        texts = [text for text in texts if text.isascii() or text.isprintable()][:160]
        verdicts = server.post("/score", json={"item": item_id, "answer": texts}).json()["verdicts"]
        assert len(verdicts) == len(texts)
        assert {verdict["status"] for verdict in verdicts} <= {*Status} - {"crashed", "error"}
        reply = server.post("/verify", json=nemo_row(texts[-1], item_id)).json()
        assert reply["reward"] < 1
        (wrong,) = server.post("/score", json={"item": item_id, "answer": "certainly wrong"}).json()["verdicts"]
        assert wrong["score"] == 0


@pytest.mark.long
def test_two_hundred_clients_get_two_thousand_answers(server: SimpleNamespace) -> None:
    right = entry_of(GCD)["answer"]

    async def client_of(number: int) -> list[float]:
        scores = []
        async with httpx.AsyncClient(base_url=server.url, timeout=300) as client:
            for k in range(10):
                answer = right if (number + k) % 2 else "-1"
                reply = await client.post("/score", json={"item": GCD, "answer": answer})
                scores.append(reply.json()["verdicts"][0]["score"] - ((number + k) % 2))
        return scores

    async def all_clients() -> list[list[float]]:
        return await asyncio.gather(*map(client_of, range(200)))

    differences = [score for scores in asyncio.run(all_clients()) for score in scores]
    assert len(differences) == 2_000 and not any(differences)
