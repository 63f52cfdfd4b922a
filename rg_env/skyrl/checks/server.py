"""Checks that the vLLM servers in a configuration answer, have the model, and can load new weights.

Without this check, SkyRL retries a missing server for half a minute per request, and a server with another model fails
every rollout, both after the policy has been loaded.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rg_env.errors import UnavailableError, need, one_line, refuse
from rg_env.skyrl.checks.settings import require

_SECONDS = 5.0
_ENGINE = "generator.inference_engine"
_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


def check_servers(cfg: Any) -> None:
    """Ask each server named in `generator.inference_engine`; does nothing if none is named.

    Raises:
        ConfigError: one line for the first server that cannot be used; UnavailableError if none answers.
    """
    engine = cfg.generator.inference_engine
    proxy = {engine.external_proxy_url: f"{_ENGINE}.external_proxy_url"} if engine.external_proxy_url else {}
    urls = dict.fromkeys(engine.external_server_urls or [], f"{_ENGINE}.external_server_urls") | proxy
    reloads = not cfg.trainer.fully_async.simulate_training and cfg.rg_dump.device == "cpu"
    for url, setting in urls.items():
        _check_model(cfg, url, setting)
        is_here = urlsplit(url).hostname in _LOCAL_HOSTS
        right = f"new weights are passed in a file, so the server has to be at {_LOCAL_HOSTS[0]}"
        need(is_here or not reloads, setting, url, right)
        _check_routes(url, setting, reloads)
    if urls and reloads:
        _check_cpu_policy(cfg)


def _models(url: str, setting: str) -> list[dict[str, Any]]:
    try:
        return [dict(model) for model in _get(url, "v1/models")["data"]]
    except (urllib.error.HTTPError, KeyError, TypeError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, ValueError) and "url type" in str(error):
            refuse(setting, url, "must be an address such as http://127.0.0.1:8000")
        refuse(setting, url, f"something answers there, but not a vLLM server ({_reason(error)})")
    except OSError as error:
        more = f"no server answers ({_reason(error)}); start one, for example with scripts/serve_vllm.sh"
        raise UnavailableError(f"{setting}={url!r}: {more}") from error


def _check_model(cfg: Any, url: str, setting: str) -> None:
    models, path = _models(url, setting), cfg.trainer.policy.model.path
    wanted = cfg.generator.inference_engine.served_model_name or path
    found = next((model for model in models if model.get("id") == wanted), None)
    if found is None:
        names = ", ".join(repr(model.get("id")) for model in models) or "nothing"
        more = f"start it with that model, or set {_ENGINE}.served_model_name to the name that it has there"
        refuse(setting, url, f"the server has {names}, not {wanted!r}; {more}")
    root = str(found.get("root") or "")
    configs = [Path(folder).expanduser() / "config.json" for folder in (root, path)]
    if all(one.is_file() for one in configs) and configs[0].read_bytes() != configs[1].read_bytes():
        refuse(setting, url, f"what the server calls {wanted!r} is {root}, not trainer.policy.model.path={path}")
    room = found.get("max_model_len")
    needed = cfg.trainer.max_prompt_length + cfg.generator.sampling_params.max_generate_length
    right = (
        f"the server has room for {room} tokens, but trainer.max_prompt_length and generator.sampling_params."
        f"max_generate_length add up to {needed}; start it with --max-model-len {needed}"
    )
    need(not isinstance(room, int) or needed <= room, setting, url, right)


def _check_routes(url: str, setting: str, reloads: bool) -> None:
    """Without `reloads`, a server that does not list its routes, such as a router, is not refused."""
    require_it = partial(need, setting=setting, value=url)
    try:
        routes = _get(url, "openapi.json").get("paths", {})
    except (OSError, ValueError) as error:
        require_it(not reloads, right=f"the server does not list its routes ({_reason(error)})")
        return
    samples = "/inference/v1/generate"
    require_it(
        samples in routes, right=f"SkyRL samples from {samples}, which it lacks; start it with --enable-scale-out"
    )
    takes_weights = "/collective_rpc" in routes or not reloads
    require_it(takes_weights, right="the server takes no new weights; start it with VLLM_SERVER_DEV_MODE=1")


def _check_cpu_policy(cfg: Any) -> None:
    """Refuse what vLLM on a CPU silently gets wrong."""
    from transformers import AutoConfig

    model = cfg.trainer.policy
    config = AutoConfig.from_pretrained(model.model.path, **model.model_config_kwargs).get_text_config()
    right = (
        "its input and output embeddings are tied, and vLLM on a CPU keeps the old output embeddings when it reloads "
        f"weights; remove {_ENGINE}.external_proxy_url and external_server_urls to generate with the sampler of rg_env"
    )
    require(cfg, "trainer.policy.model.path", not config.tie_word_embeddings, right)
    right = (
        "vLLM returns the logprobs of temperature 1 at any sampling temperature, and the trainer's would not match; "
        "set it to 1.0"
    )
    is_one = cfg.generator.sampling_params.temperature == 1.0
    require(cfg, "generator.sampling_params.temperature", is_one, right)


def _get(url: str, route: str) -> Any:
    with urllib.request.urlopen(f"{url.rstrip('/')}/{route}", timeout=_SECONDS) as answer:
        return json.load(answer)


def _reason(error: BaseException) -> str:
    return one_line(getattr(error, "reason", None) or error)
