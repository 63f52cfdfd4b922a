"""What a machine lacks is said before the run starts: GPUs, hub models, vLLM servers.

The servers here only answer the two requests made; tests/vllm has a real one.
"""

import json
import os
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from rg_env.base.errors import ConfigError, RGEnvError
from rg_env.skyrl.cpu import nano_path
from rg_env.skyrl.train_config import load_run
from rg_env.train import main
from tests.skyrl.checks.test_model import change

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
ENGINE = "generator.inference_engine"
RG = "environment.skyrl_gym.rg_dump"


def load(recipe, *more):
    models = [f"trainer.{role}.model.path=nano" for role in ("policy", "critic")[: 1 + recipe.startswith("ppo")]]
    return load_run([str(CONFIGS / f"{recipe}.yaml"), *models, "trainer.logger=console", *more]).cfg


def refused(recipe, *more):
    with pytest.raises(RGEnvError) as error:
        load(recipe, *more)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def gpus(monkeypatch):
    """Fakes the number of GPUs, and that flash-attn is installed."""
    monkeypatch.setattr("rg_env.skyrl.checks.has_flash_attn", lambda: True)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("rg_env.skyrl.checks.RAY_FOLDER", Path("no such folder"))

    def have(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return have


def test_a_gpu_recipe_on_a_machine_without_gpus(gpus, capsys, monkeypatch):
    """All that is missing is said at once; with --check it is a warning, and only what is wrong is an error."""
    gpus(0)
    assert "configs/cpu/" in refused("ppo_4gpu")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    for more, code, lines in (("trainer.seed=1", 0, 2), ("logger=wandb", 2, 3), ("size=0", 2, 1)):
        with pytest.raises(SystemExit) as ended:
            main([f"{CONFIGS}/grpo_4gpu.yaml", more, "--check"])
        shown = capsys.readouterr().err
        assert (ended.value.code, shown.count("\n")) == (code, lines), shown
        assert ("no GPU" in shown and "`hf download" in shown) == (lines > 1)
        assert ("WANDB_API_KEY" in shown) == (lines == 3)


def test_the_key_of_wandb_login_is_enough(monkeypatch, tmp_path):
    """SkyRL wants the variable, also on its workers."""
    for name in ("WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_API_KEY", "")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    quickstart = [f"{CONFIGS}/quickstart.yaml", "trainer.logger=wandb"]
    with pytest.raises(ConfigError, match=r"run `wandb login`, or set WANDB_MODE=offline or trainer\.logger=console"):
        load_run(quickstart)
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password of-wandb-login")
    assert load_run(quickstart).cfg.trainer.logger == "wandb"
    assert os.environ["WANDB_API_KEY"] == "of-wandb-login"


def test_sequences_are_split_among_the_workers_of_a_role(gpus):
    gpus(8)
    assert "must divide the 4 workers" in refused("ppo_4gpu", "trainer.policy.sequence_parallel_size=8")


def test_what_needs_flash_attn_is_refused_without_it(gpus, monkeypatch):
    gpus(8)
    monkeypatch.setattr("rg_env.skyrl.checks.has_flash_attn", lambda: False)
    cure = "flash-attn is not installed: install it (docs/gpu.md), or set "
    assert "needs it; set that to false, too" in refused("grpo_4gpu", "trainer.flash_attn=false")
    assert refused("grpo_4gpu").endswith(f"{cure}trainer.flash_attn=false trainer.remove_microbatch_padding=false")
    load("grpo_4gpu", "trainer.flash_attn=false", "trainer.remove_microbatch_padding=false")


@pytest.mark.parametrize(("found", "fields", "works"), [("0.1.14", ["pd_disaggregation"], True), ("0.1.17", [], False)])
def test_a_router_that_skyrl_cannot_start_is_refused(gpus, monkeypatch, tmp_path, found, fields, works):
    """The packages here only have the one class that SkyRL reads: findings/skyrl_vllm_router.sh has the real ones."""
    gpus(8)
    (tmp_path / f"vllm_router-{found}.dist-info").mkdir()
    (tmp_path / f"vllm_router-{found}.dist-info/METADATA").write_text(f"Name: vllm-router\nVersion: {found}\n")
    (tmp_path / "vllm_router").mkdir()
    attributes = "".join(f"    {name} = False\n" for name in fields) or "    pass\n"
    (tmp_path / "vllm_router/router_args.py").write_text(f"class RouterArgs:\n{attributes}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vllm_router", raising=False)
    monkeypatch.delitem(sys.modules, "vllm_router.router_args", raising=False)
    if works:
        load("grpo_4gpu")
    else:
        assert refused("grpo_4gpu") == "SkyRL 0.4.0 cannot start vllm-router 0.1.17: install vllm-router 0.1.14"


def test_a_cluster_is_asked_by_ray(gpus, tmp_path, monkeypatch):
    gpus(0)
    monkeypatch.setattr("rg_env.skyrl.checks.RAY_FOLDER", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as ray:  # as `ray start` leaves it
        (tmp_path / "ray_current_cluster").write_text(f"127.0.0.1:{ray.getsockname()[1]}")
        load("dapo_2x8gpu")
    assert "no GPU" in refused("dapo_2x8gpu")
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")
    load("dapo_2x8gpu")


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
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
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


def test_servers(args, refusal, serve):
    load_run([*args, *on(serve(vllm()))])
    load_run(args)  # none named: nothing to ask
    assert "no vLLM server answers" in refusal(*on("http://127.0.0.1:1"))
    assert "must be an address such as http://" in refusal(*on("127.0.0.1:8000"))
    assert "external_server_urls='http://127.0.0.1:1':" in refusal(*on(serve(vllm()), "http://127.0.0.1:1"))
    for answers in ({}, {"/v1/models": "hello"}, {"/v1/models": {"models": []}}, {"/v1/models": []}):
        assert "no vLLM server answers" in refusal(*on(serve(answers)))
    assert "the server has 'other', not 'nano'" in refusal(*on(serve(vllm(name="other"))))
    assert "--max-model-len 192" in refusal(*on(serve(vllm(room=191))))
    assert "VLLM_SERVER_DEV_MODE=1" in refusal(*on(serve(vllm(routes=["/inference/v1/generate"]))))
    assert "--enable-scale-out" in refusal(*on(serve(vllm(routes=["/collective_rpc"]))))


def test_tied_weights(refusal, serve, folder):
    change(folder / "config.json", tie_word_embeddings=True)
    assert "tied" in refusal(*on(serve(vllm(root=str(folder)))), f"trainer.policy.model.path={folder}")
