"""Checks of vLLM servers. The servers here only answer the two requests made; tests/vllm has a real one."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rg_env.cpu import nano_path
from rg_env.skyrl.config import load_config
from rg_env.train import run_command, train
from tests.skyrl.checks.test_model import change

ENGINE = "generator.inference_engine"


@pytest.fixture
def serve():
    """Starts servers that answer GET requests from a dict of path → JSON; a text is sent as it is."""
    servers = []

    def start(answers):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                answer = answers.get(self.path)
                body = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_response(404 if answer is None else 200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def vllm(name="nano", root=None, room=256, routes=("/inference/v1/generate", "/collective_rpc")):
    model = {"id": name, "root": root or str(nano_path()), "max_model_len": room}
    return {"/v1/models": {"data": [model]}, "/openapi.json": {"paths": dict.fromkeys(routes)}}


def on(*urls):
    return [
        f"{ENGINE}.run_engines_locally=false",
        f"{ENGINE}.external_proxy_url={urls[0]}",
        f"{ENGINE}.external_server_urls=[{','.join(urls)}]",
        f"{ENGINE}.served_model_name=nano",
        "trainer.max_prompt_length=128",
        "generator.sampling_params.max_generate_length=64",
    ]


def test_a_suitable_server(args, serve):
    load_config([*args, *on(serve(vllm()))])
    load_config(args)  # none named: nothing to ask


def test_no_server(refusal, serve):
    assert "no server answers" in refusal(*on("http://127.0.0.1:1"))
    assert "external_server_urls='http://127.0.0.1:1':" in refusal(*on(serve(vllm()), "http://127.0.0.1:1"))
    assert "http://127.0.0.1:8000" in refusal(*on("somewhere"))


def test_no_vllm_server(refusal, serve):
    for answers in ({}, {"/v1/models": "hello"}, {"/v1/models": {"models": []}}, {"/v1/models": []}):
        assert "not a vLLM server" in refusal(*on(serve(answers)))


def test_another_model(refusal, serve):
    message = refusal(*on(serve(vllm(name="other"))))
    assert "'other'" in message
    assert "served_model_name" in message


def test_a_context_that_is_too_short(refusal, serve):
    assert "--max-model-len 192" in refusal(*on(serve(vllm(room=191))))


def test_a_server_that_takes_no_weights(refusal, serve):
    assert "VLLM_SERVER_DEV_MODE=1" in refusal(*on(serve(vllm(routes=["/inference/v1/generate"]))))


def test_a_server_that_skyrl_cannot_sample_from(refusal, serve):
    assert "--enable-scale-out" in refusal(*on(serve(vllm(routes=["/collective_rpc"]))))


def test_tied_weights(refusal, serve, folder):
    change(folder / "config.json", tie_word_embeddings=True)
    assert "tied" in refusal(*on(serve(vllm(root=str(folder)))), f"trainer.policy.model.path={folder}")


def test_the_command_refuses_before_ray_starts(args, capfd):
    assert run_command(train, [*args, *on("http://127.0.0.1:1")]) == 2
    said = capfd.readouterr().err
    assert said.startswith("rg-env: ")
    assert said.count("\n") == 1
