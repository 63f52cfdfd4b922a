"""Models of the hub are asked for with the user's token, before anything is started that would wait for them."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner

from rg_env.base.errors import UnavailableError
from rg_env.base.hub import check_hub_model
from rg_env.cli import app

TOKEN = "hf_mine"
GATED = "meta-llama/Llama-3.2-1B-Instruct"


class Hub(BaseHTTPRequestHandler):
    """A hub whose models are all gated; `/none/…` does not exist, `/plain/…` has no config.json."""

    def do_HEAD(self):
        status, code = 200, ""
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, code = 401, "GatedRepo"
        elif self.path.startswith("/none/"):
            status, code = 404, "RepoNotFound"
        elif self.path.startswith("/plain/"):
            status, code = 404, "EntryNotFound"
        self.send_response(status)
        headers = {"X-Error-Code": code, "X-Repo-Commit": "a" * 40, "ETag": '"1"', "Content-Length": "0"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def a_hub():
    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with a_hub() as url:
        template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield


def test_a_gated_model_is_had_with_the_users_token(hub, monkeypatch):
    check_hub_model("--model", GATED)
    check_hub_model("--model", "plain/weights")
    with pytest.raises(UnavailableError, match="`hf download none/such` gets it"):
        check_hub_model("--model", "none/such")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(UnavailableError, match="hf download meta-llama") as caught:
        check_hub_model("--model", GATED)
    assert "\n" not in str(caught.value)


def test_eval_of_a_model_that_cannot_be_had_starts_no_server(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    done = CliRunner().invoke(app, ["eval", "--model", "nobody/nothing", "--tasks", "gcd", "--out", str(tmp_path)])
    assert "`hf download nobody/nothing` gets it" in str(done.exception)
    assert "starting" not in done.output
