#!/usr/bin/env bash
# SkyRL 0.4.0 and the newest vllm-router: the router comes up, then SkyRL reads a field that it no longer has.
#
# The usual guess: `pip install "skyrl[fsdp]"` brings a router that SkyRL can use, as its metadata ask for `vllm-router`.
# What happens: `pd_disaggregation` was removed in vllm-router 0.1.15. SkyRL reads it after the router is healthy, which
#   is after its engines have loaded the model. SkyRL's own checkout takes 0.1.14.post1, through settings that only uv
#   reads and the package index does not have.
# Met by: GPU runs in an environment that pip made.
# The cure here: the extra `gpu` asks for 0.1.14; `rg-env train --check` and `--version` refuse another one.
source "$(dirname "$0")/environment.sh"
environment skyrl==0.4.0 skyrl-gym==0.4.0 torch==2.13.0 ray==2.57.0 transformers==5.16.1 omegaconf==2.3.1 hydra-core==1.3.4 \
  numpy jaxtyping loguru tensordict accelerate peft==0.18.1 torchdata func_timeout aiohttp httpx uvicorn vllm-router==0.1.17
export SKYRL_WAIT_UNTIL_INFERENCE_SERVER_HEALTHY_TIMEOUT_S=60
cat > "$work/start.py" <<'PY'
"""Starts the router as SkyRL does, before a server that only says that it is healthy."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version

from skyrl.backends.skyrl_train.inference_servers.vllm_router import VLLMRouter
from vllm_router.router_args import RouterArgs


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    router = VLLMRouter(RouterArgs(host="0.0.0.0", worker_urls=[f"http://127.0.0.1:{server.server_port}"]))
    try:
        router.start()
        print("vllm-router", version("vllm-router"), "with skyrl", version("skyrl") + ": started")
    except AttributeError as error:
        print("vllm-router", version("vllm-router"), "with skyrl", version("skyrl") + ":", error)
    finally:
        router.shutdown()
PY
newest=$("$python" "$work/start.py" 2> "$work/newest.log" | grep "^vllm-router") || { tail -5 "$work/newest.log"; exit 1; }
"$uv" pip install --quiet --python "$python" vllm-router==0.1.14
before=$("$python" "$work/start.py" 2> "$work/before.log" | grep "^vllm-router") || { tail -5 "$work/before.log"; exit 1; }
printf '%s\n' "$newest" "$before"
[[ $newest == *"has no attribute 'pd_disaggregation'" && $before == *": started" ]]
